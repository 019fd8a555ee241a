package layers

import (
	"testing"

	"mt/device"
	"mt/model"
)

// mlaConfig returns a model with latent attention, with keys of 7 elements and with biases. With
// qRank 0 its queries come directly from the hidden state.
func mlaConfig(qRank, values int) *model.Config {
	return config(func(c *model.Config) {
		c.HeadDim, c.OBias = 7, true
		c.MLA = &model.MLA{QRank: qRank, KVRank: 8, NopeDim: 3, RopeDim: 4, ValueDim: values, NormEps: 1e-6, Bias: true}
	})
}

// TestRecomputedFLOPsOfLatentAttention: RecomputedFLOPs equals the operations that a counting
// device sees in addition to the model's FLOPs. The backward always computes the latent vectors
// again.
func TestRecomputedFLOPsOfLatentAttention(t *testing.T) {
	const tokens = 13
	for _, of := range [][3]int{{0, 5}, {5, 5}, {0, 9}, {5, 10}, {5, 5, 6}, {5, 10, 6}} { // rank of queries, values, chosen keys
		qRank, cfg := of[0], mlaConfig(of[0], of[1])
		least := int64(cfg.FLOPs(tokens, 0))
		if of[2] > 0 {
			cfg.MLA.Indexer = &model.Indexer{Heads: 2, HeadDim: 6, TopK: of[2]}
			least += 2 * 2 * tokens * int64(qRank*2*6+12*(6+2)) // the indexer's projections, which the model's FLOPs do not count
		}
		seqs := sequences(cfg.VocabSize, 1, 5, 1, 7)
		run := func(keep Keeps) (matmuls, attended int64) {
			toy, sp := newToy(), spec(cfg, KeepNothing, device.F32)
			sp.Keep = keep
			r := newRig(t, toy, sp, nil)
			r.step(r.batch(seqs))
			return toy.matmuls, toy.attended
		}
		_, once := run(KeepIn(2, KeepAll))
		for i := range 25 { // all pairs of levels
			keep := Keeps{Keep(i % 5), Keep(i / 5)}
			matmuls, attended := run(keep)
			sp := Spec{Config: cfg, Keep: keep, Document: tokens}
			got, want := sp.RecomputedFLOPs(tokens, sp.PairsAgain(5)+sp.PairsAgain(1)+sp.PairsAgain(7)), matmuls-least+attended-once
			if got != want || got < 2*2*tokens*12*int64(qRank+8+4) {
				t.Errorf("queries' rank and values %v, keep %v: %d, the operations do %d", of, keep, got, want)
			}
		}
	}
}

// TestLatentRowsAreAsInOtherModels: the tensors that a model with latent attention keeps and caches
// are as large as those of a model with ordinary heads, as wide as the larger of its keys and
// values.
func TestLatentRowsAreAsInOtherModels(t *testing.T) {
	for _, dims := range [][2]int{{5, 7}, {7, 7}, {8, 8}, {13, 13}} {
		mlaRows(t, mlaConfig(5, dims[0]), config(func(c *model.Config) { c.HeadDim = dims[1] }))
	}
}

func mlaRows(t *testing.T, latent, plain *model.Config) {
	t.Helper()
	for keep := KeepNothing; keep <= KeepInputs; keep++ {
		of := func(c *model.Config) int64 {
			return KindOf(model.Block).SavedBytes(Spec{Config: c, Act: device.BF16}, 0, keep, 99)
		}
		if got, want := of(latent), of(plain); got != want {
			t.Errorf("keep %s: %d bytes, want %d", keep, got, want)
		}
	}
	if got, want := (Spec{Config: latent}).CacheBytes(0, 99), (Spec{Config: plain}).CacheBytes(0, 99); got != want {
		t.Errorf("cache of %d bytes, want %d", got, want)
	}
}
