package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/layers/schedule"
	"mt/model"
)

// headKind is the kind of the head, whole or in parts that are ranges of the vocabulary.
type headKind struct{ plainKind }

// Stages returns one visit for a whole head, which in training computes the gradient too. A head in parts has one
// sweep over its parts for the losses. In training a second sweep in reverse computes the gradient, starting with the
// tiles that the first sweep left in slots.
func (h headKind) Stages(s Spec, _ model.Layout) schedule.Layer {
	parts := s.Shards()
	out := schedule.Layer{Tiles: parts, Sweeps: parts, Lanes: s.HeadLanes, Class: h.Class(s)}
	if parts == 1 {
		out.Backward = []schedule.Visit{{Stage: schedule.Head, Parts: 1, Uses: schedule.Weights | schedule.AccumulatesGrad | schedule.UpdatesGradInPlace, Loss: true}}
		out.Evaluate = []schedule.Visit{{Stage: schedule.Head, Parts: 1, Uses: schedule.Weights | schedule.Input, Loss: true}}
		return out
	}
	for k := range parts {
		out.Forward = append(out.Forward, schedule.Visit{Stage: schedule.HeadPart, Part: k, Parts: parts, Turn: k,
			Uses: schedule.Weights | schedule.Input, Loss: k == parts-1})
	}
	out.Evaluate = out.Forward
	grad := schedule.AllocatesGrad
	for k := parts - 1; k >= 0; k-- {
		out.Backward = append(out.Backward, schedule.Visit{Stage: schedule.HeadPart, Part: k, Parts: parts, Turn: k,
			Uses: schedule.Weights | schedule.AccumulatesGrad | schedule.Input | grad})
		grad = schedule.UpdatesGradInPlace
	}
	return out
}

func (headKind) Class(s Spec) schedule.Class {
	if s.Shards() > 1 {
		return schedule.Streamed
	}
	return schedule.Whole
}

func (headKind) Parts(s Spec, _ model.Layout) int { return s.Shards() }

// Part returns part k of the head: the norm, and the part's rows of lm_head and of the bias. The rows of a tied head
// are in the embedding's tile. Every part has the norm, but only part 0, the last in the backward, brings the norm's
// gradient.
func (h headKind) Part(s Spec, l model.Layout, k int) Tile {
	if s.Shards() == 1 {
		return h.plainKind.Part(s, l, k)
	}
	t := Tile{Layer: l.Index, Part: k, Layout: s.ShardLayout(l, k)}
	for _, to := range t.Layout.Tensors {
		whole := l.Tensor(to.Role)
		from := Copy{Layer: t.Layer, From: whole.TileOff, To: to.TileOff, Bytes: to.TileBytes()}
		if whole.Ref {
			from.Layer, from.From = 0, 0 // the table is the embedding tile's only tensor
		}
		grad := Range{From: to.Elem, To: whole.Elem, Elems: to.Elems()}
		rows := ofVocabulary(to.Role)
		if rows {
			first := int64(s.Shard(k).From)
			from.From += first * (whole.TileBytes() / int64(whole.Rows))
			grad.To += first * int64(whole.Cols)
		}
		t.Copies = append(t.Copies, from)
		if !to.Frozen && (rows || k == 0) {
			t.Grad = append(t.Grad, grad)
		}
	}
	return t
}

func (headKind) Largest(s Spec, _ model.Layout) []int { return []int{s.LargestShard()} }

// Activations returns 1 for a whole head, which turns its input into the gradient, and 2 for a head in parts, which
// needs both.
func (headKind) Activations(s Spec) int { return min(2, s.Shards()) }

func (headKind) WorkspaceBytes(s Spec, _ bool) int64 { return s.HeadBytes() }

func (h headKind) Launch(t *Templates, x *Launch) {
	n := t.spec.Config.Streams()
	mb := x.forHead(n)
	switch {
	case x.Visit.Stage == schedule.HeadPart:
		h.launchPart(t, x)
	case x.Visit.Phase == schedule.Backward:
		in := x.In
		if in.None() {
			in = x.Grad
		}
		t.HeadForwardBackward(x.Stream, x.Weights, x.Grads, x.Grad, in, x.losses(n), mb, x.Workspace, x.Scale, x.First)
	case x.Visit.Phase == schedule.Generate:
		t.HeadLogits(x.Stream, x.Weights, x.Logits, x.In.Dev, 1, x.Workspace)
	default:
		t.HeadForward(x.Stream, x.Weights, x.In, x.losses(n), mb, x.Workspace)
	}
}

// launchPart launches a part of the head. In the backward the first part writes the gradient of the head's input to
// Out. Later parts add to that gradient, which they get as Grad.
//
// Each lane has the sums over the parts in the batch's memory. A part that follows one on another lane reads them behind
// its input or gradient. A part before one on another lane writes them there. In the forward that is behind Out, a copy
// of the input.
func (headKind) launchPart(t *Templates, x *Launch) {
	v, n := x.Visit, t.spec.Config.Streams()
	mb, losses, lse := x.forHead(n), x.losses(n), x.lse(n)
	first, last, part := v.FirstPart(), v.LastPart(), t.spec.Shard(v.Part)
	sums := [2]device.Mem{lse.Mem(), losses.Mem()}
	if v.Phase != schedule.Backward {
		terms := t.spec.Terms
		if v.Phase == schedule.Evaluate {
			terms = op.LossTerms{}
		}
		if t.spec.apart(v.Part-1, v.Part) {
			x.copySums(sums, t.carried(x.In, x.Tokens))
		}
		t.HeadShardForward(x.Stream, x.Weights, x.In, losses, lse, mb, x.Workspace, part, terms, first, last)
		if t.spec.apart(v.Part+1, v.Part) {
			rows := int64(x.Tokens*t.dims.hidden) * t.spec.Act.Size()
			x.Stream.CopyD2D(x.Out.Dev.Mem().Slice(0, rows), x.In.Dev.Mem().Slice(0, rows))
			x.copySums(t.carried(x.Out, x.Tokens), sums)
		}
		return
	}
	dx := x.Grad
	if first {
		dx = x.Out
	}
	if t.spec.apart(v.Part+1, v.Part) {
		x.copySums(sums, t.carried(dx, x.Tokens))
	}
	t.HeadShardBackward(x.Stream, x.Weights, x.Grads, dx, x.In, losses, lse, mb, x.Workspace, x.Scale, part, x.First, first, last)
	if first && t.spec.HeadLanes != nil {
		x.copySums(t.carried(dx, x.Tokens), sums)
	}
}

// copySums copies log-sum-exps and losses.
func (x *Launch) copySums(to, from [2]device.Mem) {
	for i := range to {
		x.Stream.CopyD2D(to[i], from[i])
	}
}
