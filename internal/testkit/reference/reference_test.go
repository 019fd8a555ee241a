package reference

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// TestEqualsTransformers: logits and loss equal those that Transformers computed in fp32, within
// its rounding.
func TestEqualsTransformers(t *testing.T) {
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			f := testkit.Must(LoadFixture(dir))(t)
			for row, recorded := range f.Logits {
				if f.Config.Chooses(len(f.Rows[row].IDs)) {
					t.Skip("the recorded indexer has equal scores, among which it chooses other keys; package run trains this recording")
				}
				got := Logits(f.Config, f.Plain, f.Rows[row].IDs)
				if len(got) != len(recorded) {
					t.Fatalf("%d logits, %d recorded", len(got), len(recorded))
				}
				var worst, largest float64
				for i, want := range recorded {
					worst = max(worst, math.Abs(got[i]-want))
					largest = max(largest, math.Abs(want))
				}
				// The recorded logits are fp32: three layers of sums over up to 176 terms round
				// tens of times, by 6e-8 relative each.
				if !(worst <= 5e-6*largest) {
					t.Errorf("row %d: logits differ by %g of %g", row, worst, largest)
				}
			}
			if f.Config.OutputRouterLogits {
				return // the recorded loss has the experts' load in it, which Loss leaves out
			}
			loss := Loss(f.Config, f.Plain, f.Rows[:f.PerStep])
			if !(math.Abs(loss-f.Loss) <= f.LossBound*f.Loss) {
				t.Errorf("loss %.9g, recorded %.9g", loss, f.Loss)
			}
		})
	}
}

func TestLossOfUniformLogits(t *testing.T) {
	cfg := &model.Config{VocabSize: 8, HiddenSize: 2, RMSNormEps: 1e-6, NumLayers: 0}
	w := Weights{"model.embed_tokens.weight": make([]float64, 16), "model.norm.weight": {1, 1}}
	got := Loss(cfg, w, []Sequence{{IDs: []int32{1, 2}, Targets: []int32{2, -100}}})
	if !(math.Abs(got-math.Log(8)) <= 1e-12) {
		t.Errorf("loss %g, want log 8", got)
	}
}

func TestDerivative(t *testing.T) {
	x := []float64{0.3, -0.7}
	f := func() float64 { return math.Exp(x[0]) * math.Sin(x[1]) }
	got := Derivative(func(s float64) float64 { return Perturbed(f, x, []float64{1, 2}, s) })
	want := math.Exp(0.3)*math.Sin(-0.7) + 2*math.Exp(0.3)*math.Cos(-0.7)
	if !(math.Abs(got-want) <= 1e-10) {
		t.Errorf("derivative %g, want %g", got, want)
	}
	if x[0] != 0.3 || x[1] != -0.7 {
		t.Errorf("x left at %v", x)
	}
}

func TestBadFixture(t *testing.T) {
	if _, err := LoadFixture(t.TempDir()); err == nil {
		t.Error("an empty directory was read")
	}
}

// TestAuxLossEqualsTransformers: the loss of a whole step, with the auxiliary loss of the router,
// equals the one that Transformers computed.
func TestAuxLossEqualsTransformers(t *testing.T) {
	f := testkit.Must(LoadFixture(testkit.Recording(t, "qwen3moe-aux")))(t)
	seqs := f.Rows[:f.PerStep]
	loss, aux := Loss(f.Config, f.Plain, seqs), AuxLoss(f.Config, f.Plain, seqs)
	if got := loss + aux; !(math.Abs(got-f.Loss) <= f.LossBound*f.Loss) {
		t.Errorf("loss %.9g and auxiliary %.9g are %.9g, recorded %.9g", loss, aux, got, f.Loss)
	}
	if !(aux >= 100*f.LossBound*f.Loss) {
		t.Errorf("an auxiliary loss of %g says nothing", aux)
	}
}

// TestAuxLoss: if all experts have equal probabilities and are chosen in turn, the auxiliary loss
// has its minimum: the number of chosen experts times its coefficient.
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

// TestChoiceBias: the router's bias can change which experts are chosen, and their order.
func TestChoiceBias(t *testing.T) {
	c := &model.Config{}
	c.NumExpertsPerTok = 2
	if got := choose(c, []float64{0.5, 0.3, 0.2}, []float64{0, 0, 1}); len(got) != 2 || got[0] != 2 || got[1] != 0 {
		t.Errorf("experts %v are chosen, want 2 and 0", got)
	}
}
