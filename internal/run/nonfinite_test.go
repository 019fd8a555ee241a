package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// broken returns a run that has made four good steps, and keys for resuming it. With these keys the
// update of step 5 breaks the weights, so that no later loss is finite.
func broken(t *testing.T, keys string) (s scene, breaking string) {
	t.Helper()
	s = newScene(t, keys+"lr_scheduler_type: constant\nwarmup_steps: 0\nmax_steps: 4\n")
	s.mustTrain(t)
	return s, "max_steps: 12\nlearning_rate: 1e30\n"
}

// TestWayBackFromBrokenWeights: a run that gives up after too many steps without a finite loss
// leaves and names a good checkpoint, and the next run resumes from it. It keeps this checkpoint
// even if save_total_limit would remove it.
func TestWayBackFromBrokenWeights(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for keys, says := range map[string][]string{
		"save_steps: 1\nsave_total_limit: 1\n":                                    {"step 8: ", "3 steps in a row", "the rows of steps 6 to 8"},
		"save_steps: 1\nsave_total_limit: 2\nmax_nonfinite_steps: 5\n":            {"step 10: ", "5 steps in a row", "the rows of steps 6 to 10"},
		"save_steps: 1\nsave_total_limit: 1\nmax_grad_norm: 0\nadam_beta1: 0.5\n": {"step 6: the gradient of ", "max_grad_norm > 0", "the rows of steps 6 to 6"},
	} {
		s, breaking := broken(t, keys)
		clean := s.startedAt(t, s, 4)
		good := filepath.Join(s.out, "checkpoint-4")
		for i := range 2 {
			later, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-[5-9]"))
			out, err := s.with(breaking).train(t, t.Context(), settings.Hooks{})
			checkError(t, err, false, append(says, good+" is the newest checkpoint that a later step has shown to be good", "lower learning_rate")...)
			if !strings.Contains(out, "resuming from "+good) {
				t.Errorf("%q, go %d: the run does not go on from %s:\n%s", keys, i, good, out)
			}
			if skips := strings.Contains(out, "is skipped: the run that made it failed at step") && strings.Contains(out, ", and no step after 5 was finite"); skips != (len(later) > 0) {
				t.Errorf("%q, go %d: a later checkpoint is passed over: %t\n%s", keys, i, skips, out)
			}
		}
		if later, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-[5-9]")); len(later) == 0 && !strings.Contains(keys, "max_grad_norm: 0") { // there the run may end before it saves
			t.Errorf("%q: nothing was saved while steps were skipped", keys)
		}
		// With a lower rate the resumed run does the same as a run whose weights were never broken.
		s = s.with("max_steps: 12\nlearning_rate: 0.003\n")
		if out := s.mustTrain(t); !strings.Contains(out, "resuming from "+good) {
			t.Error(out)
		}
		clean = clean.with("max_steps: 12\nlearning_rate: 0.003\n")
		clean.mustTrain(t)
		sameRun(t, s, clean)
	}
}

// TestNoWayBack: if no checkpoint is known to be good, a run resumes from another one only if the
// config names it.
func TestNoWayBack(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s, breaking := broken(t, "save_steps: 1\n")
	s = s.with(breaking)
	if _, err := s.train(t, t.Context(), settings.Hooks{}); err == nil {
		t.Fatal("the run succeeds")
	}
	for step := range 4 {
		_ = os.RemoveAll(filepath.Join(s.out, settings.CheckpointName(step+1)))
	}
	_, err := s.train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("memory is taken") }})
	checkError(t, err, true, "no checkpoint in "+s.out+" is known to be good", "no step after 5 was finite", "resume_from_checkpoint: "+s.out+"/checkpoint-", "false to start afresh")
	named := s.with("resume_from_checkpoint: " + filepath.Join(s.out, "checkpoint-5") + "\n")
	out, err := named.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, false, "no checkpoint in "+s.out+" is known to be good", "no step after 5, that of ", "resume_from_checkpoint: false")
	if !strings.Contains(out, "note: "+filepath.Join(s.out, "checkpoint-5")+": the run that made it failed at step 8") {
		t.Errorf("no note:\n%s", out)
	}
	fresh := s.in(t).with("learning_rate: 1e30\n")
	_, err = fresh.with("save_steps: 0\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, false, "no checkpoint was saved before: the next run begins at the first step")
	other := fresh.with("resume_from_checkpoint: " + filepath.Join(s.out, "checkpoint-5") + "\nsave_steps: 0\n")
	_, err = other.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, false, "no step since "+filepath.Join(s.out, "checkpoint-5")+" was finite: name an earlier checkpoint")
}

// TestModelsAreNoWayBack: with save_only_model the run names the newest good checkpoint. It does
// not claim that a run can resume from it, because the optimizer's state is missing.
func TestModelsAreNoWayBack(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	// The rate of step 1 is 0, and the update of step 2 breaks the weights.
	s := newScene(t, "save_only_model: true\nsave_steps: 1\nlr_scheduler_type: constant_with_warmup\nwarmup_steps: 8\nlearning_rate: 1e30\n")
	_, err := s.train(t, t.Context(), settings.Hooks{})
	good := filepath.Join(s.out, "checkpoint-1")
	checkError(t, err, false, "3 steps in a row", good+" is the newest checkpoint that a later step has shown to be good, but with save_only_model no run can go on from it",
		"the rows of steps 3 to 5", "model_name_or_path: "+good, "resume_from_checkpoint: false")
	if strings.Contains(err.Error(), "the next run goes on") {
		t.Error(err)
	}
}

// TestInterruptedWhileStepsAreSkipped: a run that is interrupted while it skips non-finite steps
// resumes there. It continues to count them, and still finds the good checkpoint.
func TestInterruptedWhileStepsAreSkipped(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s, breaking := broken(t, "save_steps: 1\nsave_total_limit: 1\n")
	s = s.with(breaking)
	skipped := 0
	for i := 0; ; i++ {
		out, err := s.interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(5, cancel) })
		if errors.Is(err, settings.ErrInterrupted) && i < 4 {
			skipped++
			continue
		}
		checkError(t, err, false, "3 steps in a row", "checkpoint-4 is the newest checkpoint that a later step has shown to be good", "the rows of steps 6 to ")
		if want := fmt.Sprintf("resuming from %s/checkpoint-", s.out); !strings.Contains(out, want) {
			t.Error(out)
		}
		break
	}
	if skipped == 0 {
		t.Error("the run was never interrupted")
	}
}

// TestOlderCheckpointsGoWhenTheNewestIsGood: a run keeps at most one checkpoint more than
// save_total_limit. It removes the extra one as soon as a finite step shows that the newest is
// good.
func TestOlderCheckpointsGoWhenTheNewestIsGood(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "save_steps: 3\nsave_total_limit: 1\nmax_steps: 9\n")
	list := func() string {
		found, err := filepath.Glob(filepath.Join(s.out, "checkpoint-[0-9]"))
		if err != nil {
			t.Error(err)
		}
		for i, f := range found {
			found[i] = strings.TrimPrefix(f, s.out+"/checkpoint-")
		}
		return fmt.Sprint(found)
	}
	// A save runs beside the following steps. Packing the batch of a step therefore waits until the
	// expected checkpoints are on disk.
	disk := changingFS{lazyFS{checkpoint.OS()}, make(chan struct{}, 1)}
	becomes := func(want string) {
		for list() != want {
			<-disk.changed
		}
	}
	out, err := s.train(t, t.Context(), settings.Hooks{FS: disk, Packing: func(step int, _ bool) {
		switch step {
		case 6:
			becomes("[3]")
		case 9:
			becomes("[6]")
		}
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := list(); got != "[9]" {
		t.Errorf("checkpoints %s are left", got)
	}
}

// changingFS is a disk that signals on changed when a file or folder was renamed or removed.
type changingFS struct {
	lazyFS
	changed chan struct{}
}

// tell signals a change, unless the last signal has not been received yet.
func (f changingFS) tell(err error) error {
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return err
}

func (f changingFS) Rename(from, to string) error { return f.tell(f.lazyFS.Rename(from, to)) }
func (f changingFS) Exchange(a, b string) error   { return f.tell(f.lazyFS.Exchange(a, b)) }
func (f changingFS) RemoveAll(path string) error  { return f.tell(f.lazyFS.RemoveAll(path)) }

// TestNothingTrained: a run in which every step was skipped, or whose weights are not finite at its
// end, fails and writes no model. This holds also if it has made fewer such steps than
// max_nonfinite_steps. A run of zero steps, or one that recovers, succeeds.
func TestNothingTrained(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	const constant = "lr_scheduler_type: constant\nwarmup_steps: 0\nsave_steps: 0\nmax_nonfinite_steps: 9\n"
	for _, c := range []struct {
		keys  string
		fails []string // parts of the error
		note  bool
	}{
		{"max_steps: 3\nlearning_rate: 1e39\n", []string{"the last 2 steps were skipped", "the weights of ", "are not finite: no model is written", "lower learning_rate or look at the rows of steps 2 to 3"}, false},
		{"max_steps: 3\nlearning_rate: 1e30\n", nil, true}, // its weights are large, and finite
		{"max_steps: 3\nlearning_rate: 1e-3\n", nil, false},
	} {
		s := newScene(t, constant+c.keys)
		out, err := s.train(t, t.Context(), settings.Hooks{})
		if c.fails == nil {
			if err != nil || strings.Contains(out, "the last 2 steps were skipped") != c.note {
				t.Errorf("%s: %v\n%s", c.keys, err, out)
			}
			continue
		}
		checkError(t, err, false, c.fails...)
		if _, err := os.Stat(filepath.Join(s.out, "model.safetensors")); err == nil {
			t.Errorf("%s: a model is written", c.keys)
		}
	}
	// From a checkpoint with broken weights, every step is skipped.
	s, breaking := broken(t, "save_steps: 1\nmax_nonfinite_steps: 9\n")
	s = s.with(breaking).with("max_steps: 5\n")
	s.mustTrain(t)
	again := s.with("max_steps: 7\nresume_from_checkpoint: " + filepath.Join(s.out, "checkpoint-5") + "\n")
	_, err := again.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, false, "the loss or the gradient was not finite in any of the 2 steps, so no weight was updated, and no model is written")
}
