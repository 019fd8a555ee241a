package wrap

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"mt/device"
	"mt/device/op"
)

// Profiled is a device that times the operations of the device it wraps. Its streams are the
// wrapped device's streams.
type Profiled struct {
	device.Device
	mu      sync.Mutex
	pending []span
	spare   []device.Event
	err     error // the error of the first event that could not be created
}

// span is one enqueued operation, with the events before and after it.
type span struct {
	what       key
	flops      float64
	bytes      int64
	start, end device.Event
}

// key identifies the operations whose times are added up: those with the same name and shape.
type key struct{ op, shape string }

// OpTime is the time of all calls of one operation with one shape.
type OpTime struct {
	Op string `json:"op"`
	// Shape is the shape of a matrix product or of attention. If a product's number of rows depends on the data, "≤"
	// and the next power of two replace it.
	Shape string `json:"shape,omitempty"`
	Calls int    `json:"calls"`
	// Total is device time, from each call's start to its end.
	Total time.Duration `json:"total_ns"`
	// FLOPs is the sum over all calls; 0: unknown.
	FLOPs float64 `json:"flops,omitempty"`
	// Bytes is the device memory that all calls must read and write; 0: unknown.
	Bytes int64 `json:"bytes,omitempty"`
}

// Profile returns dev with its operations timed.
func Profile(dev device.Device) *Profiled { return &Profiled{Device: dev} }

// Unwrap returns the wrapped device.
func (d *Profiled) Unwrap() device.Device { return d.Device }

// Do enqueues o between two events.
func (d *Profiled) Do(s device.Stream, o device.Op) {
	what, flops := key{op: o.Name()}, 0.0
	if w, ok := o.(op.Worker); ok {
		what.shape, flops = w.Work()
	}
	var bytes int64
	if m, ok := o.(op.Mover); ok {
		bytes = m.Bytes()
	}
	d.mu.Lock()
	start, end := d.event(), d.event()
	d.mu.Unlock()
	if start == nil || end == nil {
		d.Device.Do(s, o)
		return
	}
	s.Record(start)
	d.Device.Do(s, o)
	s.Record(end)
	d.mu.Lock()
	d.pending = append(d.pending, span{what, flops, bytes, start, end})
	d.mu.Unlock()
}

// Times returns the times of the operations enqueued since the last call of Times, the longest first. All of them
// must be complete.
func (d *Profiled) Times() ([]OpTime, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	sums := map[key]*OpTime{}
	for _, s := range d.pending {
		t := sums[s.what]
		if t == nil {
			t = &OpTime{Op: s.what.op, Shape: s.what.shape}
			sums[s.what] = t
		}
		t.Calls++
		t.Total += s.end.Elapsed(s.start)
		t.FLOPs += s.flops
		t.Bytes += s.bytes
		d.spare = append(d.spare, s.start, s.end)
	}
	d.pending = nil
	out := make([]OpTime, 0, len(sums))
	for _, t := range sums {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b OpTime) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Shape, b.Shape))
	})
	return out, nil
}

// Close releases the events and closes the device.
func (d *Profiled) Close() error {
	d.mu.Lock()
	for _, s := range d.pending {
		d.spare = append(d.spare, s.start, s.end)
	}
	for _, e := range d.spare {
		e.Close()
	}
	d.pending, d.spare = nil, nil
	d.mu.Unlock()
	return d.Device.Close()
}

// event returns a spare event to record, or a new event if no spare is left. It returns nil if the
// device cannot create another; the operation is then not timed.
func (d *Profiled) event() device.Event {
	if n := len(d.spare); n > 0 {
		e := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return e
	}
	e, err := d.NewEvent()
	if err != nil {
		if d.err == nil {
			d.err = fmt.Errorf("profile: %w", err)
		}
		return nil
	}
	return e
}
