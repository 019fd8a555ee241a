package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// kdaConfig is a model with KDA in one block and latent attention without rotation in the other.
func kdaConfig() *model.Config {
	return config(func(c *model.Config) {
		c.HiddenSize, c.NumHeads, c.NumKVHeads, c.HeadDim = 9, 3, 3, 7
		c.RMSNormEps = 1e-3 // an output may be almost 0, and its norm multiplies the rounding
		c.MLA = &model.MLA{KVRank: 7, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-3}
		c.KDA, c.Recurrent, c.NoRope = &model.KDA{Heads: 2, Dim: 6, Taps: 3}, []bool{true, false}, []bool{true, true}
	})
}

// TestRecomputedFLOPsOfKDA: RecomputedFLOPs of a block with KDA equals the operations that a counting device sees in
// addition to a step with everything kept, apart from the convolution and the latent vectors of the other block.
func TestRecomputedFLOPsOfKDA(t *testing.T) {
	cfg := kdaConfig()
	recomputedFLOPs(t, cfg, cfg.KDA.ConvFLOPs()+2*9*(7+4))
}

// TestKDABytes: a block keeps its output, the states and the results of the first products; its cache does not grow.
func TestKDABytes(t *testing.T) {
	cfg := kdaConfig()
	s := Spec{Config: cfg, Act: device.BF16, MaxTokens: 130, ChunkTokens: 64}
	round := func(n int) int64 { return int64(n+device.Align-1) / device.Align * device.Align }
	o, states, in := round(2*130*12), round(4*3*2*6*6), round(2*130*3*12)+round(2*130*(2+12))+2*round(2*130*12)
	for keep, want := range map[Keep]int64{KeepNothing: 0, KeepAttention: o + states, KeepQKV: o + states + in} {
		if got := KindOf(model.Recurrent).SavedBytes(s, 0, keep, 130); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
	}
	if got, want := KindOf(model.Recurrent).CacheBytes(s, 0, 1<<20), round(2*2*3*12)+round(4*2*6*6); got != want {
		t.Errorf("a cache of %d bytes, want %d", got, want)
	}
}
