package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// latentConfig is a model of latent attention whose values are narrower than its keys; qRank of 0
// makes its queries of the hidden state.
func latentConfig(qRank int) *model.Config {
	return config(func(c *model.Config) {
		c.HeadDim = 7
		c.Latent = &model.Latent{QRank: qRank, KVRank: 8, NopeDim: 3, RopeDim: 4, ValueDim: 5, NormEps: 1e-6}
	})
}

// TestRecomputedFLOPsOfLatentAttention: what is said to be computed again is what a device that
// counts does beyond the products of the model's FLOPs. The narrow vectors are always among it.
func TestRecomputedFLOPsOfLatentAttention(t *testing.T) {
	const tokens = 13
	for _, qRank := range []int{0, 5} {
		cfg := latentConfig(qRank)
		seqs := sequences(cfg.VocabSize, 1, 5, 1, 7)
		run := func(keep Keeps) (matmuls, attended int64) {
			toy, sp := newToy(), spec(cfg, KeepNothing, device.F32)
			sp.Keep = keep
			r := newRig(t, toy, sp, nil)
			r.step(r.batch(seqs))
			return toy.matmuls, toy.attended
		}
		least := int64(cfg.FLOPs(tokens, 0))
		_, once := run(KeepIn(2, KeepAll))
		for i := range 16 { // all pairs of levels
			keep := Keeps{Keep(i % 4), Keep(i / 4)}
			matmuls, attended := run(keep)
			sp := Spec{Config: cfg, Keep: keep}
			got, want := sp.RecomputedFLOPs(tokens, sp.PairsAgain(5)+sp.PairsAgain(1)+sp.PairsAgain(7)), matmuls-least+attended-once
			if got != want || got < 2*2*tokens*12*int64(qRank+8+4) {
				t.Errorf("queries' rank %d, keep %v: %d, the operations do %d", qRank, keep, got, want)
			}
		}
	}
}

// TestLatentRowsAreAsInOtherModels: what is kept and cached of latent attention is what is kept of
// heads that are all as wide as its keys.
func TestLatentRowsAreAsInOtherModels(t *testing.T) {
	latent, plain := latentConfig(5), config(func(c *model.Config) { c.HeadDim = 7 })
	for keep := KeepNothing; keep <= KeepAll; keep++ {
		of := func(c *model.Config) int64 {
			return KindOf(model.Block).SavedBytes(Spec{Config: c, Act: device.BF16}, keep, 99)
		}
		if got, want := of(latent), of(plain); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
	}
	if got, want := (Spec{Config: latent}).CacheBytes(99), (Spec{Config: plain}).CacheBytes(99); got != want {
		t.Errorf("cache of %d bytes, want %d", got, want)
	}
}
