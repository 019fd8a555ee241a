package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// mamba2Config returns a model with a Mamba-2 mixer in the first block and attention in the second.
func mamba2Config(bias bool) *model.Config {
	return config(func(c *model.Config) {
		c.Recurrent = []bool{true, false}
		c.Mamba2 = &model.Mamba2{Groups: 2, Heads: 4, HeadDim: 3, StateDim: 5, Taps: 3, ConvBias: bias, Bias: bias, DtMax: 100}
	})
}

// TestRecomputedFLOPsOfMamba2: RecomputedFLOPs of a block with a Mamba-2 mixer equals the operations that a counting
// device sees in addition to a step with everything kept, apart from the convolution, which is always computed again.
func TestRecomputedFLOPsOfMamba2(t *testing.T) {
	cfg := mamba2Config(false)
	recomputedFLOPs(t, cfg, cfg.Mamba2.ConvFLOPs())
}

// TestMamba2Bytes: the plan counts the right number of bytes for a Mamba-2 block. The forward keeps
// the output, the states and the first product's result, and the cache for generation does not grow
// with the sequence.
func TestMamba2Bytes(t *testing.T) {
	cfg := mamba2Config(false)
	s := Spec{Config: cfg, Act: device.BF16, MaxTokens: 130, ChunkTokens: 64}
	round := func(n int) int64 { return int64(n+device.Align-1) / device.Align * device.Align }
	o, states, in := round(2*130*12), round(4*3*12*5), round(2*130*(12+32+4))
	for keep, want := range map[Keep]int64{KeepNothing: 0, KeepAttention: o + states, KeepQKV: o + states + in} {
		if got := KindOf(model.Recurrent).SavedBytes(s, 0, keep, 130); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
	}
	if got, want := KindOf(model.Recurrent).CacheBytes(s, 0, 1<<20), round(2*2*32)+round(4*12*5); got != want {
		t.Errorf("a cache of %d bytes, want %d", got, want)
	}
}

// besideConfig returns a model with a Mamba-2 mixer beside attention in both blocks, and with
// constant multipliers.
func besideConfig() *model.Config {
	return config(func(c *model.Config) {
		c.Beside, c.Mamba2 = true, &model.Mamba2{Groups: 2, Heads: 4, HeadDim: 3, StateDim: 5, Taps: 3, ConvBias: true, NoNorm: true, DtMax: 100}
		c.Multipliers = &model.Multipliers{Value: 0.9, Gate: 1.1, Down: 0.8, ScanIn: [5]float64{0.9, 0.6, 0.8, 0.7, 0.7}, ScanOut: 0.3}
	})
}

// TestRecomputedFLOPsBeside: RecomputedFLOPs of blocks with a Mamba-2 mixer beside attention equals
// the operations that a counting device sees in addition to a step with everything kept, apart from
// the convolutions of both blocks.
func TestRecomputedFLOPsBeside(t *testing.T) {
	cfg := besideConfig()
	recomputedFLOPs(t, cfg, 2*cfg.Mamba2.ConvFLOPs())
}
