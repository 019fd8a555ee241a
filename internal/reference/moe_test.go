package reference

import (
	"math"
	"slices"
	"testing"

	"mt/internal/recordings"
	"mt/model"
)

// The loss including the auxiliary loss is that which Transformers computed for a
// whole step.
func TestAuxLossEqualsTransformers(t *testing.T) {
	f, err := LoadFixture(recordings.Case(t, "qwen3moe-aux"))
	if err != nil {
		t.Fatal(err)
	}
	seqs := f.Rows[:f.PerStep]
	loss, aux := Loss(f.Config, f.Plain, seqs), AuxLoss(f.Config, f.Plain, seqs)
	if got := loss + aux; !(math.Abs(got-f.Loss) <= f.LossBound*f.Loss) {
		t.Errorf("loss %.9g and auxiliary %.9g are %.9g, recorded %.9g", loss, aux, got, f.Loss)
	}
	if !(aux >= 100*f.LossBound*f.Loss) {
		t.Errorf("an auxiliary loss of %g says nothing", aux)
	}
}

// With equal probabilities, and experts that are chosen in turn, the auxiliary loss
// is K times its coefficient, which is the least it can be.
func TestAuxLoss(t *testing.T) {
	cfg := &model.Config{NumExperts: 4, RouterAuxLossCoef: 0.5}
	var r Routing
	for i := range 4 {
		r.take([]float64{0.25, 0.25, 0.25, 0.25}, []int{i, (i + 1) % 4})
	}
	if got := r.AuxLoss(cfg); !(math.Abs(got-2*0.5) <= 1e-15) {
		t.Errorf("auxiliary loss %g, want 1", got)
	}
	if !slices.Equal(r.Counts, []float64{2, 2, 2, 2}) || r.Rows != 4 || len(r.Chosen) != 8 {
		t.Errorf("routing %+v", r)
	}
	if got := AuxLoss(cfg, nil, nil); got != 0 {
		t.Errorf("auxiliary loss %g of a model that has none", got)
	}
}

func TestLargest(t *testing.T) {
	if got := largest([]float64{0.1, 0.4, 0.1, 0.4}, 3); !slices.Equal(got, []int{1, 3, 0}) {
		t.Errorf("largest are %v", got)
	}
}

// TestChoiceBias: a bias decides which experts are chosen.
func TestChoiceBias(t *testing.T) {
	c := &model.Config{}
	c.NumExpertsPerTok = 2
	if got := choose(c, []float64{0.5, 0.3, 0.2}, []float64{0, 0, 1}); len(got) != 2 || got[0] != 2 || got[1] != 0 {
		t.Errorf("experts %v are chosen, want 2 and 0", got)
	}
}
