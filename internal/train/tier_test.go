package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"mt/host/extents"
)

// onDisks is the scene with its states in two directories, all but a part of which host_memory
// has no room for.
func (s scene) onDisks(t *testing.T) scene {
	t.Helper()
	j, _, err := openRun(nil, s.config(t), Options{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer j.closeAfter(&err)
	table := j.plan.Table()
	state := int64(0)
	for l := range j.plan.Layouts {
		state += j.plan.ExtentBytes(l)
	}
	return s.with(fmt.Sprintf("state_dir: [%s/a, %s/b]\nhost_memory: %d\npipeline: {state_slots: 1, micro_batch_tokens: %d, head_shards: %d, activation_slots: %d}\ngrad_dtype: fp32\nrecompute: full\n",
		s.root, s.root, table.Host+table.AllDevices-state/2, j.plan.Limits.MicroBatchTokens, j.plan.Spec.Shards(), j.plan.Depths.ActivationSlots))
}

// TestStatesOnDisks: a run whose states are on disks ends as one in memory, with its checkpoints and an exact
// model, and says what goes where; files are gone at the end.
func TestStatesOnDisks(t *testing.T) {
	for name, extra := range map[string]string{"fp32": "save_dtype: fp32\n", "unclipped": "compute_dtype: bf16\nmax_grad_norm: 0\nsave_dtype: fp32\n", "8-bit": "optim: adamw_8bit\n",
		"bf16 master": "compute_dtype: bf16\nmaster_dtype: bf16\nsave_dtype: fp32\n"} {
		t.Run(name, func(t *testing.T) {
			want := newScene(t, "save_steps: 3\nrecompute: full\n"+extra)
			want.mustTrain(t)
			got := want.in(t).onDisks(t)
			out := got.mustTrain(t)
			what := "moments"
			if name == "unclipped" {
				what = "lower halves and moments" // fp32 weights and those that are bf16 alone have no lower halves
			}
			if !regexp.MustCompile(`disk +state +\S+ \S+ +` + what + ` of [1-9]`).MatchString(out) {
				t.Errorf("nothing is said to be on disks:\n%s", out)
			}
			sameRun(t, got, want)
			for _, dir := range []string{"a", "b"} {
				if left, _ := os.ReadDir(filepath.Join(got.root, dir)); len(left) > 0 {
					t.Errorf("%v is left in state_dir", left)
				}
			}
			// From a checkpoint, in memory and with disks.
			for _, step := range []string{"checkpoint-3", "checkpoint-6"} {
				again := got.in(t)
				if err := os.CopyFS(filepath.Join(again.out, step), os.DirFS(filepath.Join(got.out, step))); err != nil {
					t.Fatal(err)
				}
				again.mustTrain(t)
				sameModel(t, again, want)
			}
		})
	}
}

// sameModel compares the final models of two runs.
func sameModel(t *testing.T, got, want scene) {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(got.out, "model.safetensors"))
	b, err2 := os.ReadFile(filepath.Join(want.out, "model.safetensors"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Error("the models differ")
	}
}

// TestDamagedState: a state that changes on its disk ends the run with an error that names layer, file and the
// way out; the same command goes on from the checkpoint and ends as a run in memory.
func TestDamagedState(t *testing.T) {
	want := newScene(t, "save_steps: 2\nrecompute: full\n")
	want.mustTrain(t)
	s := want.in(t).onDisks(t)
	spoil := func(step int) {
		if step != 3 {
			return
		}
		for _, dir := range []string{"a", "b"} {
			name := filepath.Join(s.root, dir, fmt.Sprintf(stateFile, 0))
			b, err := os.ReadFile(name)
			if err != nil {
				t.Error(err)
				return
			}
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			for i := extents.BlockBytes; i < len(b); i++ {
				b[i] ^= 1
			}
			_, err = f.WriteAt(b[extents.BlockBytes:], extents.BlockBytes)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	out, err := s.train(t, t.Context(), hooks{stepped: spoil})
	if err == nil || !strings.Contains(err.Error(), "does not come back as it was written") || !strings.Contains(err.Error(), "the state of layer ") ||
		!strings.Contains(err.Error(), "run the same command again") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := s.mustTrain(t); !strings.Contains(out, "resuming from") {
		t.Errorf("it does not go on from a checkpoint:\n%s", out)
	}
	sameModel(t, s, want)
}

// TestStateDirectories: two runs cannot have one, and that of another run is left alone.
func TestStateDirectories(t *testing.T) {
	s := newScene(t, "save_steps: 4\nrecompute: full\n").onDisks(t)
	other := s.in(t)
	var met atomic.Bool
	if out, err := s.train(t, t.Context(), hooks{stepped: func(int) {
		if met.Swap(true) {
			return
		}
		if _, err := other.train(t, t.Context(), hooks{}); err == nil || !strings.Contains(err.Error(), "state_dir: ") || !strings.Contains(err.Error(), "another run keeps its state there now") {
			t.Errorf("a second run with the same state_dir: %v", err)
		}
	}}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, filepath.Join(s.root, "a", fmt.Sprintf(stateFile, 0)), "{\"format\":\"mt state, version 1\",\"run\":\"/elsewhere\"}")
	if _, err := other.train(t, t.Context(), hooks{}); err == nil || !strings.Contains(err.Error(), "was left by the run in /elsewhere") {
		t.Errorf("with the state of another run: %v", err)
	}
	write(t, filepath.Join(s.root, "a", fmt.Sprintf(stateFile, 0)), fmt.Sprintf("{\"format\":\"mt state, version 1\",\"run\":%q}", other.out))
	other.mustTrain(t) // it has left it itself
	blocked := s.in(t)
	write(t, filepath.Join(s.root, "file"), "")
	blocked = blocked.with("state_dir: " + s.root + "/file\n")
	if _, err := blocked.train(t, t.Context(), hooks{}); err == nil || !strings.Contains(err.Error(), "state_dir: ") {
		t.Errorf("with a file in place of a directory: %v", err)
	}
}
