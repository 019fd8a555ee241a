package run

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/open"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestAverageOfNothing: before the first update, the saved average of the weights equals the
// weights. It is not zero.
func TestAverageOfNothing(t *testing.T) {
	s := newScene(t, "ema_decay: 0.9\nsave_dtype: fp32\n")
	j := openScene(t, s)
	w := &save.Weights{Output: j}
	t.Cleanup(func() { _ = w.Close() })
	testkit.NoError(t, w.Open(nil))
	testkit.NoError(t, open.Initialise(w.Store, j.Model, 1, nil))
	testkit.NoError(t, w.WriteAverage(0, false, nil, io.Discard))
	got := loadStore(t, filepath.Join(s.out, settings.AverageDir))
	for i, l := range w.Store.Layers {
		for k, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			for _, part := range tl.Stored {
				a, b := rowsOf(l, k, part), rowsOf(got.Layers[i], k, part)
				for x := range a {
					if a[x] != b[x] {
						t.Fatalf("%s: element %d is %v, want %v", part.Name, x, b[x], a[x])
					}
				}
			}
		}
	}
}

// TestAverageIsAModel: the run leaves the averages as a complete model, in bf16 if asked for. They belong to the last
// step even if the final model is the best one. Another run can start from the averages, except a run that would
// overwrite them.
func TestAverageIsAModel(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	plain := newScene(t, "val_size: 2\neval_steps: 2\nsave_steps: 2\n")
	plain.mustTrain(t)
	s := plain.in(t).with("ema_decay: 0.5\n")
	out := s.mustTrain(t)
	if !strings.Contains(out, "ema of the weights, fp32") || !strings.Contains(out, "as a model, in ema in output_dir") {
		t.Errorf("the plan does not list the averages:\n%s", out)
	}
	sameModel(t, s, plain)
	ema := filepath.Join(s.out, settings.AverageDir)
	testkit.NoError(t, checkpoint.CheckModel(ema, openScene(t, s.in(t)).Model.Layouts(false)))
	for _, name := range []string{"config.json"} {
		a, err := os.ReadFile(filepath.Join(s.out, name))
		b, err2 := os.ReadFile(filepath.Join(ema, name))
		if err != nil || err2 != nil || string(a) != string(b) {
			t.Errorf("%s differs: %v, %v", name, err, err2)
		}
	}
	left := filepath.Join(ema, "model.tmp-7")
	write(t, filepath.Join(left, "model.safetensors"), "half")
	if out := s.with("resume_from_checkpoint: false\n").mustTrain(t); !strings.Contains(out, "the average of the weights is written to "+ema) {
		t.Errorf("the run does not say where the average is:\n%s", out)
	}
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s, which a killed run has left, is still there", left)
	}
	best := plain.in(t).with("ema_decay: 0.5\nsave_best: true\nlearning_rate: 5\n")
	best.mustTrain(t)
	last := plain.in(t).with("ema_decay: 0.5\nlearning_rate: 5\n")
	last.mustTrain(t)
	best.out, last.out = filepath.Join(best.out, settings.AverageDir), filepath.Join(last.out, settings.AverageDir)
	sameModel(t, best, last)
	for _, extra := range []string{"", "ema_decay: 0\n"} {
		from := s.with("model_name_or_path: " + ema + "\nmodel:\n" + extra)
		from.yaml = strings.Replace(from.yaml, "\nmodel:\n", "\n", 1)
		if _, err := from.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), ema+" is where the model is loaded from") {
			t.Errorf("%sa run over the model that it begins from: %v", extra, err)
		}
	}
}

// TestAverageOfAnEarlierRun: a run that keeps no average of its weights removes the average that an
// earlier run left in the same directory. A folder of that name without a model stays.
func TestAverageOfAnEarlierRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "resume_from_checkpoint: false\n")
	ema := filepath.Join(s.out, settings.AverageDir)
	s.with("ema_decay: 0.5\n").mustTrain(t)
	if out := s.mustTrain(t); !strings.Contains(out, ema+", the average of an earlier run's weights, is removed") {
		t.Errorf("the run does not say that it removes an average:\n%s", out)
	}
	if _, err := os.Stat(ema); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", ema, err)
	}
	note := filepath.Join(ema, "note")
	write(t, note, "mine")
	if out := s.mustTrain(t); strings.Contains(out, "is removed") {
		t.Errorf("the run removes what is no average:\n%s", out)
	}
	if _, err := os.Stat(note); err != nil {
		t.Error(err)
	}
}

// TestGoesOnWithoutAverage: a resumed run can begin or cease to average its weights only with
// reset_optimizer. It can change ema_decay, and says so.
func TestGoesOnWithoutAverage(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "ema_decay: 0.5\nsave_steps: 4\n")
	s.mustTrain(t)
	last := settings.CheckpointName(s.config(t).MaxSteps)
	more := "max_steps: 12\n"
	again := func(extra string) (string, error) {
		got := s.in(t).with(more + extra)
		testkit.NoError(t, os.CopyFS(filepath.Join(got.out, last), os.DirFS(filepath.Join(s.out, last))))
		return got.train(t, t.Context(), settings.Hooks{})
	}
	_, err := again("ema_decay: 0\n")
	checkError(t, err, true, "run.yaml:", "ema_decay was 0.5, is 0.0", "set reset_optimizer: true")
	if out, err := again("ema_decay: 0\nreset_optimizer: true\n"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := again("ema_decay: 0.25\n"); err != nil || !strings.Contains(out, ", ema_decay 0.25 (was 0.5)") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAverageOfEpochs: an average of the weights that would start only at the last step is refused,
// also if num_train_epochs determines the number of steps.
func TestAverageOfEpochs(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "ema_decay: 0.5\nmax_steps: -1\nnum_train_epochs: 1\n")
	_, err := s.in(t).with("ema_update_after_step: 2\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml:", "ema_update_after_step is 2 and the run has 3 steps")
	s.in(t).with("ema_update_after_step: 1\n").mustTrain(t)
}

// TestAverageIsWrittenAgain: if the averaged model of a finished run is missing, the same command
// writes it again with the same bytes. Otherwise the command does not write it.
func TestAverageIsWrittenAgain(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "ema_decay: 0.5\n")
	s.mustTrain(t)
	ema := filepath.Join(s.out, settings.AverageDir)
	was := read(t, filepath.Join(ema, "model.safetensors"))
	for _, gone := range []bool{true, false} {
		if gone {
			testkit.NoError(t, os.RemoveAll(ema))
		}
		if out := s.mustTrain(t); strings.Contains(out, "is written to "+ema) != gone {
			t.Errorf("gone %t:\n%s", gone, out)
		}
		if read(t, filepath.Join(ema, "model.safetensors")) != was {
			t.Error("the average is another")
		}
	}
}
