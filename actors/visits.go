package actors

import (
	"fmt"
	"slices"

	"mt/model"
)

// This file lists the visits of a pass: forward over the embedding and all
// layers, the head, and in training back down.
//
// A head in parts takes a sweep over them for the losses and, in training, one in
// reverse for the gradient, which begins with the tiles that the first one left.
// A layer with experts is visited by its router, its experts, and its router
// again; in the backward the experts come in reverse, for the same reason.

// visitLister collects the visits of one pass.
type visitLister struct {
	spec programSpec
	pass Pass
	out  []Visit
	// tiles and turns of a layer are numbered on from these.
	tile, turn []int
}

func (s programSpec) visits(eval bool) []Visit {
	l := &visitLister{spec: s, pass: Forward}
	if eval {
		l.pass = Evaluate
	}
	tile, turn := 0, 0
	for _, kind := range s.layers {
		l.tile, l.turn = append(l.tile, tile), append(l.turn, turn)
		tile, turn = tile+1, turn+1
		if kind == model.MoE {
			tile, turn = tile+s.experts, turn+1 // two sweeps of micro-batches
		}
	}
	top := len(s.layers) - 1
	for i := range top {
		l.layer(i)
	}
	l.head(top, max(1, s.headShards), eval)
	l.pass = Backward
	for i := top - 1; i >= 0 && !eval; i-- {
		l.layer(i)
	}
	return l.out
}

// add appends a visit to part k of a layer, one of so many; turns counts the
// sweeps of micro-batches through the layer before it, from below.
func (l *visitLister) add(layer int, stage Stage, k, parts, turns int) *Visit {
	l.out = append(l.out, Visit{Pass: l.pass, Layer: layer, Kind: l.spec.layers[layer], Stage: stage, Part: k, Parts: parts,
		Tile: l.tile[layer] + k, Turn: l.turn[layer] + turns})
	return &l.out[len(l.out)-1]
}

// layer lists the visits of any layer but the head.
func (l *visitLister) layer(i int) {
	if l.spec.layers[i] != model.MoE {
		l.add(i, Whole, 0, 1, 0)
		return
	}
	parts, first, last := 1+l.spec.experts, 0, 1
	if l.pass == Backward {
		first, last = 1, 0
	}
	l.add(i, Route, 0, parts, first)
	for k := 1; k < parts; k++ {
		expert := k
		if l.pass == Backward {
			expert = parts - k
		}
		l.add(i, Expert, expert, parts, 0)
	}
	l.add(i, Join, 0, parts, last)
}

// head lists the visits of the head: one if it is whole, which in training
// computes the gradient too.
func (l *visitLister) head(i, parts int, eval bool) {
	if parts == 1 && !eval {
		l.pass = Backward
	}
	for k := range parts {
		v := l.add(i, Whole, k, parts, k)
		v.Loss = k == parts-1
	}
	l.pass = Backward
	for k := parts - 1; k >= 0 && parts > 1 && !eval; k-- {
		l.add(i, Whole, k, parts, k)
	}
}

// layerName names layer i to people. A block with experts is two layers, so that
// in a model with some the number alone would not lead to the block.
func layerName(kinds []model.LayerKind, i int) string {
	what := ""
	switch kinds[i] {
	case model.Attention:
		what = "attention of "
	case model.MoE:
		what = "experts of "
	}
	if kinds[i] == model.Embedding || kinds[i] == model.Head || !slices.Contains(kinds, model.MoE) {
		return fmt.Sprintf("layer %d", i)
	}
	block := 0
	for _, k := range kinds[:i] {
		if k == model.Block || k == model.MoE {
			block++
		}
	}
	return fmt.Sprintf("layer %d (%sblock %d)", i, what, block)
}
