package virtual

import (
	"fmt"
	"slices"
	"time"

	"mt/base/accounts"
	"mt/device"
	"mt/plan/rates"
)

// Device is the device of a machine in plan/rates, on a virtual clock: its operations take time but compute nothing. It
// is not for concurrent use.
type Device struct {
	clock   *Clock
	index   int // number of the device
	machine *rates.Machine
	costs   *rates.Costs
	unified bool
	next    uintptr // the next address
	blank   func(bytes int64) ([]byte, error)
	enqueue float64 // seconds that the host takes to enqueue a command
	// up and down are the copy engines, one for each direction; nil: host cores copy, as on the CPU
	// device.
	up, down *engine
	free     []*mark // for reuse
	tapes    map[any]*tape
}

// New returns the device with number index of machine m, which must have passed Check. With unified
// the device computes in host memory without copies. AllocHost returns the memory that blank
// returns. That memory is only read, so blank may return the same memory again and again.
func New(clock *Clock, m *rates.Machine, index int, unified bool, blank func(bytes int64) ([]byte, error)) *Device {
	d := &Device{clock: clock, index: index, machine: m, costs: rates.NewCosts(m), unified: unified, next: device.Align, blank: blank, enqueue: m.Device.Enqueue / 1e6}
	if m.Device.Kind != "cpu" {
		d.up, d.down = &engine{}, &engine{}
	}
	return d
}

// Name implements device.Device.
func (d *Device) Name() string { return d.machine.Device.Name + " (predicted)" }

// Kind implements device.Device.
func (d *Device) Kind() string { return d.machine.Device.Kind }

// Unified implements device.Device.
func (d *Device) Unified() bool { return d.unified }

// Alloc implements device.Device. It has no limit, because the plan has checked the memory.
func (d *Device) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if bytes < 0 {
		return device.Mem{}, fmt.Errorf("virtual: allocate %d bytes", bytes)
	}
	return d.place(bytes), nil
}

// place returns memory of this size at addresses that no other memory has. Nothing is stored at the
// addresses.
func (d *Device) place(bytes int64) device.Mem {
	m := device.Mem{Addr: d.next, Bytes: bytes}
	d.next += (uintptr(bytes) + 2*device.Align - 1) / device.Align * device.Align
	return m
}

// Free implements device.Device.
func (d *Device) Free(device.Mem) {}

// AllocHost implements device.Device. The memory reads as zeros and must not be written.
func (d *Device) AllocHost(bytes int64) ([]byte, error) { return d.blank(bytes) }

// FreeHost implements device.Device.
func (d *Device) FreeHost([]byte) {}

// Register implements device.Device.
func (d *Device) Register(...[]byte) error { return nil }

// Unregister implements device.Device.
func (d *Device) Unregister(...[]byte) {}

// BindHost implements device.Device.
func (d *Device) BindHost(b []byte) device.Mem { return d.place(int64(len(b))) }

// Usage implements device.Device.
func (d *Device) Usage() device.Usage { return device.Usage{} }

// Reach implements device.Device. Both devices' machines must allow copies between devices.
func (d *Device) Reach(to device.Device) (bool, error) {
	other, ok := device.Inner(to).(*Device)
	return ok && other.index != d.index && min(d.machine.Link.Peer, other.machine.Link.Peer) > 0, nil
}

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	return &event{last: &mark{done: true, users: 1}}, nil
}

// NewStream implements device.Device.
func (d *Device) NewStream(string) (device.Stream, error) {
	return newStream(d), nil
}

// Do implements device.Device.
func (d *Device) Do(s device.Stream, o device.Op) {
	s.(*stream).work(d.work(d.costs.Op(o)), true)
}

// Repeat enqueues on s what f enqueues. If an earlier call had the same key, it enqueues that call's
// operations again, without a call of f. So calls with equal keys must enqueue operations of equal
// costs.
func (d *Device) Repeat(s device.Stream, key any, f func()) {
	to := s.(*stream)
	if t := d.tapes[key]; t != nil && !t.other {
		for _, w := range t.works {
			to.work(w, true)
		}
		return
	}
	t := &tape{}
	to.tape = t
	f()
	to.tape = nil
	if d.tapes == nil {
		d.tapes = map[any]*tape{}
	}
	d.tapes[key] = t
}

// tape has the operations that a call of Repeat enqueued. other: it also enqueued something else, so
// that it cannot be repeated.
type tape struct {
	works []Work
	other bool
}

// inHost reports whether the device's memory is host memory.
func (d *Device) inHost() bool {
	return d.machine.Device.Kind == "cpu" || d.machine.Device.Integrated
}

// work returns an operation of cost c as a Work on the clock. On a CPU, operations use the cores. If device memory is
// host memory, they also use the host's memory bandwidth.
func (d *Device) work(c rates.Cost) Work {
	w := Work{Seconds: c.Seconds}
	w.Share[Compute] = 1
	h := &d.machine.Host
	if c.Seconds > 0 && d.inHost() {
		w.Share[HostMemory] = min(1, c.Bytes/c.Seconds/(h.Bandwidth*1e9))
	}
	if d.machine.Device.Kind == "cpu" && c.Seconds > 0 {
		w.Share[Compute] = 0
		w.Share[Cores] = 1
		if c.Cores > 0 {
			w.Share[Cores] = min(1, c.Cores/float64(h.Cores))
		}
	}
	return w
}

// engine is the GPU's copy engine for one direction. It makes one whole copy at a time, in the order in which streams
// become ready for their copies.
type engine struct {
	busy    bool
	waiting []*stream
}

// start lets stream s begin its copy when the engine is free: now, or after the earlier copies. The
// stream calls end when the copy is complete. With a nil engine the copy begins at once, so copies
// run concurrently.
func (e *engine) start(s *stream) {
	if e != nil && e.busy {
		e.waiting = append(e.waiting, s)
		return
	}
	if e != nil {
		e.busy = true
	}
	s.begin()
}

// end is called when a copy is complete. It starts the next waiting copy.
func (e *engine) end() {
	if e == nil {
		return
	}
	if e.busy = len(e.waiting) > 0; e.busy {
		next := e.waiting[0]
		e.waiting = slices.Delete(e.waiting, 0, 1)
		next.begin()
	}
}

// Close implements device.Device.
func (d *Device) Close() error { return nil }

// event implements device.Event. It may be recorded again and again; only the last recording
// counts.
type event struct{ last *mark }

// mark is one recording of an event: a point of a stream, and when the stream reached it.
type mark struct {
	done    bool
	at      time.Duration
	waiting []*stream
	users   int // the event, and items on streams
}

// newMark returns a mark for an event and the item that records it.
func (d *Device) newMark() *mark {
	last := len(d.free) - 1
	if last < 0 {
		return &mark{users: 2}
	}
	m := d.free[last]
	d.free = d.free[:last]
	*m = mark{users: 2, waiting: m.waiting}
	return m
}

// unref says that an event or an item no longer uses m, which may be nil. A mark without users is reused.
func (d *Device) unref(m *mark) {
	if m == nil {
		return
	}
	if m.users--; m.users == 0 {
		d.free = append(d.free, m)
	}
}

// Elapsed implements device.Event.
func (e *event) Elapsed(start device.Event) time.Duration {
	return e.last.at - start.(*event).last.at
}

// Close implements device.Event.
func (e *event) Close() {}
