package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"mt/host/extents"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// onDisks returns the scene with optimizer states in two directories, and with a host_memory that
// has room for only half of the states.
func (s scene) onDisks(t *testing.T) scene { return s.partOnDisks(t, 2) }

// partOnDisks is like onDisks, but host memory has room for all states except one n-th.
func (s scene) partOnDisks(t *testing.T, n int64) scene {
	t.Helper()
	j, err := openRun(s.config(t), settings.Options{Stdout: os.Stdout, Stderr: os.Stderr}, open.Asks{Run: true}, nil)
	testkit.NoError(t, err)
	defer open.CloseAfter(j, &err)
	table := j.Plan.Table()
	state := int64(0)
	for l := range j.Plan.Layouts {
		state += j.Plan.ExtentBytes(l)
	}
	return s.with(fmt.Sprintf("state_dir: [%s/a, %s/b]\nhost_memory: %d\npipeline: {state_slots: 1, micro_batch_tokens: %d, head_shards: %d, activation_slots: %d}\ngrad_dtype: fp32\nrecompute: full\n",
		s.root, s.root, table.Host+table.AllDevices-state/n, j.Plan.Limits.MicroBatchTokens, j.Plan.Spec.Shards(), j.Plan.Depths.ActivationSlots))
}

// leastMemory returns the smallest host_memory in bytes with which the scene's run can be planned.
func leastMemory(t *testing.T, s scene) int64 {
	t.Helper()
	j, err := openRun(s.config(t), settings.Options{Stdout: os.Stdout, Stderr: os.Stderr}, open.Asks{Run: true}, nil)
	testkit.NoError(t, err)
	least, err := predict.SmallestFor(j.Asked)
	open.CloseAfter(j, &err)
	testkit.NoError(t, err)
	return least.Host
}

// endsAlike fails unless the run got, with states on disks, ended with the same bits as the run
// want in memory, and left no file in dirs. It also resumes got from each of its checkpoints, or
// from a drawn one, and compares the final models.
func endsAlike(t *testing.T, got, want scene, dirs ...string) {
	t.Helper()
	sameRun(t, got, want)
	for _, dir := range dirs {
		if left, _ := os.ReadDir(filepath.Join(got.root, dir)); len(left) > 0 {
			t.Errorf("%v is left in directory %s", left, dir)
		}
	}
	for _, n := range sample(t, 2, 1) {
		step := settings.CheckpointName(3 * n)
		again := got.in(t)
		testkit.NoError(t, os.CopyFS(filepath.Join(again.out, step), os.DirFS(filepath.Join(got.out, step))))
		again.mustTrain(t)
		sameModel(t, again, want)
	}
}

// TestStatesOnDisks: a run with optimizer states on disks has the same bits as a run in memory,
// also in its checkpoints. It says what is kept where, and leaves no file. Without long tests the
// resumed checkpoint is drawn.
func TestStatesOnDisks(t *testing.T) {
	testkit.NotShort(t)
	for name, extra := range map[string]string{"fp32": "save_dtype: fp32\n", "unclipped": "compute_dtype: bf16\nmax_grad_norm: 0\nsave_dtype: fp32\n", "8-bit": "optim: adamw_8bit\n", "frozen": "freeze: [norm, 'layers\\.0\\.']\n",
		"averaged": "compute_dtype: bf16\nema_decay: 0.8\n", "grouped": "lr_groups: [{name: a, modules: [v_proj], lr: 0.03}]\n",
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
			if name == "averaged" {
				what = "lower halves, moments and averages"
			}
			if !regexp.MustCompile(`disk +state +\S+ \S+ +` + what + ` of [1-9]`).MatchString(out) {
				t.Errorf("nothing is said to be on disks:\n%s", out)
			}
			endsAlike(t, got, want, "a", "b")
		})
	}
}

// TestMemoryIsAskedAnew: a run that began with a small host_memory and resumes without this key
// uses the machine's whole memory. Its final model is the same.
func TestMemoryIsAskedAnew(t *testing.T) {
	want := newScene(t, "save_steps: 3\nrecompute: full\n")
	want.mustTrain(t)
	small := want.in(t).onDisks(t)
	small.mustTrain(t)
	for _, more := range []string{"", "host_memory: auto\n"} {
		again := want.in(t)
		again = again.with(fmt.Sprintf("state_dir: [%s/a]\n", again.root) + more)
		testkit.NoError(t, os.CopyFS(filepath.Join(again.out, "checkpoint-3"), os.DirFS(filepath.Join(small.out, "checkpoint-3"))))
		if out := again.mustTrain(t); !strings.Contains(out, "host memory has room for everything") {
			t.Errorf("%q: the memory of the first start holds on:\n%s", more, out)
		}
		sameModel(t, again, want)
	}
}

// TestNumericsOfLittleMemory: a small host_memory can force settings that change bits. The run
// names each of them, with the value that a run with enough memory has. It names none if memory
// suffices or if the config gives the settings.
func TestNumericsOfLittleMemory(t *testing.T) {
	s := newScene(t, "")
	s = s.with(fmt.Sprintf("state_dir: [%s/a]\n", s.root))
	notesOf := func(s scene) string {
		j, err := openRun(s.config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard}, open.Asks{Run: true}, nil)
		testkit.NoError(t, err)
		defer open.CloseAfter(j, &err)
		return strings.Join(j.AllNotes(), "\n")
	}
	const note = "a run with room for everything has pipeline.micro_batch_tokens: "
	j, err := openRun(s.config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard}, open.Asks{Run: true}, nil)
	testkit.NoError(t, err)
	tokens := j.Plan.Limits.MicroBatchTokens
	least, err := predict.SmallestFor(j.Asked)
	open.CloseAfter(j, &err)
	testkit.NoError(t, err)
	small := fmt.Sprintf("host_memory: %d\n", least.Host)
	if got := notesOf(s.with(small)); !strings.Contains(got, note+fmt.Sprint(tokens)) {
		t.Errorf("notes of a small host_memory:\n%s", got)
	}
	if got := notesOf(s); strings.Contains(got, note) {
		t.Errorf("notes of a run with room:\n%s", got)
	}
}

// TestWeightsOnDisks: with the least host memory, weights of blocks are on disks too. The run ends like a run in
// memory, also from its checkpoints, uses the planned memory, and leaves no file. Without long tests one checkpoint
// is drawn.
func TestWeightsOnDisks(t *testing.T) {
	testkit.NotShort(t)
	for name, extra := range map[string]string{"in place": "max_grad_norm: 0\n", "copied": "compute_dtype: bf16\nmax_grad_norm: 0\nbinding: copy\n", "experts": "experts\nmax_grad_norm: 0\nbinding: copy\n", "clipped": "compute_dtype: bf16\nmaster_dtype: bf16\noptim: adamw_8bit\n",
		"averaged": "compute_dtype: bf16\nema_decay: 0.8\nmax_grad_norm: 0\n",
		"frozen":   "experts\nmax_grad_norm: 0\nbinding: copy\nfreeze: [self_attn, 'experts\\.1?[0-9]\\.']\n"} {
		t.Run(name, func(t *testing.T) {
			want := recipeScene(t, extra+"save_steps: 3\nrecompute: full\nsave_dtype: fp32\n")
			want.mustTrain(t)
			got := want.in(t).onDisks(t)
			got = got.with(fmt.Sprintf("param_dir: [%s/c]\n", got.root))
			least := leastMemory(t, got)
			got = got.with(fmt.Sprintf("host_memory: %d\n", least))
			out := got.mustTrain(t)
			if !regexp.MustCompile(`disk +weights +\S+ \S+ +what streams to the device, of [1-9]`).MatchString(out) {
				t.Errorf("no weights are said to be on disks:\n%s", out)
			}
			endsAlike(t, got, want, "a", "b", "c")
			if _, err := got.in(t).with("sample_prompt: a\n").train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "sample_prompt: the weights of this run are on disks") {
				t.Errorf("with a prompt for a sample: %v", err)
			}
		})
	}
}

// TestCompressedStates: with compress: byteplane a run ends like a run in memory, moves fewer bytes than its states
// have, and reports the cost of compression.
func TestCompressedStates(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("trains a large model; the goroutines that compress run in the tests of host/extents")
	}
	want := newScene(t, "max_steps: 3\nsave_strategy: no\nrecompute: full\nsave_dtype: fp32\n")
	want.yaml = strings.NewReplacer("hidden_size: 16", "hidden_size: 256", "intermediate_size: 24", "intermediate_size: 1536", "num_hidden_layers: 3", "num_hidden_layers: 8").Replace(want.yaml)
	want.mustTrain(t)
	got := want.in(t).onDisks(t).with("compress: byteplane\n")
	out := got.mustTrain(t)
	if !regexp.MustCompile(`host +compression +24 MiB`).MatchString(out) {
		t.Errorf("nothing is said of compression:\n%s", out)
	}
	sameModel(t, got, want)
	var last struct {
		Read    int64 `json:"disk_read_bytes"`
		Written int64 `json:"disk_write_bytes"`
	}
	raw, err := os.ReadFile(filepath.Join(got.out, "metrics.jsonl"))
	testkit.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, `"disk_read_bytes"`) {
			testkit.NoError(t, json.Unmarshal([]byte(line), &last))
		}
	}
	j, err := openRun(got.config(t), settings.Options{Stdout: os.Stdout, Stderr: os.Stderr}, open.Asks{Run: true}, nil)
	testkit.NoError(t, err)
	defer open.CloseAfter(j, &err)
	if n, _ := j.Plan.DiskBytes(); n == 0 || last.Read == 0 || last.Read > n*9/10 || last.Written > n*9/10 {
		t.Errorf("%d bytes are read and %d written of states of %d", last.Read, last.Written, n)
	}
	if takes := extents.ScratchBytes(j.Plan.ChunkBytes()); takes > 24<<20 {
		t.Errorf("%d bytes are taken, more than planned", takes)
	}
}

// sameModel fails unless two runs have the same final model.
func sameModel(t *testing.T, got, want scene) {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(got.out, "model.safetensors"))
	b, err2 := os.ReadFile(filepath.Join(want.out, "model.safetensors"))
	testkit.NoError(t, errors.Join(err, err2))
	if string(a) != string(b) {
		t.Error("the models differ")
	}
}

// TestDamagedState: if a state on disk changes behind the run's back, the run ends with an error
// that names the layer, the file and the way out. The same command resumes from the checkpoint and
// has the same bits as a run in memory.
func TestDamagedState(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "save_steps: 2\nrecompute: full\n")
	want.mustTrain(t)
	s := want.in(t).onDisks(t)
	spoil := func(step int) {
		if step != 3 {
			return
		}
		for _, dir := range []string{"a", "b"} {
			name := filepath.Join(s.root, dir, "mt-state-0.bin")
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
	out, err := s.train(t, t.Context(), settings.Hooks{Stepped: spoil})
	if err == nil || !strings.Contains(err.Error(), "does not come back as it was written") || !strings.Contains(err.Error(), "the state of layer ") ||
		!strings.Contains(err.Error(), "run the same command again") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := s.mustTrain(t); !strings.Contains(out, "resuming from") {
		t.Errorf("it does not go on from a checkpoint:\n%s", out)
	}
	sameModel(t, s, want)
}

// TestStateDirectories: two runs cannot use the same state_dir, and the files of another run in it
// are not touched.
func TestStateDirectories(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "save_steps: 4\nrecompute: full\n").onDisks(t)
	other := s.in(t)
	var met atomic.Bool
	if out, err := s.train(t, t.Context(), settings.Hooks{Stepped: func(int) {
		if met.Swap(true) {
			return
		}
		if _, err := other.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "state_dir: ") || !strings.Contains(err.Error(), "another run keeps its state there now") {
			t.Errorf("a second run with the same state_dir: %v", err)
		}
	}}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, filepath.Join(s.root, "a", "mt-state-0.bin"), "{\"format\":\"mt state, version 1\",\"run\":\"/elsewhere\"}")
	if _, err := other.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "was left by the run in /elsewhere") {
		t.Errorf("with the state of another run: %v", err)
	}
	write(t, filepath.Join(s.root, "a", "mt-state-0.bin"), fmt.Sprintf("{\"format\":\"mt state, version 1\",\"run\":%q}", other.out))
	other.mustTrain(t) // it has left it itself
	blocked := s.in(t)
	write(t, filepath.Join(s.root, "file"), "")
	blocked = blocked.with("state_dir: " + s.root + "/file\n")
	if _, err := blocked.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "state_dir: ") {
		t.Errorf("with a file in place of a directory: %v", err)
	}
}
