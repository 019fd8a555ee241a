package appraise

import (
	"fmt"

	"mt/cudart/emu/ptx"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// Launch describes one kernel launch of an operation on one GPU, with its predicted times.
type Launch struct {
	Kernel    string
	Blocks    int
	Threads   int // per block
	Shared    int // bytes per block, static and dynamic
	Registers int // per thread
	Occupancy Occupancy
	Counts    ptx.Counts // of all blocks
	Memory    int64      // bytes of device memory that must move
	// Ran is the number of thread blocks that the emulator ran. The work of the other blocks is
	// interpolated. Deviation is the largest difference between a block that ran and its
	// interpolation, relative to the block's work.
	Ran       int
	Deviation float64
	Bound     []Busy
	Expected  float64 // seconds
}

// Operation is an operation at one shape, with the kernel launches that compute it.
type Operation struct {
	Name, Shape string
	DType       device.DType
	FLOPs       float64
	Bytes       int64 // bytes that it must move, as device/op counts them
	Launches    []Launch
}

// Count counts the work of all launches of the case c on the GPU g, and predicts their times.
func Count(c *Case, g *GPU) (*Operation, error) {
	r := newRig()
	r.sm90a, r.shared, r.sms = g.Arch.Name == "sm_90", g.Arch.SharedOfBlock(), g.SMs
	o := c.make(r)
	out := &Operation{Name: c.Name, Shape: c.Shape, DType: c.DType}
	if w, ok := o.(op.Worker); ok {
		_, out.FLOPs = w.Work()
	}
	if m, ok := o.(op.Mover); ok {
		out.Bytes = m.Bytes()
	}
	if o.Name() != c.Name {
		return nil, fmt.Errorf("appraise: a case of %s makes %s", c.Name, o.Name())
	}
	if err := r.take(o); err != nil {
		return nil, fmt.Errorf("appraise: %w", err)
	}
	for i := range r.launches {
		l, err := c.count(r, &r.launches[i], g)
		if err != nil {
			return nil, err
		}
		out.Launches = append(out.Launches, *l)
	}
	return out, nil
}

func (c *Case) count(r *rig, l *launch, g *GPU) (*Launch, error) {
	heads, repeats := 1, 1
	if c.alike != nil {
		heads, repeats = c.alike(l.kernel.Name)
	}
	if c.marks != nil {
		l.marks = c.marks(l.kernel.Name)
	}
	s := &sample{rig: r, launch: l, heads: heads, repeats: repeats, once: c.once}
	if err := s.take(); err != nil {
		return nil, err
	}
	use, err := kernels.UseOn(l.kernel.Name, g.Arch.Name)
	if err != nil {
		return nil, fmt.Errorf("appraise: %w", err)
	}
	out := &Launch{Kernel: l.kernel.Name, Blocks: l.blocks(), Threads: l.threads(), Shared: use.Static + l.shared, Registers: use.Registers,
		Counts: s.counts(), Ran: len(s.ran), Deviation: s.worst}
	out.Memory = s.memory(&out.Counts)
	out.Occupancy = g.Arch.Occupancy(Block{Threads: out.Threads, Registers: out.Registers, Shared: out.Shared})
	if out.Occupancy.Blocks == 0 {
		return nil, fmt.Errorf("appraise: %s: %s has no room for a block of %d threads, %d registers and %d bytes", out.Kernel, g.Name, out.Threads, out.Registers, out.Shared)
	}
	out.Bound = g.Bound(Work{Counts: out.Counts, Memory: out.Memory})
	traced := s.typical()
	trace, err := s.trace(traced)
	if err != nil {
		return nil, err
	}
	out.Expected = g.Expected(Replay{Kernel: l.kernel, Trace: trace, Resident: out.Occupancy.Blocks,
		Miss: float64(out.Memory) / max(float64(moved(&out.Counts)), 1)}, s.weights(traced))
	return out, nil
}

// Roofline returns the least time of the operation on g in seconds, whatever the kernels: the time
// of the FLOPs at the datasheet's peak, or of moving the bytes at the memory's rate if that takes
// longer.
func (o *Operation) Roofline(g *GPU) float64 {
	return max(o.FLOPs/g.Arithmetic(o.DType == device.BF16), float64(o.Bytes)/(g.Peak*1e9))
}
