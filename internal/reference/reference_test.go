package reference

import (
	"math"
	"path/filepath"
	"testing"

	"mt/internal/recordings"
	"mt/model"
)

// Logits and loss must be those that Transformers computed in fp32.
func TestEqualsTransformers(t *testing.T) {
	for _, dir := range recordings.Cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			f, err := LoadFixture(dir)
			if err != nil {
				t.Fatal(err)
			}
			for row, recorded := range f.Logits {
				got := Logits(f.Config, f.Plain, f.Rows[row].IDs)
				if len(got) != len(recorded) {
					t.Fatalf("%d logits, %d recorded", len(got), len(recorded))
				}
				var worst, largest float64
				for i, want := range recorded {
					worst = max(worst, math.Abs(got[i]-want))
					largest = max(largest, math.Abs(want))
				}
				// fp32 through three layers of sums over up to 176 terms: tens of
				// roundings of 6e-8 each.
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
