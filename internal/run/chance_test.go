package run

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// weightDraws is the number of initial weights that judge bf16 training. The recorded weights are one draw. The others
// differ from these by weightNoise, relatively, so bf16 rounds 2 to 5 weights in 100 to another number.
const weightDraws, weightNoise = 9, 1e-4

// compareRun is compareSteps in the dtype kind. In bf16 chance decides how far a run ends from fp32
// (docs/decisions/2026-11-draws-of-weights.md). So the median of weightDraws judges a run beyond a bound, unless it is
// beyond twice the bound. Each drawn run is compared with training in fp32 from the same weights. train trains the
// recording in dir the same way, with out as output directory.
func compareRun(t *testing.T, dir, out, kind string, want expected, train func(dir, out string)) {
	t.Helper()
	b := want.Bounds[kind]
	first := farthest(readSteps(t, out), want.Steps)
	if kind != "bf16" || b.holds(first) || !b.twice().holds(first) {
		compareSteps(t, out, want, b)
		return
	}
	compareSteps(t, out, want, b.twice())
	var within, beyond struct{ loss, norm int }
	count := func(d bound) {
		if t.Logf("loss %.2e of %.2e, grad_norm %.2e of %.2e", d.Loss, b.Loss, d.GradNorm, b.GradNorm); d.Loss <= b.Loss {
			within.loss++
		} else {
			beyond.loss++
		}
		if d.GradNorm <= b.GradNorm {
			within.norm++
		} else {
			beyond.norm++
		}
	}
	count(first)
	for seed := uint64(1); min(within.loss, within.norm) <= weightDraws/2; seed++ {
		if max(beyond.loss, beyond.norm) > weightDraws/2 {
			t.Errorf("most of %d draws of initial weights end beyond the bounds", weightDraws)
			return
		}
		drawn, exact, got := drawWeights(t, dir, seed), t.TempDir(), t.TempDir()
		runTrain(t, fixtureConfig(t, drawn, exact, ""), settings.Hooks{})
		train(drawn, got)
		count(farthest(readSteps(t, got), readSteps(t, exact)))
	}
}

// trainAgain trains the recording in dir with the keys extra.
func trainAgain(t *testing.T, dir, out, extra string) {
	t.Helper()
	c, h := fixtureRun(t, dir, out, extra)
	runTrain(t, c, h)
}

// step has the compared figures of one step, in a recording and in the metrics of a run.
type step struct {
	Step     int                `json:"step"`
	Loss     float64            `json:"loss"`
	GradNorm float64            `json:"grad_norm"`
	Ahead    float64            `json:"mtp_loss"`
	LR       float64            `json:"lr"`
	Groups   map[string]float64 `json:"lr_groups"`
}

// readSteps returns the steps of the run with the output directory out.
func readSteps(t *testing.T, out string) []step {
	t.Helper()
	f := testkit.Must(os.Open(filepath.Join(out, settings.MetricsFile)))(t)
	defer f.Close()
	var steps []step
	for d := json.NewDecoder(f); d.More(); {
		var s step
		testkit.NoError(t, d.Decode(&s))
		steps = append(steps, s)
	}
	return steps
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Max(math.Abs(want), 1e-9) }

// farthest returns the largest relative differences over all steps. They are infinite where got lacks steps.
func farthest(got, want []step) bound {
	if len(got) < len(want) {
		return bound{Loss: math.Inf(1), GradNorm: math.Inf(1)}
	}
	var d bound
	for i, w := range want {
		d.Loss = max(d.Loss, relative(got[i].Loss, w.Loss), relative(got[i].Ahead, w.Ahead))
		d.GradNorm = max(d.GradNorm, relative(got[i].GradNorm, w.GradNorm))
	}
	return d
}

func (b bound) holds(d bound) bool { return d.Loss <= b.Loss && d.GradNorm <= b.GradNorm }

func (b bound) twice() bound { return bound{Loss: 2 * b.Loss, GradNorm: 2 * b.GradNorm} }

// drawWeights returns a copy of the recording in dir whose initial weights are multiplied by 1 + weightNoise·n, with n
// of a normal distribution. The weights are fp32.
func drawWeights(t *testing.T, dir string, seed uint64) string {
	t.Helper()
	to, r := t.TempDir(), rand.New(rand.NewPCG(seed, 0))
	testkit.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	for _, file := range testkit.Must(filepath.Glob(filepath.Join(to, "model", "*.safetensors")))(t) {
		raw := testkit.Must(os.ReadFile(file))(t)
		data := raw[8+binary.LittleEndian.Uint64(raw):]
		for ; len(data) >= 4; data = data[4:] {
			w := math.Float32frombits(binary.LittleEndian.Uint32(data))
			binary.LittleEndian.PutUint32(data, math.Float32bits(w*float32(1+weightNoise*r.NormFloat64())))
		}
		testkit.NoError(t, os.WriteFile(file, raw, 0o644))
	}
	return to
}
