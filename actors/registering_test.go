package actors

import (
	"errors"
	"slices"
	"testing"

	"mt/device"
)

// registrar is a device that records the sizes of the memory registered with it, and how the
// registration ends.
type registrar struct {
	device.Device
	sizes []int
	ends  []string
}

func (r *registrar) Register(memory ...[]byte) error {
	for _, b := range memory {
		r.sizes = append(r.sizes, len(b))
	}
	return r.Device.Register(memory...)
}

func (r *registrar) Unregister(memory ...[]byte) {
	r.ends = append(r.ends, "unregister")
	r.Device.Unregister(memory...)
}

// LeavePinned imitates the optional method of package cuda's device, which leaves host memory
// pinned because the process ends.
func (r *registrar) LeavePinned() { r.ends = append(r.ends, "leave") }

// TestRegistering: a run registers host memory in this order: tiles by layer, memory for
// activations, gradient slabs. If the process is about to end, the run tells the device to leave
// memory pinned (LeavePinned) before it unregisters the memory.
func TestRegistering(t *testing.T) {
	for leave, want := range map[bool][]string{false: {"unregister"}, true: {"leave", "unregister"}} {
		tr := small()
		tr.evalSteps = 0
		var r *registrar
		tr.wrap = func(d device.Device) device.Device {
			r = &registrar{Device: d}
			return r
		}
		ended := errors.New("not called")
		tr.leave = func(err error) bool {
			ended = err
			return leave
		}
		mustRun(t, tr)
		p := tr.plan(tr.config())
		var sizes []int
		for _, l := range p.Layouts {
			sizes = append(sizes, int(l.TileBytes))
		}
		sizes = append(sizes, int(p.ScratchBytes()), int(p.SpillBytes()))
		for _, bytes := range p.SlabBytes() {
			sizes = append(sizes, int(bytes))
		}
		sizes = slices.DeleteFunc(sizes, func(n int) bool { return n == 0 })
		if !slices.Equal(r.sizes, sizes) || ended != nil || !slices.Equal(r.ends, want) {
			t.Errorf("leave %v: registered %v, want %v; asked with %v, ends with %q", leave, r.sizes, sizes, ended, r.ends)
		}
	}
}
