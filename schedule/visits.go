package schedule

import "mt/model"

// This file lists the visits of a pass: forward over the embedding and all
// layers, the head, and in training back down.
//
// A head in parts takes a sweep over them for the losses and, in training, one in
// reverse for the gradient, which begins with the tiles that the first one left.
// A layer with experts is visited by its router, its experts, and its router
// again; in the backward the experts come in reverse, for the same reason.

// visitLister collects the visits of one pass.
type visitLister struct {
	spec  Spec
	phase Phase
	out   []Visit
	// tiles and turns of a layer are numbered on from these.
	tile, turn []int
}

// visits lists the visits of a pass, without what planning finds out: First, Take
// and Release.
func (s Spec) visits() []Visit {
	l := &visitLister{spec: s, phase: Forward}
	if s.Eval {
		l.phase = Evaluate
	}
	tile, turn := 0, 0
	for _, kind := range s.Layers {
		l.tile, l.turn = append(l.tile, tile), append(l.turn, turn)
		tile, turn = tile+1, turn+1
		if kind == model.MoE {
			tile, turn = tile+s.Experts, turn+1 // two sweeps of micro-batches
		}
	}
	top := len(s.Layers) - 1
	for i := range top {
		l.layer(i)
	}
	l.head(top)
	l.phase = Backward
	for i := top - 1; i >= 0 && !s.Eval; i-- {
		l.layer(i)
	}
	return l.out
}

// add appends a visit to part k of a layer, one of so many; turns counts the
// sweeps of micro-batches through the layer before it, from below.
func (l *visitLister) add(layer int, stage Stage, k, parts, turns int) *Visit {
	v := Visit{Phase: l.phase, Layer: layer, Stage: stage, Part: k, Parts: parts, Tile: l.tile[layer] + k, Turn: l.turn[layer] + turns}
	switch stage {
	case Embed:
		v.Class = NoSlot
	case Head:
		v.Class = Whole
	}
	l.out = append(l.out, v)
	return &l.out[len(l.out)-1]
}

// layer lists the visits of any layer but the head.
func (l *visitLister) layer(i int) {
	switch l.spec.Layers[i] {
	case model.Embedding:
		l.add(i, Embed, 0, 1, 0)
	case model.Attention:
		l.add(i, Attention, 0, 1, 0)
	case model.MoE:
		l.experts(i)
	default:
		l.add(i, Block, 0, 1, 0)
	}
}

// experts lists the visits of a layer with experts.
func (l *visitLister) experts(i int) {
	parts, first, last := 1+l.spec.Experts, 0, 1
	if l.phase == Backward {
		first, last = 1, 0
	}
	l.add(i, Route, 0, parts, first)
	for k := 1; k < parts; k++ {
		expert := k
		if l.phase == Backward {
			expert = parts - k
		}
		l.add(i, Expert, expert, parts, 0)
	}
	l.add(i, Join, 0, parts, last)
}

// head lists the visits of the head: one if it is whole, which in training
// computes the gradient too.
func (l *visitLister) head(i int) {
	parts, stage := max(1, l.spec.HeadShards), HeadPart
	if parts == 1 {
		stage = Head
		if !l.spec.Eval {
			l.phase = Backward
		}
	}
	for k := range parts {
		v := l.add(i, stage, k, parts, k)
		v.Loss = k == parts-1
	}
	l.phase = Backward
	for k := parts - 1; k >= 0 && parts > 1 && !l.spec.Eval; k-- {
		l.add(i, stage, k, parts, k)
	}
}
