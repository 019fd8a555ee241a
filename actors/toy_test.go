package actors

import (
	"testing"

	"mt/data"
	"mt/model"
	"mt/plan"
	"mt/schedule"
)

// This file makes the small programs that tests of single actors run.

// fakeBatch has micro-batches of the given sizes.
func fakeBatch(tokens ...int) *data.Batch {
	b := &data.Batch{Supervised: 1}
	for _, n := range tokens {
		b.MicroBatches = append(b.MicroBatches, data.MicroBatch{Tokens: n})
		b.Tokens += int64(n)
	}
	return b
}

// planned is the pass of b through a program of s.
func planned(t *testing.T, s schedule.Spec, b *data.Batch) *Pass {
	t.Helper()
	var tokens []int
	for _, m := range b.MicroBatches {
		tokens = append(tokens, m.Tokens)
	}
	p, err := schedule.New(s, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return &Pass{Program: p, Eval: s.Eval, Batch: b}
}

// dense are the kinds of n layers without experts.
func dense(n int) []model.LayerKind {
	kinds := make([]model.LayerKind, n)
	for i := range kinds {
		kinds[i] = model.Block
	}
	kinds[0], kinds[n-1] = model.Embedding, model.Head
	return kinds
}

// withExperts are the kinds of a model of blocks with experts.
func withExperts(blocks int) []model.LayerKind {
	kinds := []model.LayerKind{model.Embedding}
	for range blocks {
		kinds = append(kinds, model.Attention, model.MoE)
	}
	return append(kinds, model.Head)
}

// ownTiles says of every tile of s that it is copied from its own layer, and with
// tied that the head's are copied from the embedding's too.
func ownTiles(s schedule.Spec, tied bool) [][]int {
	var out [][]int
	for l, kind := range s.Layers {
		parts, from := 1, []int{l}
		switch kind {
		case model.MoE:
			parts += s.Experts
		case model.Head:
			parts = max(1, s.HeadShards)
			if tied {
				from = append(from, 0)
			}
		}
		for range parts {
			out = append(out, from)
		}
	}
	return out
}

// slotsOf is how many weight slots of each class there are.
func slotsOf(d plan.Depths, s schedule.Spec) (n [schedule.NumClasses]int) {
	n[schedule.Streamed] = d.WeightSlots
	if s.HeadShards <= 1 {
		n[schedule.Whole] = 1
	}
	return n
}

// summedIn are layers whose gradients are their own, and with tied the embedding's is
// summed in the head's.
func summedIn(layers int, tied bool) []int {
	out := ids(layers)
	if tied {
		out[0] = layers - 1
	}
	return out
}
