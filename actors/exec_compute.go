package actors

import (
	"fmt"

	"mt/device"
	"mt/layers"
	"mt/schedule"
)

// This file executes the launches of Compute.

func (r *run) execCompute(w work) error {
	res := r.res
	e, ok := w.do.(launch)
	if !ok { // passBatch
		res.compute.Notify(func(err error) {
			switch {
			case r.hub.stopped.Load():
			case err != nil: // of waiting, at the latest
				r.hub.fail(computeID, fmt.Errorf("compute: %w", err))
			default:
				r.hub.done(computeID, w.done)
			}
		})
		return nil
	}
	l := e.p.Launches[e.Index]
	v := e.p.Visits[l.Visit]
	if e.Index == 0 {
		res.bindSaved(e.p.Batch)
		res.beginExperts(e.p)
	}
	marks, err := res.enqueue(e, l, v)
	if err != nil {
		return res.launchError(e, v, err)
	}
	res.record(e, l, v)
	// A call that fails later is reported here and nowhere else: the first launch
	// whose notification brings an error is the one it belongs to.
	res.compute.Notify(func(err error) {
		switch {
		case r.hub.stopped.Load():
		case err != nil:
			r.hub.fail(computeID, res.launchError(e, v, err))
		default:
			res.clock.passed(e.p.Seq, marks)
		}
	})
	if e.p.Check {
		return r.check(e, v)
	}
	return nil
}

func (r *resources) launchError(e launch, v schedule.Visit, err error) error {
	return fmt.Errorf("compute %s %s step %d: %w", r.names[v.Layer], v.Phase, e.p.Step, err)
}

// enqueue makes the compute stream wait for what a launch needs and work on it,
// and times both, unless it is an evaluation's: marks are those of the program's
// timeline so far.
func (r *resources) enqueue(e launch, l schedule.Launch, v schedule.Visit) (marks int, err error) {
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
		return 0, r.clock.skip(r.compute)
	}
	return t.soFar(), t.failed()
}

// wait is an event that a launch waits for, and what it stands for.
type wait struct {
	event device.Event
	cause Cause
}

// waits lists what a launch needs before it begins. The slot of its output is no
// part of it: what used it last was of this stream, or a spill that has landed.
func (r *resources) waits(e launch, v schedule.Visit) []wait {
	var out []wait
	if e.WaitWeights {
		ready := r.batchReady
		if e.Weights >= 0 {
			ready = r.weights[e.Weights].ready
		}
		out = append(out, wait{ready, e.Fetched})
	}
	if e.WaitIn {
		out = append(out, wait{r.acts[e.In].ready, StallActivation})
	}
	if e.WaitGr {
		out = append(out, wait{r.acts[e.Gr].ready, StallActivation})
	}
	if v.Grad() && e.First {
		out = append(out, wait{r.gradBufs[e.Grad].idle, StallGradBuffer})
	}
	return out
}

// weightsOf views the parameters of a visit. An idle expert's gradient needs none.
func (r *resources) weightsOf(v schedule.Visit, slot int) layers.Weights {
	if slot < 0 {
		return nil
	}
	return r.place.weights(r.tiles[v.Tile], r.weights[slot])
}

// gradsOf views the gradient of a visit.
func (r *resources) gradsOf(v schedule.Visit, buf int) layers.Grads {
	return r.grads.grads(r.tiles[v.Tile], buf)
}

func (r *resources) shard(v schedule.Visit) layers.Shard { return r.plan.Spec.Shard(v.Part) }

func (r *resources) activation(slot, tokens int) device.Tensor {
	return r.acts[slot].mem.Tensor(r.plan.Spec.Act, 0, int64(tokens)*int64(r.plan.Spec.Config.HiddenSize))
}

// savedFor is the memory a layer keeps for a micro-batch, if it keeps any.
func (r *resources) savedFor(layer, mb int) device.Mem {
	if len(r.saved[layer]) == 0 {
		return device.Mem{}
	}
	return r.saved[layer][mb]
}

// launch enqueues the template of one visit for one micro-batch.
func (r *resources) launch(e launch, l schedule.Launch, v schedule.Visit) {
	if v.Stage == schedule.Expert {
		r.launchExpert(e, v)
		return
	}
	mb := r.batch.micro[l.MicroBatch]
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
	switch v.Stage {
	case schedule.Embed:
		r.launchEmbedding(e, v, out, gr, mb)
	case schedule.Head, schedule.HeadPart:
		r.launchHead(e, l, v, in, out, gr)
	case schedule.Route, schedule.Join:
		r.launchRouter(e, l, v, in, out, gr)
	default:
		r.launchBlock(e, l, v, in, out, gr)
	}
}

// launchEmbedding enqueues the embedding's template.
func (r *resources) launchEmbedding(e launch, v schedule.Visit, out, gr device.Tensor, mb layers.MicroBatch) {
	s := r.compute.Stream
	if v.Phase != schedule.Backward {
		r.ops.EmbedForward(s, out, r.batch.rows, mb)
		return
	}
	rows := int64(mb.UniqueRows) * int64(r.plan.Spec.Config.HiddenSize)
	r.ops.EmbedBackward(s, r.grads.mem(v.Layer, e.Grad).Tensor(device.F32, 0, rows), gr, mb, e.First)
}

// launchBlock enqueues the template of a block, or of the attention of one with
// experts.
func (r *resources) launchBlock(e launch, l schedule.Launch, v schedule.Visit, in, out, gr device.Tensor) {
	s, mb, w := r.compute.Stream, r.batch.micro[l.MicroBatch], r.weightsOf(v, e.Weights)
	saved := device.Mem{}
	if v.Phase != schedule.Evaluate {
		saved = r.savedFor(v.Layer, l.MicroBatch)
	}
	attention, block := v.Stage == schedule.Attention, r.plan.Layouts[v.Layer].Block
	switch {
	case v.Phase == schedule.Backward && attention:
		r.ops.AttentionBackward(s, block, w, r.gradsOf(v, e.Grad), gr, in, mb, saved, r.workspace, e.First)
	case v.Phase == schedule.Backward:
		r.ops.BlockBackward(s, block, w, r.gradsOf(v, e.Grad), gr, in, mb, saved, r.workspace, e.First)
	case attention:
		r.ops.AttentionForward(s, block, w, out, in, mb, saved, r.workspace)
	default:
		r.ops.BlockForward(s, block, w, out, in, mb, saved, r.workspace)
	}
}

// launchHead enqueues the head's template, whole or of one part. The gradient
// of a head in parts is out where the first part makes it, later gr.
func (r *resources) launchHead(e launch, l schedule.Launch, v schedule.Visit, in, out, gr device.Tensor) {
	s, mb, w := r.compute.Stream, r.batch.micro[l.MicroBatch], r.weightsOf(v, e.Weights)
	at, n := int64(r.batch.offset[l.MicroBatch]), int64(mb.Tokens)
	losses, scale := r.batch.losses.Slice(at, n), supervisedScale(e.p.Batch)
	switch {
	case v.Stage == schedule.HeadPart && v.Phase == schedule.Backward:
		dx := out
		if !v.FirstPart() {
			dx = gr
		}
		r.ops.HeadShardBackward(s, w, r.gradsOf(v, e.Grad), dx, in, r.batch.lse.Slice(at, n), mb, r.workspace, scale, r.shard(v),
			e.First, v.FirstPart(), v.LastPart())
	case v.Stage == schedule.HeadPart:
		r.ops.HeadShardForward(s, w, in, losses, r.batch.lse.Slice(at, n), mb, r.workspace, r.shard(v), v.FirstPart(), v.LastPart())
	case v.Phase == schedule.Backward:
		r.ops.HeadForwardBackward(s, w, r.gradsOf(v, e.Grad), gr, gr, losses, mb, r.workspace, scale, e.First)
	default:
		r.ops.HeadForward(s, w, in, losses, mb, r.workspace)
	}
}

// record marks, after a launch, what is ready now and what is idle again.
func (r *resources) record(e launch, l schedule.Launch, v schedule.Visit) {
	for _, slot := range []int{e.Out, e.Gr} {
		if slot >= 0 {
			r.compute.Record(r.acts[slot].ready)
		}
	}
	for _, slot := range []int{e.In, e.Out, e.Gr} {
		if slot >= 0 {
			r.compute.Record(r.acts[slot].idle)
		}
	}
	if !e.Last {
		return
	}
	if v.Stage == schedule.Route && v.Phase != schedule.Backward {
		r.compute.Record(r.experts.ready)
	}
	if e.Weights >= 0 {
		r.compute.Record(r.weights[e.Weights].idle)
	}
	if v.Loss {
		r.compute.Record(r.lossReady)
	}
	if v.Grad() {
		r.compute.Record(r.gradBufs[e.Grad].ready)
	}
}

// check waits for a launch of a diagnosis and looks at its output.
func (r *run) check(e launch, v schedule.Visit) error {
	slot := e.Out
	if slot < 0 {
		return nil // the head: its losses tell
	}
	l := e.p.Launches[e.Index]
	n := r.res.activation(slot, e.p.Batch.MicroBatches[l.MicroBatch].Tokens)
	buf, err := r.res.dev.AllocHost(n.Mem().Bytes)
	if err != nil {
		return r.res.launchError(e, v, err)
	}
	defer r.res.dev.FreeHost(buf)
	r.res.compute.CopyD2H(buf, n.Mem())
	if err := r.res.compute.Sync(); err != nil {
		return r.res.launchError(e, v, err)
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
