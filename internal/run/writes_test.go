package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// saved returns the names of a scene's checkpoints, with "*" behind those that can be resumed.
func (s scene) saved(t *testing.T) []string {
	t.Helper()
	dirs := testkit.Must(filepath.Glob(filepath.Join(s.out, "checkpoint-*")))(t)
	var out []string
	for _, dir := range dirs {
		if err := checkpoint.Verify(dir); err != nil {
			t.Error(err)
		}
		name := strings.TrimPrefix(filepath.Base(dir), "checkpoint-")
		if _, err := os.Stat(filepath.Join(dir, "optimizer")); err == nil {
			name += "*"
		}
		out = append(out, name)
	}
	return out
}

// evaluated returns the steps at which a scene was evaluated.
func (s scene) evaluated(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, line := range s.metrics(t) {
		var m struct {
			Step int
			Loss *float64 `json:"eval_loss"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &m))
		if m.Loss != nil {
			out = append(out, strconv.Itoa(m.Step))
		}
	}
	return out
}

// TestWhatIsSaved: the keys decide which checkpoints a run of 8 steps, 3 per epoch, leaves and at
// which steps it evaluates. They change no bit of the model. The same command again says that the
// run is finished.
func TestWhatIsSaved(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	pattern := newScene(t, "val_size: 2\n")
	pattern.mustTrain(t)
	want, end := pattern.left(t)["model.safetensors"], pattern.left(t)[settings.EndFile]
	for extra, tc := range map[string]struct{ saved, evaluated string }{
		"":                       {"8*", "8"},
		"save_strategy: epoch\n": {"3* 6* 8*", "8"},
		"save_strategy: epoch\nsave_total_limit: 1\neval_strategy: epoch\n":              {"8*", "3 6 8"},
		"save_steps: 0.3\neval_steps: 0.5\n":                                             {"3* 6* 8*", "4 8"},
		"save_strategy: no\neval_strategy: no\n":                                         {"", ""},
		"save_only_model: true\nsave_steps: 3\neval_strategy: steps\nlogging_steps: 5\n": {"3 6", "5 8"},
		"keep_checkpoints: false\nsave_steps: 3\n":                                       {"", "8"},
		"keep_checkpoints: false\nsave_only_model: true\nsave_steps: 4\n":                {"", "8"},
	} {
		s := pattern.in(t).with(extra)
		s.mustTrain(t)
		if got := strings.Join(s.saved(t), " "); got != tc.saved {
			t.Errorf("%q: checkpoints %s, not %s", extra, got, tc.saved)
		}
		if got := strings.Join(s.evaluated(t), " "); got != tc.evaluated {
			t.Errorf("%q: evaluations after %s, not %s", extra, got, tc.evaluated)
		}
		if got, err := os.ReadFile(filepath.Join(s.out, settings.EndFile)); err != nil || string(got) != end {
			t.Errorf("%q: the run has ended as\n%s\nnot\n%s", extra, got, end)
		}
		again := func(s scene) {
			t.Helper()
			h := settings.Hooks{Allocating: func() { t.Errorf("%q: the run takes memory", extra) }}
			if out, err := s.train(t, t.Context(), h); err != nil || !strings.Contains(out, "step 8 of 8: training is done") {
				t.Errorf("%q: %v\n%s", extra, err, out)
			}
			if raw, err := os.ReadFile(filepath.Join(s.out, "model.safetensors")); err != nil || string(raw) != want {
				t.Errorf("%q: the model is another, %v", extra, err)
			}
		}
		again(s)
		again(s.with("keep_checkpoints: false\n"))
		if got := s.saved(t); len(got) > 0 {
			t.Errorf("%q: keep_checkpoints: false has left %s", extra, got)
		}
	}
}

// TestModelOnlyCheckpoint: a checkpoint of a run with save_only_model is a model directory from
// which another run can train.
func TestModelOnlyCheckpoint(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_only_model: true\nsave_steps: 4\n")
	s.mustTrain(t)
	dir := filepath.Join(s.out, settings.CheckpointName(4))
	whole := s.in(t).with("save_only_model: false\n")
	whole.mustTrain(t)
	for _, name := range []string{"model.safetensors", "config.json"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		want, werr := os.ReadFile(filepath.Join(whole.out, settings.CheckpointName(4), name))
		if err != nil || werr != nil || !slices.Equal(got, want) {
			t.Errorf("%s is not that of a whole checkpoint: %v, %v", name, err, werr)
		}
	}
	s.in(t).without("model").with("model_name_or_path: " + dir + "\n").mustTrain(t)
	_, err := s.in(t).with("resume_from_checkpoint: "+dir+"\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml:", dir+" was saved with save_only_model", "model_name_or_path: "+dir)
}

// TestEndedRunIsNotLengthened: a finished run that kept its last checkpoint can continue to a
// larger max_steps. A run that kept only its model cannot, and says what to do instead.
func TestEndedRunIsNotLengthened(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const more = "lr_scheduler_type: constant\n"
	for _, extra := range []string{"save_strategy: no\n", "keep_checkpoints: false\n", "save_only_model: true\nsave_steps: 0\n"} {
		s := newScene(t, extra+more)
		s.mustTrain(t)
		longer := s.with("max_steps: 9\n")
		h := settings.Hooks{Allocating: func() { t.Errorf("%q: the run takes memory", extra) }}
		_, err := longer.train(t, t.Context(), h)
		checkError(t, err, true, "run.yaml:", "holds the model of a run of 8 steps and not its optimizer's state, so it cannot be lengthened to 9",
			"model_name_or_path: "+s.out, "resume_from_checkpoint: false")
		_, err = s.with("learning_rate: 0.02\nseed: 3\n").train(t, t.Context(), h)
		if err == nil {
			t.Errorf("%q: another run is taken for the one that is done", extra)
		}
		longer.with("resume_from_checkpoint: false\n").mustTrain(t)
		if lines := longer.metrics(t); len(lines) != 9 {
			t.Errorf("%q: %d lines of metrics", extra, len(lines))
		}
	}
}

// TestDamagedEnd: a finished run without checkpoints, whose model or end mark is damaged, does not
// start anew over the rest of the model. It starts anew if nothing of the model is left, and
// resumes if there is a checkpoint.
func TestDamagedEnd(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "keep_checkpoints: false\n")
	s.mustTrain(t)
	read := func(s scene, name string) string {
		t.Helper()
		raw := testkit.Must(os.ReadFile(filepath.Join(s.out, name)))(t)
		return string(raw)
	}
	whole := map[string]string{"model.safetensors": read(s, "model.safetensors"), settings.EndFile: read(s, settings.EndFile)}
	for name, to := range map[string]int{"model.safetensors": len(whole["model.safetensors"]) - 1, settings.EndFile: len(whole[settings.EndFile]) / 2} {
		write(t, filepath.Join(s.out, name), whole[name][:to])
		_, err := s.train(t, t.Context(), settings.Hooks{Allocating: func() { t.Errorf("%s: the run takes memory", name) }})
		checkError(t, err, true, "run.yaml", "holds a finished run that is damaged and no checkpoint", filepath.Join(s.out, name), "resume_from_checkpoint: false")
		if read(s, name) != whole[name][:to] {
			t.Errorf("%s: what was left has changed", name)
		}
		write(t, filepath.Join(s.out, name), whole[name])
	}
	again := func(s scene, what string) {
		t.Helper()
		s.mustTrain(t)
		if read(s, "model.safetensors") != whole["model.safetensors"] {
			t.Errorf("%s: another model than before", what)
		}
	}
	cut := func(s scene) {
		write(t, filepath.Join(s.out, "model.safetensors"), whole["model.safetensors"][:99])
	}
	cut(s)
	again(s.with("resume_from_checkpoint: false\n"), "started afresh")
	cut(s)
	again(s.with("overwrite_output_dir: true\n"), "overwritten")
	remove(t, filepath.Join(s.out, "model.safetensors"))
	again(s, "no model")
	kept := newScene(t, "")
	kept.mustTrain(t)
	cut(kept)
	again(kept, "with a checkpoint")
}

// TestInterruptedWithoutCheckpoints: an interrupted run that saves no checkpoints says so, and the
// same command begins anew.
func TestInterruptedWithoutCheckpoints(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	for extra, tc := range map[string]struct{ says, again string }{
		"save_strategy: no\n":     {"with save_strategy: no nothing is kept, and the same command begins again", ""},
		"save_only_model: true\n": {"with save_only_model the run cannot be resumed, but another can train from the weights in ", "was saved with save_only_model"},
	} {
		s := newScene(t, extra)
		_, err := s.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(3, cancel) })
		if !errors.Is(err, settings.ErrInterrupted) || errors.Is(err, settings.ErrResumable) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: %v", extra, err)
		}
		_, err = s.train(t, t.Context(), settings.Hooks{})
		if tc.again == "" && err != nil || tc.again != "" && (err == nil || !strings.Contains(err.Error(), tc.again)) {
			t.Errorf("%q: again: %v", extra, err)
		}
	}
}

// TestInterruptedAtTheEnd: a run that saves no checkpoint of its last step, and is interrupted in
// the evaluation after it, still writes its model.
func TestInterruptedAtTheEnd(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	// Each batch of the evaluation has one row, so the evaluation can be interrupted between rows.
	want := newScene(t, "val_size: 7\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\npipeline: {batches_ahead: 1}\n")
	want.mustTrain(t)
	for _, extra := range []string{"save_strategy: no\n", "keep_checkpoints: false\nsave_steps: 4\n", "save_only_model: true\n"} {
		s := want.in(t).with(extra)
		out, err := s.interrupted(t, func(cancel func()) settings.Hooks {
			return settings.Hooks{Packing: func(_ int, eval bool) {
				if eval {
					cancel()
				}
			}}
		})
		if strings.Contains(out, "eval_loss") {
			t.Errorf("%q: the evaluation was made", extra)
		}
		if err != nil {
			t.Errorf("%q: %v\n%s", extra, err, out)
		}
		if got := s.modelBytes(t); got != want.left(t)["model.safetensors"] {
			t.Errorf("%q: the model is another", extra)
		}
	}
}

// modelBytes returns the content of the model.safetensors that the scene's run has written.
func (s scene) modelBytes(t *testing.T) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, "model.safetensors")))(t)
	return string(raw)
}

// cancelAt is a writer for a run's output that cancels the run when the output contains word.
type cancelAt struct {
	word   string
	cancel func()
}

func (c cancelAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.word) {
		c.cancel()
	}
	return len(p), nil
}

// TestInterruptedSample: a run without checkpoints is finished once its model is written, even if
// it is interrupted while it generates the final sample.
func TestInterruptedSample(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_strategy: no\nmax_steps: 1\nsample_prompt: \"x\"\n")
	s.yaml = override(s.yaml, strings.Replace(tinyModel, "vocab_size: 48", "vocab_size: 256", 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Train(ctx, s.config(t), settings.Options{Stdout: cancelAt{"--- sample ---", cancel}, Stderr: io.Discard})
	if !errors.Is(err, settings.ErrInterrupted) || errors.Is(err, settings.ErrResumable) {
		t.Errorf("got %v", err)
	}
	out, err := s.train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("the run takes memory") }})
	if err != nil || !strings.Contains(out, "step 1 of 1: training is done") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEpochsOfAnAlteredRun: an epoch ends with its last row, even if a resumed run has fewer rows
// per step from the middle of the epoch on.
func TestEpochsOfAnAlteredRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_strategy: epoch\neval_strategy: epoch\nmax_steps: 1\nlr_scheduler_type: constant\n")
	s = s.with("eval_dataset: " + s.rows + "\n")
	s.mustTrain(t)
	s = s.with("max_steps: 12\nper_device_train_batch_size: 1\n") // 7 rows are left of the epoch
	s.mustTrain(t)
	if got := strings.Join(s.saved(t), " "); got != "1* 11* 12* 5*" {
		t.Errorf("checkpoints %s", got)
	}
	if got := strings.Join(s.evaluated(t), " "); got != "1 5 11 12" {
		t.Errorf("evaluations after %s", got)
	}
}
