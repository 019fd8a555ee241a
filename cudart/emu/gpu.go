package emu

import (
	"fmt"
	"time"
)

// gpu is one device of a driver.
type gpu struct {
	ordinal     int
	context     uint64        // handle of the primary context, 0 when there is none
	runtimeUses bool          // libcudart holds the primary context
	retained    int           // how many calls of cuDevicePrimaryCtxRetain have not been undone
	used        int64         // bytes of its memory
	null        *stream       // its default stream, made when used
	peers       map[*gpu]bool // the devices whose memory its context may reach
	extra       time.Duration // the sum of that of all operations so far
}

func (g *gpu) String() string { return fmt.Sprintf("device %d", g.ordinal) }

// of is what names are followed by where there are several devices: " of device 1".
func (d *Driver) of(g *gpu) string {
	if len(d.gpus) == 1 {
		return ""
	}
	return fmt.Sprintf(" of %s", g)
}

// onDevice calls f with the device of that ordinal.
func (d *Driver) onDevice(dev int32, f func(g *gpu) int32) int32 {
	if dev < 0 || int(dev) >= len(d.gpus) {
		return errInvalidDevice
	}
	return f(d.gpus[dev])
}

// current is the device whose context is current on the calling thread. It is nil
// where no context is current, or one that was destroyed. d.mu is held.
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

// here is the device of the call under way, which must be a call that needs a
// context. d.mu is held.
func (d *Driver) here() *gpu {
	t := d.thread()
	if t.gpu == nil { // the call is made although the devices were lost
		return d.gpus[0]
	}
	return t.gpu
}

// useRuntime is the first thing that a call of libcudart does. Where the thread has no context, it
// makes the primary context of device 0 current and holds it. A context that is current already
// belongs to whoever made it, who must also end it. Where there are several devices, a thread
// without a context is a fault, since its work goes to device 0 unasked. (cudaSetDevice is not
// emulated, as nobody calls it.) d.mu is held.
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

// makeContext makes the primary context where there is none. d.mu is held.
func (d *Driver) makeContext(g *gpu) {
	if g.context == 0 {
		g.context = d.keep(kindContext, g)
		g.used += d.opt.ContextMemory
	}
}

// releaseContext is cuDevicePrimaryCtxRelease. The last call ends the modules of
// the context, and the context too unless libcudart uses it.
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

// same reports whether the thing called what, which belongs to device of, and the
// thing called other, which belongs to g, are of one device. If not there is a
// fault that names both. Both are called "stream #1" and so on.
func (d *Driver) same(call, what string, of *gpu, other string, g *gpu) bool {
	if of != g {
		d.fault(Device, "%s: %s is of %s, and %s of %s", call, what, of, other, g)
	}
	return of == g
}

// own is same for the context that is current in the call under way. What belongs
// to a lost device may be given back from any context.
func (d *Driver) own(call, what string, of *gpu) bool {
	return d.lost || d.same(call, what, of, "the current context", d.here())
}

// Contexts are the ordinals of the devices that have a context.
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
