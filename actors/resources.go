package actors

import (
	"errors"
	"fmt"

	"mt/data"
	"mt/device"
	"mt/host"
	"mt/layers"
	"mt/model"
	"mt/plan"
)

// resources are the buffers, streams and events of one run. Everything is
// allocated before the first step, in the sizes that package plan gives.
type resources struct {
	o                 *Options
	plan              *plan.Run
	kinds             []model.LayerKind
	names             []string // of layers, to people
	dev               device.Device
	ops               *layers.Templates
	h2d, compute, d2h *countedStream

	weightSlots []device.Mem // none when unified
	headSlot    device.Mem   // none when unified or where the head is in parts
	gradBufs    []device.Mem
	narrow      device.Mem // bf16 image of a gradient on its way to the host
	actSlots    []device.Mem
	saved       [][]device.Mem // by layer, by micro-batch of the program in progress
	savedMem    []device.Mem   // by layer, none where it keeps nothing
	workspace   device.Mem
	batch       batchSlot
	experts     experts

	slabs    []*host.Arena
	spills   []byte // on the host, for activations without a slot
	lossHost []byte

	weightsReady, slotIdle []device.Event
	headReady, headIdle    device.Event
	batchReady             device.Event
	gradReady, gradIdle    []device.Event
	actReady, actIdle      []device.Event
	lossReady              device.Event
	travelled              expertTraffic
	clock                  *clock

	closers []func()
	late    error // of closing
}

// newResources allocates what o needs; on an error nothing stays allocated.
func newResources(o *Options) (_ *resources, err error) {
	r := &resources{o: o, plan: o.Plan, dev: o.Device}
	for _, l := range o.Plan.Layouts {
		r.kinds = append(r.kinds, l.Kind)
	}
	for l := range r.kinds {
		r.names = append(r.names, layerName(r.kinds, l))
	}
	defer func() {
		if err != nil {
			_ = r.close() // err came first
		}
	}()
	for _, step := range []func() error{r.openStreams, r.allocWeights, r.allocGrads, r.allocActivations, r.allocExperts, r.allocBatch, r.makeTemplates, r.makeEvents} {
		if err = step(); err != nil {
			return nil, fmt.Errorf("prepare the pipeline: %w", err)
		}
	}
	return r, nil
}

// close gives everything back, in reverse order. The error is the first of a
// stream: what a stream met after the last notification that was looked at.
func (r *resources) close() error {
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
	r.closers = nil
	return r.late
}

func (r *resources) onClose(f func()) { r.closers = append(r.closers, f) }

func (r *resources) alloc(p device.Purpose, bytes int64) (device.Mem, error) {
	m, err := r.dev.Alloc(p, max(bytes, device.Align))
	if err == nil {
		r.onClose(func() { r.dev.Free(m) })
	}
	return m, err
}

func (r *resources) allocN(p device.Purpose, n int, bytes int64) ([]device.Mem, error) {
	out := make([]device.Mem, n)
	for i := range out {
		m, err := r.alloc(p, bytes)
		if err != nil {
			return nil, err
		}
		out[i] = m
	}
	return out, nil
}

func (r *resources) allocHost(bytes int64) ([]byte, error) {
	b, err := r.dev.AllocHost(max(bytes, device.Align))
	if err == nil {
		r.onClose(func() { r.dev.FreeHost(b) })
	}
	return b, err
}

func (r *resources) openStreams() error {
	for _, s := range []struct {
		name string
		to   **countedStream
	}{{"h2d", &r.h2d}, {"compute", &r.compute}, {"d2h", &r.d2h}} {
		st, err := r.dev.NewStream(s.name)
		if err != nil {
			return err
		}
		*s.to = &countedStream{Stream: st}
		r.onClose(func() {
			if err := st.Close(); r.late == nil {
				r.late = err
			}
		})
	}
	return nil
}

// allocWeights makes the weight slots, or registers nothing but binds tiles in
// place on a unified device.
func (r *resources) allocWeights() (err error) {
	if r.dev.Unified() {
		return nil
	}
	for _, l := range r.o.Store.Layers {
		if len(l.Tile) == 0 {
			continue
		}
		if err := r.dev.Register(l.Tile); err != nil {
			return err
		}
		r.onClose(func() { r.dev.Unregister(l.Tile) })
	}
	if r.weightSlots, err = r.allocN(device.ForWeights, r.plan.Depths.WeightSlots, r.plan.SlotBytes()); err != nil {
		return err
	}
	if bytes := r.plan.HeadSlotBytes(); bytes > 0 {
		r.headSlot, err = r.alloc(device.ForWeights, bytes)
	}
	return err
}

// allocGrads makes gradient buffers and slabs; an evaluation has none.
func (r *resources) allocGrads() (err error) {
	p := r.plan
	if p.EvalOnly {
		return nil
	}
	if !p.GradsInPlace() {
		if r.gradBufs, err = r.allocN(device.ForGradients, p.Depths.GradBuffers, 4*p.BufferElems()); err != nil {
			return err
		}
	}
	if p.GradBF16 {
		if r.narrow, err = r.alloc(device.ForGradients, 2*p.BufferElems()); err != nil {
			return err
		}
	}
	for _, bytes := range p.SlabBytes() {
		a, err := host.NewArena(host.ForGradSlabs, bytes, r.o.Pool)
		if err != nil {
			return err
		}
		r.onClose(func() { _ = a.Close() })
		if err := r.dev.Register(a.Bytes()); err != nil {
			return err
		}
		r.onClose(func() { r.dev.Unregister(a.Bytes()) })
		r.slabs = append(r.slabs, a)
	}
	return nil
}

// gradMem is where the gradient of a layer is summed: a buffer, or in place the
// layer's slab. No slab is written before its layer's update has read it: the
// layer's next backward comes after that update.
func (r *resources) gradMem(layer, buf int) device.Mem {
	if r.plan.GradsInPlace() {
		return r.dev.BindHost(r.slabs[layer].Bytes())
	}
	return r.gradBufs[buf]
}

func (r *resources) allocActivations() (err error) {
	p := r.plan
	slot := p.ActivationBytes(p.Limits.MicroBatchTokens)
	if r.actSlots, err = r.allocN(device.ForActivations, p.Depths.ActivationSlots, slot); err != nil {
		return err
	}
	if r.workspace, err = r.alloc(device.ForWorkspace, p.WorkspaceBytes()); err != nil {
		return err
	}
	r.savedMem = make([]device.Mem, len(p.Layouts))
	for l := range p.Layouts {
		if bytes := p.SavedBytes(l); bytes > 0 {
			if r.savedMem[l], err = r.alloc(device.ForSaved, bytes); err != nil {
				return err
			}
		}
	}
	if bytes := p.SpillBytes(); bytes > 0 {
		r.spills, err = r.allocHost(bytes)
	}
	return err
}

// makeTemplates puts the rotary tables on the device and binds the templates to
// them.
func (r *resources) makeTemplates() error {
	c := r.plan.Spec.Config
	cos, sin := c.RopeTables(r.plan.Spec.Positions)
	spec := r.plan.Spec
	for _, t := range []struct {
		values []float32
		to     *device.Tensor
	}{{cos, &spec.Cos}, {sin, &spec.Sin}} {
		bytes := 4 * int64(len(t.values))
		staging, err := r.dev.AllocHost(bytes)
		if err != nil {
			return err
		}
		putFloats(staging, t.values)
		m, err := r.alloc(device.ForTables, bytes)
		if err == nil {
			*t.to = m.Tensor(device.F32, 0, int64(len(t.values)))
			r.h2d.Stream.CopyH2D(t.to.Mem(), staging[:bytes])
			err = r.h2d.Sync()
		}
		r.dev.FreeHost(staging)
		if err != nil {
			return err
		}
	}
	r.ops = layers.New(spec, r.dev.Ops())
	return nil
}

// bindSaved cuts the layers' saved memory for the micro-batches of b.
func (r *resources) bindSaved(b *data.Batch) {
	r.saved = r.saved[:0]
	for l, m := range r.savedMem {
		if m.Bytes == 0 {
			r.saved = append(r.saved, nil)
			continue
		}
		var off int64
		cut := make([]device.Mem, len(b.MicroBatches))
		for i, mb := range b.MicroBatches {
			n := r.plan.Spec.SavedBytes(r.plan.Layouts[l].Kind, mb.Tokens)
			cut[i] = m.Slice(off, n)
			off += (n + device.Align - 1) / device.Align * device.Align
		}
		r.saved = append(r.saved, cut)
	}
}

func (r *resources) makeEvents() (err error) {
	events := func(n int) []device.Event {
		out := make([]device.Event, n)
		for i := range out {
			if err != nil {
				return out
			}
			var e device.Event
			if e, err = r.dev.NewEvent(); err == nil {
				out[i] = e
				r.onClose(e.Close)
			}
		}
		return out
	}
	d := r.plan.Depths
	r.weightsReady, r.slotIdle = events(d.WeightSlots), events(d.WeightSlots)
	r.gradReady, r.gradIdle = events(d.GradBuffers), events(d.GradBuffers)
	r.actReady, r.actIdle = events(d.ActivationSlots), events(d.ActivationSlots)
	one := events(4)
	r.headReady, r.headIdle, r.batchReady, r.lossReady = one[0], one[1], one[2], one[3]
	if r.plan.Experts > 0 {
		r.experts.ready = events(1)[0]
	}
	r.clock = newClock(r.dev)
	r.onClose(r.clock.close)
	return err
}

// drain waits until the device has done all that was enqueued.
func (r *resources) drain() error {
	return errors.Join(r.h2d.Sync(), r.compute.Sync(), r.d2h.Sync())
}
