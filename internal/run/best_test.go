package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// evals returns the steps and losses of all evaluations in metrics.jsonl.
func (s scene) evals(t *testing.T) (steps []int, losses []float64) {
	t.Helper()
	for _, text := range s.metrics(t) {
		var line struct {
			Step int
			Loss *float64 `json:"eval_loss"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(text), &line))
		if line.Loss != nil {
			steps, losses = append(steps, line.Step), append(losses, *line.Loss)
		}
	}
	return steps, losses
}

// lowest returns the step with the lowest loss.
func lowest(steps []int, losses []float64) (step int) {
	least := math.Inf(1)
	for i, l := range losses {
		if l < least {
			step, least = steps[i], l
		}
	}
	return step
}

// wandering returns a run whose learning rate is so high that its held-out loss rises after some
// steps.
func wandering(t *testing.T, extra string) scene {
	t.Helper()
	return newScene(t, "val_size: 3\neval_steps: 1\nlearning_rate: 0.1\nlr_scheduler_type: constant\nwarmup_steps: 0\nsave_dtype: fp32\n").with(extra)
}

func readFile(t *testing.T, elem ...string) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(elem...)))(t)
	return string(raw)
}

// TestSaveBest: the final model has the lowest held-out loss. Its checkpoint stays beside the newest, also if the run
// was stopped and resumed.
func TestSaveBest(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, keys := range []string{"", "save_only_model: true\n", "save_dtype: bf16\n"} {
		s := wandering(t, "save_best: true\nsave_steps: 100\nsave_total_limit: 1\n").with(keys)
		out := s.mustTrain(t)
		steps, losses := s.evals(t)
		best := lowest(steps, losses)
		if best == 0 || best > 5 {
			t.Fatalf("the scene does not tell: the best of %v is %d", losses, best)
		}
		if says := fmt.Sprintf("the model is that of step %d, whose eval_loss of %.4f is the lowest", best, losses[best-1]); !strings.Contains(out, says) {
			t.Errorf("%q does not say %q:\n%s", keys, says, out)
		}
		dir := filepath.Join(s.out, settings.CheckpointName(best))
		if readFile(t, s.out, "model.safetensors") != readFile(t, dir, "model.safetensors") {
			t.Errorf("%q: the model is not that of step %d", keys, best)
		}
		left, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*"))
		if len(left) != 2 {
			t.Errorf("%q: %v are left", keys, left)
		}
		if strings.Contains(keys, "only") {
			continue
		}
		if again := s.mustTrain(t); !strings.Contains(again, "training is done") {
			t.Errorf("%q, again: %s", keys, again)
		}
		resumed := s.in(t)
		resumed = resumed.with("cache_dir: " + filepath.Dir(resumed.out) + "/cache\n")
		if _, err := resumed.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(best+2, false, cancel)} }); !errors.Is(err, settings.ErrResumable) {
			t.Fatal(err)
		}
		resumed.mustTrain(t)
		sameRun(t, resumed, s)
	}
}

// TestBestOfAddedTokens: with save_only_model, the checkpoint of the best evaluation contains the
// embedding rows of tokens that add_tokens has added.
func TestBestOfAddedTokens(t *testing.T) {
	testkit.NotShort(t)
	s, _ := tokenScene(t, "")
	s = s.with("save_best: true\nsave_only_model: true\nsave_steps: 100\nval_size: 1\neval_steps: 1\nlearning_rate: 0.1\nlr_scheduler_type: constant\nwarmup_steps: 0\n")
	s.mustTrain(t)
	steps, losses := s.evals(t)
	best := lowest(steps, losses)
	if best == 0 || best > 5 {
		t.Fatalf("the scene does not tell: the best of %v is %d", losses, best)
	}
	if readFile(t, s.out, "model.safetensors") != readFile(t, s.out, settings.CheckpointName(best), "model.safetensors") {
		t.Errorf("the model is not that of step %d", best)
	}
}

// TestBestIsGone: if the checkpoint with the lowest held-out loss was deleted, a resumed run says
// so. It then looks for the lowest loss among its own evaluations.
func TestBestIsGone(t *testing.T) {
	s := wandering(t, "save_best: true\nmax_steps: 6\n")
	s.mustTrain(t)
	best := lowest(s.evals(t))
	testkit.NoError(t, os.RemoveAll(filepath.Join(s.out, settings.CheckpointName(best))))
	out := s.with("max_steps: 8\n").mustTrain(t)
	if !strings.Contains(out, fmt.Sprintf("%s, which had the lowest eval_loss, is not there any more", filepath.Join(s.out, settings.CheckpointName(best)))) {
		t.Error(out)
	}
	steps, losses := s.evals(t)
	if want := lowest(steps[6:], losses[6:]); !strings.Contains(out, fmt.Sprintf("the model is that of step %d,", want)) {
		t.Errorf("want step %d of %v\n%s", want, losses, out)
	}
}

// TestEarlyStopping: a run ends without an error after early_stopping_patience evaluations without
// a lower loss. The same command then has nothing left to do. With more patience, it continues as
// if the run had never ended.
func TestEarlyStopping(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, keys := range []string{"", "save_best: true\nsave_total_limit: 1\n", "keep_checkpoints: false\n", "save_only_model: true\nsave_steps: 100\n"} {
		s := wandering(t, "max_steps: 12\nearly_stopping_patience: 2\n").with(keys)
		out := s.mustTrain(t)
		steps, losses := s.evals(t)
		last := len(steps)
		if best := lowest(steps, losses); last >= 11 || best != last-2 {
			t.Fatalf("%q: stopped after step %d, the best is %d of %v", keys, last, best, losses)
		}
		if !strings.Contains(out, fmt.Sprintf("early stopping: the run ends after step %d of 12, since the last 2 evaluations did not lower eval_loss\n", last)) {
			t.Errorf("%q: %s", keys, out)
		}
		if again := s.mustTrain(t); !strings.Contains(again, "training is done, ended by early stopping; a larger early_stopping_patience than 2 goes on") {
			t.Errorf("%q, again: %s", keys, again)
		}
		if strings.Contains(keys, "keep") || strings.Contains(keys, "only") {
			if left, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*")); len(left) > 0 {
				t.Errorf("%q: %v are left beside the model", keys, left)
			}
			continue
		}
		// If a run is killed after its early stop but before it has written its model, the same
		// command stops at the same step.
		testkit.NoError(t, os.Remove(filepath.Join(s.out, settings.EndFile)))
		out = s.mustTrain(t)
		if again, _ := s.evals(t); len(again) != last || !strings.Contains(out, fmt.Sprintf("early stopping: the run ends after step %d of 12", last)) {
			t.Errorf("%q, killed at its end: %d evaluations, had %d\n%s", keys, len(again), last, out)
		}
		longer := "early_stopping_patience: 3\n"
		never := s.in(t).with(longer)
		never = never.with("cache_dir: " + filepath.Dir(never.out) + "/cache\n")
		never.mustTrain(t)
		s.with(longer).mustTrain(t)
		if a, b := s.metrics(t, timedKeys...), never.metrics(t, timedKeys...); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("%q: with more patience\n%s\nwant\n%s", keys, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		if readFile(t, s.out, "model.safetensors") != readFile(t, never.out, "model.safetensors") {
			t.Errorf("%q: with more patience the model is another", keys)
		}
	}
}

// TestEarlyStoppingIsResumed: a run that is interrupted during any evaluation and resumed stops
// early at the same step.
func TestEarlyStoppingIsResumed(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := wandering(t, "max_steps: 12\nearly_stopping_patience: 2\nsave_best: true\n")
	want.mustTrain(t)
	_, losses := want.evals(t)
	for n := 1; n <= len(losses); n += 2 {
		got := want.in(t)
		got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n")
		evals := 0
		_, err := got.interrupted(t, func(cancel func()) settings.Hooks {
			return settings.Hooks{Packing: func(pass int, eval bool) {
				if eval && pass == 1 {
					if evals++; evals == n {
						cancel()
					}
				}
			}}
		})
		if err != nil && !errors.Is(err, settings.ErrResumable) {
			t.Fatal(err)
		}
		got.mustTrain(t)
		if a, b := got.metrics(t, timedKeys...), want.metrics(t, timedKeys...); strings.Join(a, "\n") != strings.Join(b, "\n") {
			t.Errorf("stopped in evaluation %d\n%s\nwant\n%s", n, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		for _, name := range []string{"model.safetensors", settings.EndFile} {
			if readFile(t, got.out, name) != readFile(t, want.out, name) {
				t.Errorf("stopped in evaluation %d: %s differs", n, name)
			}
		}
	}
}
