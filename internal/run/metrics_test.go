package run

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// logLine has the fields of a line of metrics.jsonl that the tests read.
type logLine struct {
	Step        int
	Loss        *float64
	StepLoss    *float64 `json:"step_loss"`
	WindowSteps int      `json:"window_steps"`
	TimedSteps  int      `json:"timed_steps"`
	Tokens      int64
	TokensTotal int64   `json:"tokens_total"`
	TokPerS     float64 `json:"tok_per_s"`
	TFLOPS      float64
	TFLOPSExec  float64 `json:"tflops_executed"`
	StepS       float64 `json:"step_s"`
	Skipped     bool
}

func (s scene) logLines(t *testing.T) (out []logLine) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.MetricsFile)))(t)
	for text := range strings.Lines(string(raw)) {
		var l logLine
		testkit.NoError(t, json.Unmarshal([]byte(text), &l))
		out = append(out, l)
	}
	return out
}

// TestLoggedLossIsTheWindows: only every third step and the last are logged. The loss of a line is
// then the mean since the line before, weighted by supervised tokens. step_loss is the loss of its
// own step. The terminal shows the same loss and speed.
func TestLoggedLossIsTheWindows(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	every := newScene(t, "packing: true\nrecompute: full\npipeline: {head_shards: 3}\n")
	var supervised []float64
	var pairs []int64
	var model func(tokens, pairs int64) (float64, float64)
	out, err := every.train(t, t.Context(), settings.Hooks{Planned: func(run any) {
		j := run.(*save.Output)
		for step := 1; step <= j.Config.MaxSteps; step++ {
			b := testkit.Must(j.Train.Batch(step, j.Config.Pipeline.MicroBatchTokens))(t)
			supervised = append(supervised, float64(b.Supervised))
			n := int64(0)
			for _, mb := range b.MicroBatches {
				for i, first := range mb.CuSeqlens[:len(mb.CuSeqlens)-1] {
					n += j.Model.AttendedPairs(int(mb.CuSeqlens[i+1] - first))
				}
			}
			pairs = append(pairs, n)
		}
		model = func(tokens, pairs int64) (float64, float64) {
			f, again := j.Model.FLOPs(tokens, pairs), j.Plan.Spec.RecomputedFLOPs(tokens, pairs)
			if again == 0 || j.Plan.Spec.HeadRecomputedFLOPs(tokens) == 0 {
				t.Errorf("nothing is computed again: %d", again)
			}
			return f, f + float64(again+j.Plan.Spec.HeadRecomputedFLOPs(tokens))
		}
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	steps := every.logLines(t)
	for _, l := range steps {
		if *l.Loss != *l.StepLoss || l.WindowSteps != 1 {
			t.Errorf("with every step logged, step %d has loss %v, step_loss %v over %d steps", l.Step, *l.Loss, *l.StepLoss, l.WindowSteps)
		}
	}
	third := every.in(t).with("logging_steps: 3\n")
	shown := regexp.MustCompile(`step (\d+)/8  loss ([0-9.]+)  ([0-9,]+) tok/s \(over (\d+) steps\)  grad_norm`).FindAllStringSubmatch(third.mustTrain(t), -1)
	lines := third.logLines(t)
	if len(lines) != 3 || len(shown) != 3 {
		t.Fatalf("%d lines, %d shown", len(lines), len(shown))
	}
	from := 0
	for i, l := range lines {
		var sum, weight float64
		var tokens, attended int64
		for k := from; k < l.Step; k++ {
			sum += *steps[k].Loss * supervised[k]
			weight += supervised[k]
			tokens += steps[k].Tokens
			attended += pairs[k]
		}
		last := steps[l.Step-1]
		if want := sum / weight; math.Abs(*l.Loss-want) > 1e-12*want || *l.StepLoss != *last.StepLoss || l.Tokens != last.Tokens || l.TokensTotal != last.TokensTotal {
			t.Errorf("steps %d to %d: loss %v of %v, want %v", from+1, l.Step, *l.Loss, l, want)
		}
		if l.WindowSteps != l.Step-from || l.TimedSteps != l.Step-from {
			t.Errorf("steps %d to %d: over %d steps, %d of them timed", from+1, l.Step, l.WindowSteps, l.TimedSteps)
		}
		took := l.StepS * float64(l.TimedSteps)
		want, executed := model(tokens, attended)
		for name, of := range map[string][2]float64{"tok_per_s": {l.TokPerS, float64(tokens)}, "tflops": {l.TFLOPS * 1e12, want}, "tflops_executed": {l.TFLOPSExec * 1e12, executed}} {
			if math.Abs(of[0]*took-of[1]) > 1e-9*of[1] {
				t.Errorf("steps %d to %d: %s comes to %g in %g s, want %g", from+1, l.Step, name, of[0]*took, took, of[1])
			}
		}
		text := []string{fmt.Sprint(l.Step), fmt.Sprintf("%.4f", *l.Loss), fmt.Sprintf("%.0f", math.Floor(l.TokPerS)), fmt.Sprint(l.WindowSteps)}
		if got := append([]string(nil), shown[i][1], shown[i][2], strings.ReplaceAll(shown[i][3], ",", ""), shown[i][4]); !slices.Equal(got, text) {
			t.Errorf("the terminal shows %q, the line says %q", got, text)
		}
		from = l.Step
	}
}
