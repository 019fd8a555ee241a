package actors

import (
	"mt/device"
	"mt/device/op"
	"mt/layers"
	"mt/schedule"
)

// This file enqueues what a launch computes: the template of its visit's stage, bound to
// the weights, gradients and activations of the launch.

// weightsOf views the weights of a visit in their slot; slot is −1 where there are none,
// as for the gradient of an idle expert on demand.
func (r *lane) weightsOf(v schedule.Visit, slot int) layers.Weights {
	if slot < 0 {
		return nil
	}
	s := r.weights[slot]
	return s.place.weights(r.tiles[v.Tile], s)
}

// gradsOf views the gradient of a visit's tile, which is summed in gradient buffer buf.
func (r *lane) gradsOf(v schedule.Visit, buf int) layers.Grads {
	if !v.Grad() {
		return nil // the tile is frozen
	}
	return r.gradPlace(v.Layer).grads(r.tiles[v.Tile], buf)
}

func (r *lane) shard(v schedule.Visit) layers.Shard { return r.plan.Spec.Shard(v.Part) }

// hidden is the hidden state of so many tokens in a slot; slot is −1 where there is none.
func (r *lane) hidden(slot, tokens int) layers.Hidden {
	switch {
	case slot < 0:
		return layers.Hidden{}
	case r.plan.Spec.OnHost:
		return layers.Hidden{Host: r.acts[slot].host[:r.plan.ActivationBytes(tokens)]}
	}
	return layers.OnDevice(r.acts[slot].mem.Tensor(r.plan.Spec.Act, 0, int64(tokens)*int64(r.plan.Spec.Config.HiddenSize)))
}

// savedFor is the memory in which a layer keeps what its backward of micro-batch mb
// reads; none where it keeps nothing.
func (r *lane) savedFor(layer, mb int) device.Mem {
	if len(r.saved[layer]) == 0 {
		return device.Mem{}
	}
	return r.saved[layer][mb]
}

// stage enqueues the template of one launch: of one micro-batch, or of an expert.
func (r *lane) stage(e enqueue, l schedule.Launch, v schedule.Visit) {
	if v.Stage == schedule.Expert {
		r.stageExpert(e, v)
		return
	}
	mb := r.batches[e.Batch].micro[l.MicroBatch]
	in, out, gr := r.hidden(e.In, mb.Tokens), r.hidden(e.Out, mb.Tokens), r.hidden(e.Gr, mb.Tokens)
	switch v.Stage {
	case schedule.Embed:
		r.stageEmbedding(e, v, out, gr, mb)
	case schedule.Positions:
		r.stagePositions(e, v, in, out, gr, mb)
	case schedule.Head, schedule.HeadPart:
		r.stageHead(e, l, v, in, out, gr)
	case schedule.Route, schedule.Join:
		r.stageRouter(e, l, v, in.Dev, out.Dev, gr.Dev)
	default:
		r.stageBlock(e, l, v, in, out, gr)
	}
}

// stageEmbedding enqueues the embedding's template.
func (r *lane) stageEmbedding(e enqueue, v schedule.Visit, out, gr layers.Hidden, mb layers.MicroBatch) {
	s := r.compute.Stream
	if v.Phase != schedule.Backward {
		step := 0 // an evaluation has no noise
		if v.Phase == schedule.Forward {
			step = e.p.Batch.Step
		}
		r.ops.EmbedForward(s, out, r.batches[e.Batch].rows, mb, step, r.workspace)
		return
	}
	rows := int64(mb.UniqueRows) * int64(r.plan.Spec.Config.HiddenSize)
	r.ops.EmbedBackward(s, r.gradPlace(v.Layer).mem(v.Layer, e.Grad).Tensor(device.F32, 0, rows), gr, mb, r.workspace, e.First)
}

// stagePositions enqueues the template of learned positions.
func (r *lane) stagePositions(e enqueue, v schedule.Visit, in, out, gr layers.Hidden, mb layers.MicroBatch) {
	if v.Phase != schedule.Backward {
		r.ops.PositionsForward(r.compute.Stream, r.weightsOf(v, e.Weights), out, in, mb, r.workspace)
		return
	}
	r.ops.PositionsBackward(r.compute.Stream, r.gradsOf(v, e.Grad), gr, mb, r.workspace, e.First)
}

// stageBlock enqueues the template of a block, or of the attention of a block with
// experts.
func (r *lane) stageBlock(e enqueue, l schedule.Launch, v schedule.Visit, in, out, gr layers.Hidden) {
	s, mb, w := r.compute.Stream, r.batches[e.Batch].micro[l.MicroBatch], r.weightsOf(v, e.Weights)
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

// stageHead enqueues the template of a whole head or of one of its parts. In the backward
// of a head in parts the first part writes the gradient of the head's input to out; the
// parts after it add to the same gradient, which is then gr.
func (r *lane) stageHead(e enqueue, l schedule.Launch, v schedule.Visit, in, out, gr layers.Hidden) {
	s, mb, w := r.compute.Stream, r.batches[e.Batch].micro[l.MicroBatch], r.weightsOf(v, e.Weights)
	at, n := int64(r.batches[e.Batch].offset[l.MicroBatch]), int64(mb.Tokens)
	losses, scale := r.batches[e.Batch].losses.Slice(at, n), r.lossScale(e.p.Batch)
	switch {
	case v.Stage == schedule.HeadPart && v.Phase == schedule.Backward:
		dx := out
		if !v.FirstPart() {
			dx = gr
		}
		r.ops.HeadShardBackward(s, w, r.gradsOf(v, e.Grad), dx, in, losses, r.batches[e.Batch].lse.Slice(at, n), mb, r.workspace, scale, r.shard(v),
			e.First, v.FirstPart(), v.LastPart())
	case v.Stage == schedule.HeadPart:
		var terms op.LossTerms
		if v.Phase != schedule.Evaluate {
			terms = r.plan.Spec.Terms
		}
		r.ops.HeadShardForward(s, w, in, losses, r.batches[e.Batch].lse.Slice(at, n), mb, r.workspace, r.shard(v), terms, v.FirstPart(), v.LastPart())
	case v.Phase == schedule.Backward:
		r.ops.HeadForwardBackward(s, w, r.gradsOf(v, e.Grad), gr, gr, losses, mb, r.workspace, scale, e.First)
	default:
		r.ops.HeadForward(s, w, in, losses, mb, r.workspace)
	}
}

// stageExpert enqueues the template of an expert, for all micro-batches.
func (r *lane) stageExpert(e enqueue, v schedule.Visit) {
	s, st, w := r.compute.Stream, r.experts.state, r.weightsOf(v, e.Weights)
	if v.Phase == schedule.Backward {
		r.ops.ExpertBackward(s, w, r.gradsOf(v, e.Grad), st, e.From, e.Pairs, r.workspace)
		return
	}
	r.ops.ExpertForward(s, w, st, e.From, e.Pairs, r.workspace)
}

// stageRouter enqueues the template of a visit to part 0 of a layer with
// experts.
func (r *lane) stageRouter(e enqueue, l schedule.Launch, v schedule.Visit, in, out, gr device.Tensor) {
	s, st, ws := r.compute.Stream, r.experts.state, r.workspace
	mb, at := r.batches[e.Batch].micro[l.MicroBatch], r.batches[e.Batch].offset[l.MicroBatch]
	switch {
	case v.Stage == schedule.Route && v.Phase == schedule.Backward:
		r.ops.MoERouteAgain(s, r.weightsOf(v, e.Weights), gr, in, at, mb, st, ws)
	case v.Stage == schedule.Route:
		if e.First && r.balances(e.p) {
			r.compute.Zero(st.ProbSum.Mem())
		}
		r.ops.MoERoute(s, r.weightsOf(v, e.Weights), in, at, mb, st, ws, !r.balances(e.p))
	case v.Phase == schedule.Backward:
		r.ops.MoERouteBackward(s, r.weightsOf(v, e.Weights), r.gradsOf(v, e.Grad), gr, in, at, mb, st, ws, e.First, r.auxScale(e.p.Batch))
	default:
		r.ops.MoECombine(s, out, at, mb, st)
	}
	if v.Stage == schedule.Route && e.Last {
		r.ops.MoESort(s, st, int(e.p.Batch.Tokens), v.Phase != schedule.Backward && r.balances(e.p))
	}
}
