package run

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// cancelFS is a disk that interrupts the run when it first creates a file whose path contains
// match.
type cancelFS struct {
	lazyFS
	match  string
	cancel func()
}

func (f cancelFS) Create(path string) (checkpoint.File, error) {
	if ok, _ := filepath.Match(f.match, filepath.Base(path)); ok {
		f.cancel()
	}
	return f.lazyFS.Create(path)
}

// stopsAt returns hooks that interrupt a run when it first creates a file of that name. A save runs
// beside the following steps, so the hooks also hold later batches until the interruption.
func stopsAt(name string, cancel func()) settings.Hooks {
	stopped := make(chan struct{})
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); close(stopped) }) }
	return settings.Hooks{FS: cancelFS{lazyFS{checkpoint.OS()}, name, stop}, Packing: func(step int, eval bool) {
		if step > 5 && !eval {
			<-stopped
		}
	}}
}

// TestInterrupted: a run that is interrupted during any activity ends soon with ErrInterrupted. The
// same command then continues to the same final bits.
func TestInterrupted(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 3\nval_size: 2\neval_steps: 3\n")
	want.mustTrain(t)
	for name, tc := range map[string]struct {
		hooks func(cancel func()) settings.Hooks
		saved bool // a checkpoint is there
	}{
		"while data is read":     {func(cancel func()) settings.Hooks { return settings.Hooks{Reading: func(string) { cancel() }} }, false},
		"while memory is taken":  {func(cancel func()) settings.Hooks { return settings.Hooks{Allocating: cancel} }, false},
		"before the first batch": {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(1, false, cancel)} }, false},
		"in the fourth step":     {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} }, true},
		"in an evaluation":       {func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(1, true, cancel)} }, true},
		"while saving":           {func(cancel func()) settings.Hooks { return stopsAt("layer-00001*", cancel) }, true},
		"at the end of a save":   {func(cancel func()) settings.Hooks { return stopsAt("manifest.json", cancel) }, true},
		"in the last evaluation": {func(cancel func()) settings.Hooks {
			evals := 0
			return settings.Hooks{Packing: func(_ int, eval bool) {
				if eval {
					evals++
				}
				if evals == 3 { // after steps 3, 6 and 8
					cancel()
				}
			}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := want.in(t)
			got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n")
			out, err := got.interrupted(t, tc.hooks)
			if !errors.Is(err, settings.ErrInterrupted) {
				t.Fatalf("the error is %v\n%s", err, out)
			}
			found, err := filepath.Glob(filepath.Join(got.out, "checkpoint-[0-9]"))
			if err != nil || (len(found) > 0) != tc.saved {
				t.Errorf("checkpoints are left: %v, %v", found, err)
			}
			if _, err := os.Stat(filepath.Join(got.out, "model.safetensors")); err == nil {
				t.Error("the model is written")
			}
			got.mustTrain(t)
			sameRun(t, got, want)
		})
	}
}

// TestGivenUpSteps: a run that must stop without patience aborts its step, unless part of the step
// has already reached the weights. It says so and saves the state before the step. In all cases the
// same command continues to the same end. Without long tests three steps are drawn.
func TestGivenUpSteps(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 100\n")
	want.mustTrain(t)
	for _, step := range sample(t, 8, 3) {
		got := want.in(t)
		out, err := got.interrupted(t, func(cancel func()) settings.Hooks {
			return settings.Hooks{Patience: time.Nanosecond, Packing: at(step, false, cancel)}
		})
		if err != nil && !errors.Is(err, settings.ErrResumable) {
			t.Fatalf("the error is %v\n%s", err, out)
		}
		saved := 0
		if m := regexp.MustCompile(`step (\d+) of 8 is saved`).FindStringSubmatch(out); m != nil {
			saved, _ = strconv.Atoi(m[1])
		}
		if m := regexp.MustCompile(`step (\d+) was given up, since`).FindStringSubmatch(out); m != nil && m[1] != strconv.Itoa(saved+1) {
			t.Errorf("step %d is saved\n%s", saved, out)
		}
		got.mustTrain(t)
		sameRun(t, got, want)
	}
}

// TestInterruptedEvaluations: a run that is interrupted in each evaluation saves its state,
// although no step is due for a save. After each resume it makes the evaluation. At the end no
// evaluation is missing or duplicate.
func TestInterruptedEvaluations(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 100\nlogging_steps: 3\nval_size: 5\neval_steps: 1\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n")
	want.mustTrain(t)
	if n := strings.Count(strings.Join(want.metrics(t), "\n"), "eval_loss"); n != 8 {
		t.Fatalf("%d evaluations", n)
	}
	got := want.in(t)
	cut := 0
	for spare := 0; ; spare = 1 { // a resumed run first makes the evaluation it owes
		evals := 0
		out, err := got.interrupted(t, func(cancel func()) settings.Hooks {
			return settings.Hooks{Packing: func(pass int, eval bool) {
				if eval && pass == 1 {
					evals++
				}
				if eval && evals > spare {
					cancel()
				}
			}}
		})
		m := regexp.MustCompile(`the evaluation of step (\d+) was cut off and comes first when the run goes on`).FindStringSubmatch(out)
		if err == nil {
			break
		}
		if !errors.Is(err, settings.ErrInterrupted) {
			t.Fatalf("%v\n%s", err, out)
		}
		if m == nil {
			t.Fatalf("no evaluation was cut off\n%s", out)
		}
		cut++
		if _, err := os.Stat(filepath.Join(got.out, "checkpoint-"+m[1])); err != nil {
			t.Errorf("step %s is not saved: %v\n%s", m[1], err, out)
		}
	}
	if cut != 8 {
		t.Errorf("%d evaluations were cut off", cut)
	}
	sameRun(t, got, want)
}

// at returns a hook that calls cancel when the batch of the given step is packed, of an evaluation
// if eval is true.
func at(step int, eval bool, cancel func()) func(int, bool) {
	return func(s int, e bool) {
		if s == step && e == eval {
			cancel()
		}
	}
}

// TestHiddenStatesMayMove: a run that began with hidden states on the device can resume with hidden
// states on the host, in training and evaluation. It has the same bits as a run with hidden states
// on the device throughout.
func TestHiddenStatesMayMove(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 3\nval_size: 2\neval_steps: 3\n")
	want.mustTrain(t)
	for _, binding := range []string{"unified", "copy"} {
		got := want.in(t).with("binding: " + binding + "\n")
		if out, err := got.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} }); !errors.Is(err, settings.ErrResumable) {
			t.Fatalf("the error is %v\n%s", err, out)
		}
		out := got.with("hidden_states: host\n").mustTrain(t)
		if !strings.Contains(out, "hidden states") || !strings.Contains(out, "waiting heads") {
			t.Errorf("hidden states are not on the host\n%s", out)
		}
		sameRun(t, got, want)
	}
}
