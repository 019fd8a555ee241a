package fault

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"mt/device"
	"mt/device/op"
	"mt/internal/accounts"
)

// Error is the fault that was asked for.
type Error struct {
	Call int64  // which call, counted from 1
	Name string // what it was
}

func (e *Error) Error() string {
	return fmt.Sprintf("injected fault: device call %d (%s)", e.Call, e.Name)
}

// Device counts calls and fails one of them.
type Device struct {
	device.Device
	failAt int64
	late   bool // see WrapLate
	calls  atomic.Int64
	rows   []int32               // what misread reads and would write
	fault  atomic.Pointer[Error] // once it is met
}

// Wrap returns dev with call number failAt, counted from 1, failing; 0 never
// does. Counted are Alloc, AllocHost, Register, NewStream, NewEvent, every call
// of a stream that can fail (copies, Zero, Record, Wait, Sync) and every
// operation. Streams, events and operations of the result belong together.
func Wrap(dev device.Device, failAt int64) *Device { return &Device{Device: dev, failAt: failAt} }

// WrapLate is Wrap with a fault that a stream tells as a GPU does: the call returns,
// and when the stream has come to it, it fails. In its place dev, which is device/cpu's,
// is given an operation that is seen to be wrong when it is made.
func WrapLate(dev device.Device, failAt int64) *Device {
	return &Device{Device: dev, failAt: failAt, late: true, rows: make([]int32, 3*device.Align/4)}
}

// misread enqueues on s, a stream of the wrapped device, the gathering of row 1 of a
// table of one row.
func (d *Device) misread(s device.Stream) {
	d.rows[0] = 1
	mem := device.Mem{Addr: reflect.ValueOf(d.rows).Pointer(), Bytes: 4 * int64(len(d.rows))}
	row := func(i int64, t device.DType) device.Tensor { return mem.Tensor(t, i*device.Align, 1) }
	op.Do(d.Device, s, op.GatherRows{Dst: row(1, device.F32), Src: row(2, device.F32), Index: row(0, device.I32), T: 1, C: 1})
}

// Calls is the number of calls counted so far.
func (d *Device) Calls() int64 { return d.calls.Load() }

// call counts the call that name, joined by spaces, describes and returns its
// fault, nil if it has none.
func (d *Device) call(name ...string) error {
	n := d.calls.Add(1)
	if n != d.failAt {
		return nil
	}
	e := &Error{Call: n, Name: strings.Join(name, " ")}
	d.fault.Store(e)
	return e
}

// Alloc fails or allocates.
func (d *Device) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if err := d.call("Alloc for", p.String()); err != nil {
		return device.Mem{}, err
	}
	return d.Device.Alloc(p, bytes)
}

// AllocHost fails or allocates.
func (d *Device) AllocHost(bytes int64) ([]byte, error) {
	if err := d.call("AllocHost"); err != nil {
		return nil, err
	}
	return d.Device.AllocHost(bytes)
}

// Register fails or registers.
func (d *Device) Register(b []byte) error {
	if err := d.call("Register"); err != nil {
		return err
	}
	return d.Device.Register(b)
}

// NewStream fails or starts a stream.
func (d *Device) NewStream(name string) (device.Stream, error) {
	if err := d.call("NewStream", name); err != nil {
		return nil, err
	}
	s, err := d.Device.NewStream(name)
	if err != nil {
		return nil, err
	}
	return &stream{Stream: s, dev: d, name: name}, nil
}

// NewEvent fails or makes an event.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.call("NewEvent"); err != nil {
		return nil, err
	}
	return d.Device.NewEvent()
}

// Do counts the operation on s, a stream of d, and enqueues it on the stream within.
func (d *Device) Do(s device.Stream, o device.Op) {
	on := s.(*stream)
	on.do(o.Name(), func() { d.Device.Do(on.Stream, o) })
}
