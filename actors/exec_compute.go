package actors

import (
	"fmt"

	"mt/device"
	"mt/layers"
	"mt/model"
)

// This file executes the launches of Compute.

func (r *run) execCompute(w work) error {
	res := r.res
	e, ok := w.do.(launch)
	if !ok { // passBatch
		res.compute.Notify(func(error) {
			if !r.hub.stopped.Load() {
				r.hub.done(computeID, w.done)
			}
		})
		return nil
	}
	l := e.p.Launches[e.Index]
	v := e.p.Visits[l.Visit]
	if e.Index == 0 {
		res.bindSaved(e.p.Batch)
	}
	if err := res.enqueue(e, l, v); err != nil {
		return launchError(e, v, err)
	}
	res.record(e, l, v)
	// A call that fails later is reported here and nowhere else: the first launch
	// whose notification brings an error is the one it belongs to.
	res.compute.Notify(func(err error) {
		if err != nil && !r.hub.stopped.Load() {
			r.hub.fail(computeID, launchError(e, v, err))
		}
	})
	if e.p.Check {
		return r.check(e, v)
	}
	return nil
}

func launchError(e launch, v Visit, err error) error {
	return fmt.Errorf("compute layer %d %s step %d: %w", v.Layer, v.Pass, e.p.Step, err)
}

// enqueue makes the compute stream wait for what a launch needs and work on it,
// and times both, unless it is an evaluation's.
func (r *resources) enqueue(e launch, l Launch, v Visit) error {
	var t *timeline
	if !e.p.Eval {
		t = r.clock.timeline(r.compute, e.p.Seq)
	}
	t.waited(e.Blocked)
	for _, w := range r.waits(e, v) {
		r.compute.Wait(w.event)
		t.waited(w.cause)
	}
	r.launch(e, l, v)
	t.worked()
	if e.p.Eval && e.Index+1 == len(e.p.Launches) {
		return r.clock.skip(r.compute)
	}
	return t.failed()
}

// wait is an event that a launch waits for, and what it stands for.
type wait struct {
	event device.Event
	cause Cause
}

// waits lists what a launch needs before it begins.
func (r *resources) waits(e launch, v Visit) []wait {
	var out []wait
	if e.WaitWeights {
		ready := r.batchReady
		switch v.Kind {
		case model.Head:
			ready = r.headReady
		case model.Block:
			ready = r.weightsReady[e.Weights]
		}
		out = append(out, wait{ready, e.Fetched})
	}
	if e.WaitIn {
		out = append(out, wait{r.actReady[e.In], StallActivation})
	}
	if e.WaitGr {
		out = append(out, wait{r.actReady[e.Gr], StallActivation})
	}
	if e.Out >= 0 {
		out = append(out, wait{r.actIdle[e.Out], StallActivation}) // its last spill has been read
	}
	if v.Grad() && e.First {
		out = append(out, wait{r.gradIdle[e.Grad], StallGradBuffer})
	}
	return out
}

// weights binds the parameters of a layer: in its slot, or in place.
func (r *resources) weights(layer, slot int) layers.Weights {
	layout := r.plan.Layouts[layer]
	if !r.dev.Unified() {
		mem := r.headSlot
		if layer != r.plan.Head() {
			mem = r.weightSlots[slot]
		}
		return layers.BindWeights(layout, mem)
	}
	st := r.o.Store.Layers
	return layers.BindInPlace(layout, r.dev, st[layer].Tile, st[0].Tile)
}

func (r *resources) activation(slot, tokens int) device.Tensor {
	return r.actSlots[slot].Tensor(r.plan.Spec.Act, 0, int64(tokens)*int64(r.plan.Spec.Config.HiddenSize))
}

// savedFor is the memory a block keeps for a micro-batch, if it keeps any.
func (r *resources) savedFor(layer, mb int) device.Mem {
	if len(r.saved) == 0 {
		return device.Mem{}
	}
	return r.saved[layer-1][mb]
}

// launch enqueues the template of one visit for one micro-batch.
func (r *resources) launch(e launch, l Launch, v Visit) {
	s, mb := r.compute.Stream, r.batch.micro[l.MicroBatch]
	losses := r.batch.losses.Slice(int64(r.batch.offset[l.MicroBatch]), int64(mb.Tokens))
	var in, out, gr device.Tensor
	if e.In >= 0 {
		in = r.activation(e.In, mb.Tokens)
	}
	if e.Out >= 0 {
		out = r.activation(e.Out, mb.Tokens)
	}
	if e.Gr >= 0 {
		gr = r.activation(e.Gr, mb.Tokens)
	}
	switch {
	case v.Kind == model.Embedding && v.Pass == Backward:
		rows := int64(mb.UniqueRows) * int64(r.plan.Spec.Config.HiddenSize)
		r.ops.EmbedBackward(s, r.gradMem(v.Layer, e.Grad).Tensor(device.F32, 0, rows), gr, mb, e.First)
	case v.Kind == model.Embedding:
		r.ops.EmbedForward(s, out, r.batch.rows, mb)
	case v.Kind == model.Head && v.Pass == Backward:
		w := r.weights(v.Layer, e.Weights)
		g := layers.BindGrads(r.plan.Layouts[v.Layer], r.gradMem(v.Layer, e.Grad))
		r.ops.HeadForwardBackward(s, w, g, gr, gr, losses, mb, r.workspace, supervisedScale(e.p.Batch), e.First)
	case v.Kind == model.Head:
		r.ops.HeadForward(s, r.weights(v.Layer, e.Weights), in, losses, mb, r.workspace)
	case v.Pass == Backward:
		w := r.weights(v.Layer, e.Weights)
		g := layers.BindGrads(r.plan.Layouts[v.Layer], r.gradMem(v.Layer, e.Grad))
		r.ops.BlockBackward(s, w, g, gr, in, mb, r.savedFor(v.Layer, l.MicroBatch), r.workspace, e.First)
	default:
		saved := device.Mem{}
		if v.Pass == Forward {
			saved = r.savedFor(v.Layer, l.MicroBatch)
		}
		r.ops.BlockForward(s, r.weights(v.Layer, e.Weights), out, in, mb, saved, r.workspace)
	}
}

// record marks, after a launch, what is ready now and what is idle again.
func (r *resources) record(e launch, l Launch, v Visit) {
	for _, slot := range []int{e.Out, e.Gr} {
		if slot >= 0 {
			r.compute.Record(r.actReady[slot])
		}
	}
	for _, slot := range []int{e.In, e.Out, e.Gr} {
		if slot >= 0 {
			r.compute.Record(r.actIdle[slot])
		}
	}
	if !e.Last {
		return
	}
	switch v.Kind {
	case model.Head:
		r.compute.Record(r.headIdle)
		r.compute.Record(r.lossReady)
	case model.Block:
		r.compute.Record(r.slotIdle[e.Weights])
	}
	if v.Grad() {
		r.compute.Record(r.gradReady[e.Grad])
	}
}

// check waits for a launch of a diagnosis and looks at its output.
func (r *run) check(e launch, v Visit) error {
	slot := e.Out
	if slot < 0 {
		return nil // the head: its losses tell
	}
	l := e.p.Launches[e.Index]
	n := r.res.activation(slot, e.p.Batch.MicroBatches[l.MicroBatch].Tokens)
	buf, err := r.res.dev.AllocHost(n.Mem().Bytes)
	if err != nil {
		return launchError(e, v, err)
	}
	defer r.res.dev.FreeHost(buf)
	r.res.compute.CopyD2H(buf, n.Mem())
	if err := r.res.compute.Sync(); err != nil {
		return launchError(e, v, err)
	}
	r.hub.tell(conductorID, ActivationChecked{Prog: e.p.Seq, Layer: v.Layer, MicroBatch: l.MicroBatch,
		Finite: allFinite(buf, r.res.plan.Spec.Act)})
	return nil
}

// allFinite looks at the exponents of fp32 or bf16 elements.
func allFinite(b []byte, dt device.DType) bool {
	step := int(dt.Size())
	for i := step; i <= len(b); i += step {
		if top := uint16(b[i-1])<<8 | uint16(b[i-2]); top&0x7f80 == 0x7f80 {
			return false
		}
	}
	return true
}
