package emu

import (
	"errors"
	"fmt"
	"slices"
)

// Kind is what sort of mistake a Fault is.
type Kind string

// The kinds of faults.
const (
	Bounds   Kind = "bounds"   // an access outside of an allocation, or after its end
	Order    Kind = "order"    // accesses to the same bytes in an order that nothing fixes
	Kernel   Kind = "kernel"   // a kernel that the interpreter stopped
	Context  Kind = "context"  // a call of libcuda on a thread without a context
	Device   Kind = "device"   // something of one device was used on another
	Handle   Kind = "handle"   // a value that is no handle, or no longer one
	Argument Kind = "argument" // arguments that no correct program passes
	Internal Kind = "internal" // a panic of the emulator itself
)

// Fault is one mistake of the program under test.
type Fault struct {
	Kind Kind
	What string
	Err  error // what caused it, if anything
}

func (f *Fault) Error() string { return fmt.Sprintf("emu: %s: %s", f.Kind, f.What) }

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Err }

// maxFaults is how many faults are kept; one mistake in a loop gives thousands.
const maxFaults = 100

// fault keeps a mistake of the program under test. d.mu is held.
func (d *Driver) fault(k Kind, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.moreFaults++
		return
	}
	f := &Fault{Kind: k, What: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			f.Err = err
		}
	}
	d.faults = append(d.faults, f)
}

// badMemory keeps a mistake after which no context of the process can be used any
// more, as after an illegal address in CUDA, and returns the code for it. d.mu is
// held.
func (d *Driver) badMemory(k Kind, format string, args ...any) int32 {
	d.fault(k, format, args...)
	return d.illegalAddress()
}

// illegalAddress ends the use of all contexts. d.mu is held.
func (d *Driver) illegalAddress() int32 {
	if d.sticky == 0 {
		d.sticky = errIllegalAddress
		d.cancel()
	}
	return d.sticky
}

// Faults are the mistakes so far, the first 100 of them in order; each is a
// *Fault.
func (d *Driver) Faults() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Clone(d.faults)
	if d.moreFaults > 0 {
		out = append(out, fmt.Errorf("emu: and %d faults more", d.moreFaults))
	}
	return out
}

// Live lists what the program has not given back: device memory, pinned memory,
// streams, events, modules, objects of libcublasLt, the context, libnvidia-ml.
// Contexts and modules are left out where they could not be given back: when the
// device was lost, or when a call that must come first was made to fail (cuInit,
// cuDeviceGet, cuCtxSetCurrent).
func (d *Driver) Live() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live()
}

func (d *Driver) live() []string {
	var out []string
	for i := uint64(1); i <= d.buffers; i++ {
		if b := d.buffer(i); b != nil && !b.freed {
			out = append(out, b.name)
		}
	}
	for _, p := range d.pinned {
		out = append(out, p.name)
	}
	ids := make([]uint64, 0, len(d.objects))
	for h := range d.objects {
		ids = append(ids, h)
	}
	slices.Sort(ids) // by kind, then by age
	for _, h := range ids {
		if k := handleKind(h); k.counted() && (k != kindModule && k != kindBlas || !d.excused) {
			out = append(out, handleName(h))
		}
	}
	for _, g := range d.gpus {
		if g.retained > 0 && !d.excused {
			out = append(out, fmt.Sprintf("primary context%s, retained %d times", d.of(g), g.retained))
		}
	}
	if d.mlUsers > 0 {
		out = append(out, fmt.Sprintf("nvidia-ml, initialised %d times", d.mlUsers))
	}
	return out
}

// Close ends the driver: it runs what is still enqueued and frees everything. The
// error joins the faults and names what the program had not given back. The symbols
// must not be called any more.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.endHang(0)
	d.drain()
	d.closed = true
	d.work.Broadcast()
	live := d.live()
	started := d.started
	d.mu.Unlock()
	if started {
		<-d.ended
	}
	d.unbind()
	if d.pool != nil {
		d.pool.Close()
	}
	errs := d.Faults()
	for _, l := range live {
		errs = append(errs, fmt.Errorf("emu: not given back: %s", l))
	}
	d.forget()
	return errors.Join(errs...)
}
