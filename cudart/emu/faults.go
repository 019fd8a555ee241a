package emu

import (
	"errors"
	"fmt"
	"slices"
)

// Kind is the kind of mistake that a Fault records.
type Kind string

// The kinds of mistakes.
const (
	Bounds   Kind = "bounds"   // an access outside an allocation or after its release
	Order    Kind = "order"    // unordered accesses to the same bytes
	Kernel   Kind = "kernel"   // a kernel that emu/ptx stopped
	Context  Kind = "context"  // a libcuda call on a thread without a context
	Device   Kind = "device"   // an object of one device used on another device
	Handle   Kind = "handle"   // an invalid or destroyed handle
	Argument Kind = "argument" // invalid arguments
	Internal Kind = "internal" // a panic of the emulator itself
)

// Fault is one mistake of the program under test, such as an access out of bounds.
type Fault struct {
	Kind Kind
	What string
	Err  error // the cause, or nil
}

func (f *Fault) Error() string { return fmt.Sprintf("emu: %s: %s", f.Kind, f.What) }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// maxFaults is how many faults a driver keeps. A mistake in a loop can cause thousands.
const maxFaults = 100

// fault records a mistake of the program under test. d.mu is held.
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

// badMemory records a mistake after which, as after an illegal address in CUDA, no context can be
// used. It returns the code that all later calls return. d.mu is held.
func (d *Driver) badMemory(k Kind, format string, args ...any) int32 {
	d.fault(k, format, args...)
	return d.illegalAddress()
}

// illegalAddress makes all contexts unusable, and returns the code that all later calls return.
// d.mu is held.
func (d *Driver) illegalAddress() int32 {
	if d.sticky == 0 {
		d.sticky = errIllegalAddress
		d.cancel()
	}
	return d.sticky
}

// Faults returns the first 100 mistakes in order, each a *Fault, plus one error that counts the rest.
func (d *Driver) Faults() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Clone(d.faults)
	if d.moreFaults > 0 {
		out = append(out, fmt.Errorf("emu: and %d faults more", d.moreFaults))
	}
	return out
}

// Live lists the objects that the program has not released: device memory, pinned memory, streams, events, modules,
// objects of libcublasLt, primary contexts and libnvidia-ml.
//
// Contexts, modules and cublasLt handles are not listed if the program could not release them. This is so if the
// device was lost, or if a call that the release needs was made to fail (cuInit, cuDeviceGet, cuCtxSetCurrent).
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

// Close runs the remaining work and frees all memory. The error joins the faults and the objects that were not
// released. The symbols must not be called afterwards.
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
