package actors

import (
	"testing"

	"mt/data"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// This file makes small programs for tests of single actors.

// fakeBatch has micro-batches of the given sizes.
func fakeBatch(tokens ...int) *data.Batch {
	b := &data.Batch{Supervised: 1}
	for _, n := range tokens {
		b.MicroBatches = append(b.MicroBatches, data.MicroBatch{Tokens: n})
		b.Tokens += int64(n)
	}
	return b
}

// planned returns the pass of b through a program of s.
func planned(t *testing.T, s schedule.Spec, b *data.Batch) *Pass {
	t.Helper()
	var tokens []int
	for _, m := range b.MicroBatches {
		tokens = append(tokens, m.Tokens)
	}
	p := testkit.Must(schedule.New(s, tokens))(t)
	return &Pass{Program: p, Eval: s.Eval, Batch: b}
}

// stages returns layers of the given kinds, with this number of experts and parts of the head.
func stages(kinds []model.LayerKind, experts, parts int) (out []schedule.Layer) {
	for i, kind := range kinds {
		layer := model.Layer{Kind: kind, Params: []model.Param{{Part: experts}}}
		out = append(out, layers.KindOf(kind).Stages(layers.Spec{Config: &model.Config{}, HeadShards: parts}, model.Layout{Layer: layer}))
		out[i].Name = model.LayerName(kinds, i)
	}
	return out
}

// denseKinds returns the kinds of n layers without experts.
func denseKinds(n int) []model.LayerKind {
	kinds := make([]model.LayerKind, n)
	for i := range kinds {
		kinds[i] = model.Block
	}
	kinds[0], kinds[n-1] = model.Embedding, model.Head
	return kinds
}

func dense(n int) []schedule.Layer { return stages(denseKinds(n), 0, 1) }

// ownTiles returns the source layers of every tile: its own layer and, with tied, also the embedding for the head's
// tiles.
func ownTiles(s schedule.Spec, tied bool) [][]int {
	var out [][]int
	for l, layer := range s.Layers {
		from := []int{l}
		if tied && l == len(s.Layers)-1 {
			from = append(from, 0)
		}
		for range layer.Tiles {
			out = append(out, from)
		}
	}
	return out
}

// fetching returns the prefetcherSpec for the layers of s.
func fetching(s schedule.Spec, tied bool, d plan.Depths) prefetcherSpec {
	return prefetcherSpec{layers: len(s.Layers), rows: true, sources: ownTiles(s, tied), slots: slotsOf(d, s), batches: 1, activations: d.ActivationSlots, experts: true}
}

// slotsOf returns the number of weight slots by class.
func slotsOf(d plan.Depths, s schedule.Spec) (n [schedule.NumClasses]int) {
	n[schedule.Streamed] = d.WeightSlots
	for _, l := range s.Layers {
		if l.Class == schedule.Whole {
			n[schedule.Whole] = 1
		}
	}
	return n
}

// summedIn returns exchangerCore.into: with tied, the embedding's gradient is added to the head's.
func summedIn(layers int, tied bool) []int {
	out := ids(layers)
	if tied {
		out[0] = layers - 1
	}
	return out
}
