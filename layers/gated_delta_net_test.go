package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// TestRecomputedFLOPsOfRecurrences: RecomputedFLOPs of a block with a gated delta net equals the operations that a
// counting device sees in addition to a step with everything kept, apart from the convolution, which is always
// computed again.
func TestRecomputedFLOPsOfRecurrences(t *testing.T) {
	cfg := recurrentConfig()
	recomputedFLOPs(t, cfg, cfg.GatedDeltaNet.ConvFLOPs())
}

// recomputedFLOPs compares RecomputedFLOPs with the operations that a counting device sees. always
// is the FLOPs per token that even a step that keeps everything computes again.
func recomputedFLOPs(t *testing.T, cfg *model.Config, always int64) {
	t.Helper()
	const tokens = 13
	seqs := sequences(cfg.VocabSize, 1, 5, 1, 7)
	run := func(keep Keeps) (all, attended int64) {
		toy, sp := newToy(), spec(cfg, KeepNothing, device.F32)
		sp.Keep = keep
		r := newRig(t, toy, sp, nil)
		r.step(r.batch(seqs))
		return toy.matmuls + toy.recurred, toy.attended
	}
	once, attended := run(KeepIn(2, KeepAll))
	once -= tokens * always
	for i := range 25 { // all pairs of levels
		keep := Keeps{Keep(i % 5), Keep(i / 5)}
		all, pairs := run(keep)
		sp := Spec{Config: cfg, Keep: keep}
		if got, want := sp.RecomputedFLOPs(tokens, sp.PairsAgain(5)+sp.PairsAgain(1)+sp.PairsAgain(7)), all-once+pairs-attended; got != want {
			t.Errorf("keep %v: %d, the operations do %d", keep, got, want)
		}
	}
}

// TestRecurrentBytes: the plan counts the right number of bytes for a block with a gated delta net.
// The forward keeps the output, the states and the convolution's input, and the cache for
// generation does not grow with the sequence.
func TestRecurrentBytes(t *testing.T) {
	cfg := recurrentConfig()
	s := Spec{Config: cfg, Act: device.BF16, MaxTokens: 130, ChunkTokens: 64}
	round := func(n int) int64 { return int64(n+device.Align-1) / device.Align * device.Align }
	o, states := round(2*130*18), round(4*3*2*16*9)
	qkv, gates := round(2*130*(2*16+2*18)), round(2*130*4)
	for keep, want := range map[Keep]int64{KeepNothing: 0, KeepAttention: o + states, KeepQKV: o + states + qkv + gates} {
		if got := KindOf(model.Recurrent).SavedBytes(s, 0, keep, 130); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
		if got := KindOf(model.Mixer).SavedBytes(s, 0, keep, 130); got != want {
			t.Errorf("keep %s, with experts: %d bytes, want %d", keep, got, want)
		}
	}
	want := round(2*2*(2*16+18)) + round(4*2*16*9)
	for _, kind := range []model.LayerKind{model.Recurrent, model.Mixer} {
		if got := KindOf(kind).CacheBytes(s, 0, 1); got != want || KindOf(kind).CacheBytes(s, 0, 1<<20) != want {
			t.Errorf("%s: a cache of %d bytes, want %d", kind, got, want)
		}
	}
}

// recurrentConfig returns a model with a gated delta net in the first block and gated attention in
// the second.
func recurrentConfig() *model.Config {
	return config(func(c *model.Config) {
		c.OutputGate, c.NormOffset, c.HiddenSize, c.Rope.Partial = true, 1, 9, 0.7
		c.GatedDeltaNet = &model.GatedDeltaNet{KeyHeads: 1, Heads: 2, KeyDim: 16, ValueDim: 9, Taps: 3}
		c.Recurrent = []bool{true, false}
	})
}
