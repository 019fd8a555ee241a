package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// fullFS is a disk that becomes full. It counts the writes to paths that contain match, and all
// writes after the first after ones fail. From then on Free returns free, except in its first
// `honest` calls.
type fullFS struct {
	match  string
	after  int
	free   int64
	writes int
	honest int
	asked  int
	lazyFS
}

func (f *fullFS) Free(path string) (int64, error) {
	if f.asked++; f.free > 0 && f.asked > f.honest {
		return f.free, nil
	}
	return f.lazyFS.Free(path)
}

func (f *fullFS) Create(path string) (checkpoint.File, error) {
	file, err := f.lazyFS.Create(path)
	return fullFile{file, f, path}, err
}

type fullFile struct {
	checkpoint.File
	fs   *fullFS
	path string
}

// WriteAt writes half of the bytes and then fails once the disk is full, as a real disk does.
func (f fullFile) WriteAt(p []byte, off int64) (int, error) {
	if !strings.Contains(f.path, f.fs.match) {
		return f.File.WriteAt(p, off)
	}
	if f.fs.writes++; f.fs.writes <= f.fs.after {
		return f.File.WriteAt(p, off)
	}
	f.fs.free = 1000
	n, _ := f.File.WriteAt(p[:len(p)/2], off)
	return n, &os.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
}

// TestFullDisk: if a save fails, the run ends with an error that says what is missing and where. The unfinished save
// is removed, and older checkpoints remain and can be resumed.
func TestFullDisk(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 2\n")
	want.mustTrain(t)
	for name, tc := range map[string]struct {
		disk  fullFS
		says  []string
		stand []string
	}{
		"first save, no room":     {fullFS{match: "checkpoint-2", free: 5000, honest: 2}, []string{"save checkpoint-2", "/out has 4.9 KiB free and the save takes", "more is needed", "save_total_limit"}, nil},
		"first save, weights":     {fullFS{match: "checkpoint-2.tmp", after: 9}, []string{"save checkpoint-2: write ", "safetensors: no space left on device", "to write, 1000 B free", "more is needed"}, nil},
		"second save, header":     {fullFS{match: "checkpoint-4.tmp"}, []string{"save checkpoint-4: write ", "1000 B free"}, []string{"checkpoint-2"}},
		"third save, the weights": {fullFS{match: "checkpoint-6.tmp", after: 20}, []string{"save checkpoint-6: write ", "1000 B free"}, []string{"checkpoint-2", "checkpoint-4"}},
		"the last save, manifest": {fullFS{match: "checkpoint-8.tmp-" + fmt.Sprint(os.Getpid()) + "/manifest"}, []string{"save checkpoint-8: write ", "manifest.json: no space left", "1000 B free"}, []string{"checkpoint-2", "checkpoint-4", "checkpoint-6"}},
		"the model":               {fullFS{match: "model.tmp"}, []string{"write the model: save model: write ", "model.safetensors: no space left", "1000 B free"}, []string{"checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := want.in(t)
			disk := tc.disk
			disk.lazyFS = lazyFS{checkpoint.OS()}
			out, err := got.train(t, t.Context(), settings.Hooks{FS: &disk})
			checkError(t, err, false, tc.says...)
			if t.Failed() {
				t.Log(out)
			}
			var stand []string
			entries, _ := os.ReadDir(got.out)
			for _, e := range entries {
				if e.IsDir() {
					stand = append(stand, e.Name())
				}
			}
			if fmt.Sprint(stand) != fmt.Sprint(tc.stand) {
				t.Errorf("directories %v are left, want %v", stand, tc.stand)
			}
			got.mustTrain(t) // there is room again
			sameRun(t, got, want)
		})
	}
}

// fullWriter is a writer that fails from the byte numbered limit on.
type fullWriter struct {
	w     io.Writer
	limit int
}

func (f *fullWriter) Write(p []byte) (int, error) {
	if f.limit -= len(p); f.limit >= 0 {
		return f.w.Write(p)
	}
	n, _ := f.w.Write(p[:len(p)/2])
	return n, &os.PathError{Op: "write", Path: "metrics", Err: syscall.ENOSPC}
}

// TestMetricsCannotBeWritten: if metrics.jsonl cannot be written, the run ends. No checkpoint is
// newer than the last metrics line, so a resumed run leaves no gap in the metrics.
func TestMetricsCannotBeWritten(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 2\nval_size: 2\neval_steps: 2\n")
	want.mustTrain(t)
	for _, limit := range []int{0, 100, 1000, 2500, 3500} {
		got := want.in(t)
		out, err := got.train(t, t.Context(), settings.Hooks{Metrics: func(w io.Writer) io.Writer { return &fullWriter{w, limit} }})
		checkError(t, err, false, "write "+filepath.Join(got.out, settings.MetricsFile)+": no space left on device")
		if t.Failed() {
			t.Fatal(out)
		}
		got.mustTrain(t)
		sameRun(t, got, want)
	}
}

// quiet waits until all other goroutines of this module are blocked. Nothing happens then until the
// caller continues.
func quiet() {
	waits := func(stack string) bool {
		_, state, _ := strings.Cut(stack, "[")
		return !slices.ContainsFunc([]string{"running", "runnable", "syscall", "IO wait", "sleep", "preempted", "waiting", "GC "},
			func(busy string) bool { return strings.HasPrefix(state, busy) })
	}
	for slices.ContainsFunc(ours(), func(stack string) bool { return !waits(stack) }) {
		runtime.Gosched()
	}
}

// TestNoCheckpointAheadOfTheMetrics: a checkpoint appears only after the metrics line of its step
// is written, so a kill in between loses no line. The test holds the run before it writes the line,
// until no goroutine can continue, and finds no checkpoint.
func TestNoCheckpointAheadOfTheMetrics(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "save_steps: 1\n")
	h := settings.Hooks{Logging: func(step int) {
		if step != 3 {
			return
		}
		quiet()
		if _, err := os.Stat(filepath.Join(s.out, settings.CheckpointName(step))); err == nil {
			t.Errorf("the checkpoint of step %d is there before its line", step)
		}
		if saving, _ := filepath.Glob(filepath.Join(s.out, settings.CheckpointName(step)+".tmp-*", "optimizer", "*")); len(saving) != 5 {
			t.Errorf("it was held before all layers were written: %v", saving)
		}
	}}
	if out, err := s.train(t, t.Context(), h); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// damage has functions that damage a checkpoint in the directory dir, by the kind of damage.
var damage = map[string]func(dir string) error{
	"truncated weights":  func(d string) error { return os.Truncate(filepath.Join(d, "model.safetensors"), 3000) },
	"empty manifest":     func(d string) error { return os.Truncate(filepath.Join(d, "manifest.json"), 0) },
	"no manifest":        func(d string) error { return os.Remove(filepath.Join(d, "manifest.json")) },
	"no state":           func(d string) error { return os.Remove(filepath.Join(d, "trainer_state.json")) },
	"no moments":         func(d string) error { return os.Remove(filepath.Join(d, "optimizer", "layer-00002.safetensors")) },
	"a wrong bit":        func(d string) error { return flip(filepath.Join(d, "optimizer", "layer-00001.safetensors"), 2000) },
	"damaged config":     func(d string) error { return flip(filepath.Join(d, settings.ConfigFile), 20) },
	"truncated config":   func(d string) error { return os.Truncate(filepath.Join(d, settings.ConfigFile), 100) },
	"a directory's name": func(d string) error { return errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)) },
}

func flip(name string, at int64) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	raw[at] ^= 4
	return os.WriteFile(name, raw, 0o644)
}

// TestDamagedCheckpoints: a run skips damaged checkpoints and says why. If no checkpoint is left,
// it ends with an error and does not silently begin anew.
func TestDamagedCheckpoints(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 3\n")
	want.mustTrain(t)
	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			got := want.in(t)
			for _, step := range []int{3, 6} {
				copyTree(t, filepath.Join(want.out, settings.CheckpointName(step)), filepath.Join(got.out, settings.CheckpointName(step)))
			}
			copyMetrics(t, want, got)
			testkit.NoError(t, spoil(filepath.Join(got.out, settings.CheckpointName(6))))
			only := got.in(t)
			copyTree(t, filepath.Join(got.out, settings.CheckpointName(6)), filepath.Join(only.out, settings.CheckpointName(6)))

			out := got.mustTrain(t)
			for _, says := range []string{"note: checkpoint " + filepath.Join(got.out, "checkpoint-6") + " is skipped: ", "step 3 of 8"} {
				if !strings.Contains(out, says) {
					t.Errorf("the run does not say %q:\n%s", says, out)
				}
			}
			sameRun(t, got, want)

			_, err := only.train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("memory is taken") }})
			checkError(t, err, true, "run.yaml: resume_from_checkpoint: no checkpoint in "+only.out+" is valid: ", "checkpoint-6: ", "resume_from_checkpoint: false")
			if out := only.with("resume_from_checkpoint: false\n").mustTrain(t); !strings.Contains(out, "holds checkpoints of an earlier run, such as checkpoint-6") {
				t.Errorf("no note about the checkpoints that are there:\n%s", out)
			}

			_, err = got.with("resume_from_checkpoint: "+filepath.Join(got.root, "nope")+"\n").train(t, t.Context(), settings.Hooks{})
			checkError(t, err, true, "run.yaml:", "resume_from_checkpoint: ", "nope")
		})
	}
}

// TestUnfinishedSaveIsNoCheckpoint: the temporary files of a killed first save do not prevent the
// run from starting.
func TestUnfinishedSaveIsNoCheckpoint(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "")
	write(t, filepath.Join(s.out, "checkpoint-2.tmp-99", "model.safetensors"), "half")
	early := s.in(t)
	copyTree(t, s.out, early.out)
	if _, err := early.with("save_steps: 2\n").train(t, t.Context(), settings.Hooks{FS: &fullFS{match: "checkpoint-2.tmp", lazyFS: lazyFS{checkpoint.OS()}}}); err == nil {
		t.Error("the disk is full and the run went well")
	}
	if left, _ := filepath.Glob(filepath.Join(early.out, "*.tmp-*")); len(left) > 0 {
		t.Errorf("%v took room when the first save began", left)
	}
	out := s.mustTrain(t)
	if !strings.Contains(out, "checkpoint-2.tmp-99 is skipped: the save was not finished") {
		t.Errorf("no note:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(s.out, "checkpoint-2.tmp-99")); err == nil {
		t.Error("it is still there")
	}
}

// TestKilledAfterTheLastSave: a run that was killed after its last save removes old checkpoints
// when it is started again, although no step is left.
func TestKilledAfterTheLastSave(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 2\nsave_total_limit: 2\n")
	s.mustTrain(t)
	kept, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*"))
	if len(kept) != 2 {
		t.Fatalf("checkpoints %v", kept)
	}
	write(t, kept[1]+".tmp-99/model.safetensors", "half")
	write(t, filepath.Join(s.out, "checkpoint-1", "config.json"), "{}") // one too many
	testkit.NoError(t, os.Remove(filepath.Join(s.out, settings.EndFile)))
	s.mustTrain(t)
	if left, _ := filepath.Glob(filepath.Join(s.out, "checkpoint-*")); !slices.Equal(left, kept) {
		t.Errorf("%v are left, want %v", left, kept)
	}
}

// TestResumeWithAnother: a run with another model, other data or other keys than its checkpoint is
// refused. The error names the key that differs and a way out.
func TestResumeWithAnother(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 4\n")
	s.mustTrain(t)
	bigger := strings.Replace(tinyModel, "intermediate_size: 24", "intermediate_size: 32", 1)
	others := writeRows(t, s.root, 12, 12, 48)
	for name, tc := range map[string]struct{ extra, key, wayOut string }{
		"dataset":     {"dataset: " + others + "\n", "dataset", "reset_data: true"},
		"model":       {bigger, "model", "model_name_or_path: " + s.out + "/checkpoint-8"},
		"seed":        {"seed: 7\n", "seed", "reset_data: true"},
		"packing":     {"packing: true\n", "packing", "reset_data: true"},
		"dtype":       {"compute_dtype: bf16\n", "compute_dtype", "resume_from_checkpoint: " + s.out + "/checkpoint-8 and another output_dir"},
		"micro-batch": {"pipeline: {micro_batch_tokens: 7}\n", "micro_batch_tokens", "resume_from_checkpoint: " + s.out + "/checkpoint-8 and another output_dir"},
		"fewer steps": {"max_steps: 7\n", "max_steps is 7", "name an earlier checkpoint"},
		"no steps":    {"reset_data: true\n", "max_steps is 8 and counts the 8 steps of", "num_train_epochs, which counts from here"},
	} {
		_, err := s.with(tc.extra).train(t, t.Context(), settings.Hooks{Allocating: func() { t.Errorf("%s: memory is taken", name) }})
		checkError(t, err, true, "run.yaml", tc.key, "checkpoint-8", tc.wayOut)
		if !strings.Contains(tc.key, "steps") {
			checkError(t, err, true, "resume_from_checkpoint: false", "output_dir")
		}
	}
	// The same rows in a file of another name are the same data.
	raw, err := os.ReadFile(s.rows)
	testkit.NoError(t, err)
	moved := filepath.Join(s.root, "moved", "rows.jsonl")
	write(t, moved, string(raw))
	if out, err := s.with("dataset: "+moved+"\n").train(t, t.Context(), settings.Hooks{}); err != nil || !strings.Contains(out, "training is done") {
		t.Errorf("with the data moved: %v\n%s", err, out)
	}
	// The same file with other rows is other data.
	if raw, err = os.ReadFile(others); err != nil {
		t.Fatal(err)
	}
	write(t, s.rows, string(raw))
	_, err = s.train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml", "another dataset", "reset_data: true", "resume_from_checkpoint: false")
}

// TestResumeWithAnotherTokenizer: the same text with another tokenizer is other data, because its
// token ids differ. reset_data does not permit it, because the weights do not fit the new ids.
func TestResumeWithAnotherTokenizer(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "")
	text := filepath.Join(s.root, "text.txt")
	write(t, text, strings.Repeat("a few words of text\n", 60))
	s = s.with("dataset: " + text + "\n" + strings.Replace(tinyModel, "vocab_size: 48", "vocab_size: 300", 1))
	s.mustTrain(t)
	dir := filepath.Join(s.root, "model")
	copyTree(t, filepath.Join(s.out, settings.CheckpointName(8)), dir)
	s = s.in(t).without("model").with("model_name_or_path: " + dir + "\n")
	s.mustTrain(t)
	if out := s.with("model_name_or_path: " + dir + "/../model\n").mustTrain(t); !strings.Contains(out, "training is done") {
		t.Errorf("the model by another name:\n%s", out)
	}
	file := filepath.Join(dir, "tokenizer.json")
	write(t, file, strings.Replace(read(t, file), `"a": `, `"a ": `, 1))
	for _, extra := range []string{"", "reset_data: true\nmax_steps: 9\n"} {
		_, err := s.with(extra).train(t, t.Context(), settings.Hooks{Allocating: func() { t.Error("memory is taken") }})
		checkError(t, err, true, "run.yaml", "checkpoint-8", "another tokenizer", "restore its files", "output_dir", "resume_from_checkpoint: false")
	}
}
