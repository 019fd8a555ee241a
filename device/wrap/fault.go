package wrap

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"mt/base/accounts"
	"mt/device"
	"mt/device/op"
)

// Fault is the error that a call returns because Fail or FailLate was told to let it fail.
type Fault struct {
	Call int64  // number of the call, counted from 1
	Name string // the call's name and its stream
}

func (e *Fault) Error() string {
	return fmt.Sprintf("injected fault: device call %d (%s)", e.Call, e.Name)
}

// Failing counts calls and makes one of them fail.
type Failing struct {
	device.Device
	failAt int64
	late   bool // see FailLate
	calls  atomic.Int64
	rows   []int32               // the memory that misread's operation reads and would write
	fault  atomic.Pointer[Fault] // the fault, once the call has happened
}

// Fail returns dev with call number failAt failing; calls are counted from 1, and 0 makes none
// fail. Counted calls are Alloc, AllocHost, Register, Reach, NewStream, NewEvent, every operation,
// and every call of a stream that can fail (copies, Zero, Record, Wait, Sync). The returned
// device's streams and events work only with that device.
func Fail(dev device.Device, failAt int64) *Failing { return &Failing{Device: dev, failAt: failAt} }

// FailLate is like Fail, but the call fails late, as on a GPU: it returns without an error, and the
// stream fails when it executes the call. FailLate replaces the call by an operation with an
// invalid index. Such an index must be an error of dev when the operation runs, as in device/cpu,
// and no crash.
func FailLate(dev device.Device, failAt int64) *Failing {
	return &Failing{Device: dev, failAt: failAt, late: true, rows: make([]int32, 3*device.Align/4)}
}

// misread enqueues an invalid operation on s, a stream of the wrapped device: it reads row 1 of a table with one row.
// The device notices that only when it runs the operation.
func (d *Failing) misread(s device.Stream) {
	d.rows[0] = 1
	mem := device.Mem{Addr: reflect.ValueOf(d.rows).Pointer(), Bytes: 4 * int64(len(d.rows))}
	row := func(i int64, t device.DType) device.Tensor { return mem.Tensor(t, i*device.Align, 1) }
	op.Do(d.Device, s, op.GatherRows{Dst: row(1, device.F32), Src: row(2, device.F32), Index: row(0, device.I32), T: 1, C: 1})
}

// Calls returns the number of calls counted so far.
func (d *Failing) Calls() int64 { return d.calls.Load() }

// call counts a call, which the words of name describe. If it is the call that is to fail, it returns the fault;
// otherwise nil.
func (d *Failing) call(name ...string) error {
	n := d.calls.Add(1)
	if n != d.failAt {
		return nil
	}
	e := &Fault{Call: n, Name: strings.Join(name, " ")}
	d.fault.Store(e)
	return e
}

// Alloc fails, or allocates with the wrapped device.
func (d *Failing) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if err := d.call("Alloc for", p.String()); err != nil {
		return device.Mem{}, err
	}
	return d.Device.Alloc(p, bytes)
}

// AllocHost fails, or allocates with the wrapped device.
func (d *Failing) AllocHost(bytes int64) ([]byte, error) {
	if err := d.call("AllocHost"); err != nil {
		return nil, err
	}
	return d.Device.AllocHost(bytes)
}

// Register fails, or registers with the wrapped device.
func (d *Failing) Register(memory ...[]byte) error {
	if err := d.call("Register"); err != nil {
		return err
	}
	return d.Device.Register(memory...)
}

// Unwrap returns the wrapped device.
func (d *Failing) Unwrap() device.Device { return d.Device }

// Reach fails, or calls the wrapped device's Reach.
func (d *Failing) Reach(to device.Device) (bool, error) {
	if err := d.call("Reach"); err != nil {
		return false, err
	}
	return d.Device.Reach(to)
}

// NewStream fails, or starts a stream of the wrapped device.
func (d *Failing) NewStream(name string) (device.Stream, error) {
	if err := d.call("NewStream", name); err != nil {
		return nil, err
	}
	s, err := d.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &failingStream{Stream: s, dev: d, name: name}, nil
}

// NewEvent fails, or makes an event of the wrapped device.
func (d *Failing) NewEvent() (device.Event, error) {
	if err := d.call("NewEvent"); err != nil {
		return nil, err
	}
	return d.Device.NewEvent()
}

// Do counts the operation and enqueues it on the wrapped device's stream in s, a stream of d.
func (d *Failing) Do(s device.Stream, o device.Op) {
	on := s.(*failingStream)
	on.do(o.Name(), func() { d.Device.Do(on.Stream, o) })
}
