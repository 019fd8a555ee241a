package train

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"mt/checkpoint"
)

// cancelFS interrupts a run when a file whose path matches is first made.
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

// TestInterrupted: whatever a run is doing when it is asked to stop, it ends
// soon with ErrInterrupted, and the same command goes on to the same end.
func TestInterrupted(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	want := newScene(t, "save_steps: 3\nval_size: 2\neval_steps: 3\n")
	want.mustTrain(t)
	for name, tc := range map[string]struct {
		hooks func(cancel func()) hooks
		saved string // a checkpoint is there: yes, no or, where two things race, either
	}{
		"while data is read":     {func(cancel func()) hooks { return hooks{reading: func(string) { cancel() }} }, "no"},
		"while memory is taken":  {func(cancel func()) hooks { return hooks{allocating: cancel} }, "no"},
		"before the first batch": {func(cancel func()) hooks { return hooks{packing: at(1, false, cancel)} }, "either"},
		"in the fourth step":     {func(cancel func()) hooks { return hooks{packing: at(5, false, cancel)} }, "yes"},
		"in an evaluation":       {func(cancel func()) hooks { return hooks{packing: at(1, true, cancel)} }, "yes"},
		"while saving":           {func(cancel func()) hooks { return hooks{fs: cancelFS{lazyFS{checkpoint.OS()}, "layer-00001*", cancel}} }, "yes"},
		"at the end of a save": {func(cancel func()) hooks {
			return hooks{fs: cancelFS{lazyFS{checkpoint.OS()}, "manifest.json", cancel}}
		}, "yes"},
		"in the last evaluation": {func(cancel func()) hooks {
			evals := 0
			return hooks{packing: func(_ int, eval bool) {
				if eval {
					evals++
				}
				if evals == 3 { // after steps 3, 6 and 8
					cancel()
				}
			}}
		}, "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			got := want.in(t)
			got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n")
			out, err := got.interrupted(t, tc.hooks)
			if name == "in the last evaluation" && err == nil { // the word came after the work
				sameRun(t, got, want)
				return
			}
			if !errors.Is(err, ErrInterrupted) {
				t.Fatalf("the error is %v\n%s", err, out)
			}
			found, err := filepath.Glob(filepath.Join(got.out, "checkpoint-[0-9]"))
			if is := len(found) > 0; err != nil || is && tc.saved == "no" || !is && tc.saved == "yes" {
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

// at calls cancel when a batch is packed.
func at(step int, eval bool, cancel func()) func(int, bool) {
	return func(s int, e bool) {
		if s == step && e == eval {
			cancel()
		}
	}
}
