package emu

import (
	"fmt"
	"time"
)

// gpu is one emulated device.
type gpu struct {
	ordinal     int
	context     uint64        // handle of the primary context; 0: none
	runtimeUses bool          // libcudart uses the primary context
	retained    int           // cuDevicePrimaryCtxRetain calls without a matching release
	used        int64         // allocated bytes of its memory
	null        *stream       // default stream, created on first use
	peers       map[*gpu]bool // devices with peer access from this device
	extra       time.Duration // sum of op.extra over all operations so far
}

func (g *gpu) String() string { return fmt.Sprintf("device %d", g.ordinal) }

// of returns the suffix " of device 1" for names of g's objects in messages. With a single device
// it returns "".
func (d *Driver) of(g *gpu) string {
	if len(d.gpus) == 1 {
		return ""
	}
	return fmt.Sprintf(" of %s", g)
}

// onDevice calls f with the device of ordinal dev and returns its code. An invalid ordinal is an error code.
func (d *Driver) onDevice(dev int32, f func(g *gpu) int32) int32 {
	if dev < 0 || int(dev) >= len(d.gpus) {
		return errInvalidDevice
	}
	return f(d.gpus[dev])
}

// current returns the device whose context is current on the calling thread; nil if no context, or a destroyed one, is
// current. d.mu is held.
func (d *Driver) current() *gpu {
	if ctx := d.thread().context; ctx != 0 {
		for _, g := range d.gpus {
			if g.context == ctx {
				return g
			}
		}
	}
	return nil
}

// here returns the device of the context in which the current C call was made. Only calls that need
// a context may use it. d.mu is held.
func (d *Driver) here() *gpu {
	t := d.thread()
	if t.gpu == nil { // the call proceeds although the devices are lost
		return d.gpus[0]
	}
	return t.gpu
}

// useRuntime starts every libcudart call. If the thread has no context, it makes the primary context of device 0
// current and retains it, as CUDA does. If a context is current already, whoever created it must release it.
//
// With several devices, a thread without a context is a fault, because its work would silently go to device 0.
// cudaSetDevice is not emulated, because mt does not call it. d.mu is held.
func (d *Driver) useRuntime(s *symbol) {
	t := d.thread()
	g := d.current()
	if g == nil {
		g = d.gpus[0]
		if t.context == 0 && len(d.gpus) > 1 {
			d.fault(Context, "%s on a thread that has no context: libcudart takes device 0", s.name)
		}
		g.runtimeUses = true
	}
	t.gpu = g
	d.makeContext(g)
	if t.context == 0 {
		t.context = g.context
	}
}

// makeContext creates the primary context of g, which takes device memory, if there is none. d.mu is held.
func (d *Driver) makeContext(g *gpu) {
	if g.context == 0 {
		g.context = d.keep(kindContext, g)
		g.used += d.opt.ContextMemory
	}
}

// releaseContext is cuDevicePrimaryCtxRelease. The last release unloads the modules of the context. It also destroys
// the context, unless libcudart uses it.
func (d *Driver) releaseContext(g *gpu) int32 {
	if g.retained == 0 {
		d.fault(Handle, "cuDevicePrimaryCtxRelease of a context that is not retained%s", d.of(g))
		return errInvalidContext
	}
	if g.retained--; g.retained > 0 {
		return 0
	}
	d.drain()
	for h, v := range d.objects {
		switch v := v.(type) {
		case *module:
			if v.gpu == g {
				delete(d.objects, h)
			}
		case *function:
			if v.gpu == g {
				delete(d.objects, h)
			}
		}
	}
	if !g.runtimeUses {
		delete(d.objects, g.context)
		g.context, g.peers = 0, nil
		g.used -= d.opt.ContextMemory
	}
	return 0
}

// setCurrent is cuCtxSetCurrent.
func (d *Driver) setCurrent(ctx uint64) int32 {
	if ctx != 0 {
		if _, ok := find[*gpu](d, kindContext, ctx, "cuCtxSetCurrent"); !ok {
			return errInvalidContext
		}
	}
	d.thread().context = ctx
	return 0
}

// same reports whether two objects in a C call are on the same device, and records a fault if not.
// The first object is on device `of`, the second on g. Texts `what` and `other` name them in
// messages, such as "stream #1".
func (d *Driver) same(call, what string, of *gpu, other string, g *gpu) bool {
	if of != g {
		d.fault(Device, "%s: %s is of %s, and %s of %s", call, what, of, other, g)
	}
	return of == g
}

// own reports whether an object of device `of` belongs to the context that is current in the call,
// and records a fault if not. Text `what` names the object in messages. Objects of a lost device may
// be released from any context, so then own returns true.
func (d *Driver) own(call, what string, of *gpu) bool {
	return d.lost || d.same(call, what, of, "the current context", d.here())
}

// Contexts returns the ordinals of the devices that have a context.
func (d *Driver) Contexts() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []int
	for _, g := range d.gpus {
		if g.context != 0 {
			out = append(out, g.ordinal)
		}
	}
	return out
}
