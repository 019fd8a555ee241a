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

// fakeBatch returns a batch of micro-batches with these numbers of tokens.
func fakeBatch(tokens ...int) *data.Batch {
	b := &data.Batch{Supervised: 1}
	for _, n := range tokens {
		b.MicroBatches = append(b.MicroBatches, data.MicroBatch{Tokens: n})
		b.Tokens += int64(n)
	}
	return b
}

// planned plans a program for batch b with the settings s, and returns the pass.
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

// ownTiles returns, for every tile, the layers from whose host memory it is copied: its own layer
// and, with tied embeddings, also the embedding for the head's tiles.
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

// fetching returns the settings of a Prefetcher's core for the layers of s and depths d.
func fetching(s schedule.Spec, tied bool, d plan.Depths) prefetcherSpec {
	return prefetcherSpec{layers: len(s.Layers), rows: true, sources: ownTiles(s, tied), slots: slotsOf(d, s), batches: 1, activations: d.ActivationSlots, experts: true}
}

// slotsOf returns the number of weight slots of each class: d.WeightSlots for streamed tiles, and
// one for a whole head if s has one.
func slotsOf(d plan.Depths, s schedule.Spec) (n [schedule.NumClasses]int) {
	n[schedule.Streamed] = d.WeightSlots
	for _, l := range s.Layers {
		if l.Class == schedule.Whole {
			n[schedule.Whole] = 1
		}
	}
	return n
}

// summedIn returns for each layer the layer to whose gradient its own is added. With tied
// embeddings, the embedding's gradient is added to the head's.
func summedIn(layers int, tied bool) []int {
	out := ids(layers)
	if tied {
		out[0] = layers - 1
	}
	return out
}
