package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// shortConvConfig returns a model with a gated short convolution in the first block and attention
// with q/k norm in the second.
func shortConvConfig(bias bool) *model.Config {
	return config(func(c *model.Config) {
		c.QKNorm, c.ShortConv, c.Recurrent = true, &model.ShortConv{Channels: c.HiddenSize, Taps: 3, Bias: bias}, []bool{true, false}
	})
}

// TestRecomputedFLOPsOfShortConv: RecomputedFLOPs of a block with a gated short convolution equals the operations that
// a counting device sees in addition to a step with everything kept.
func TestRecomputedFLOPsOfShortConv(t *testing.T) { recomputedFLOPs(t, shortConvConfig(false), 0) }

// TestShortConvBytes: the plan counts the right number of bytes for a block with a short
// convolution. The forward keeps the output and the convolution's input, and the cache for
// generation does not grow with the sequence.
func TestShortConvBytes(t *testing.T) {
	cfg := shortConvConfig(false)
	s := Spec{Config: cfg, Act: device.BF16, MaxTokens: 130, ChunkTokens: 64}
	round := func(n int) int64 { return int64(n+device.Align-1) / device.Align * device.Align }
	h := cfg.HiddenSize
	for keep, want := range map[Keep]int64{KeepNothing: 0, KeepAttention: round(2 * 130 * h), KeepQKV: round(2*130*h) + round(2*130*3*h)} {
		if got := KindOf(model.Recurrent).SavedBytes(s, 0, keep, 130); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
	}
	if got, want := KindOf(model.Recurrent).CacheBytes(s, 0, 1<<20), round(2*2*3*h); got != want {
		t.Errorf("a cache of %d bytes, want %d", got, want)
	}
}
