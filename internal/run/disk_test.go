package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan"
)

// freeFS is a disk that reports free bytes as free.
type freeFS struct {
	lazyFS
	free int64
}

func (f freeFS) Free(string) (int64, error) { return f.free, nil }

// errPlanned stops a run as soon as its plan is made.
var errPlanned = errors.New("planned")

// planned returns what a scene would write to a disk with the given free bytes, the run's output, and its error:
// errPlanned if the run would have started.
func (s scene) planned(t *testing.T, free int64) (w plan.Writes, said string, err error) {
	t.Helper()
	h := settings.Hooks{FS: freeFS{lazyFS{checkpoint.OS()}, free}, Planned: func(run any) {
		j := run.(*save.Output)
		var err error
		if w, err = j.Writes(); err != nil {
			t.Error(err)
		}
	}, Allocating: func() { panic(errPlanned) }}
	var out bytes.Buffer
	defer func() {
		if r := recover(); r != nil {
			said, err = out.String(), r.(error)
		}
	}()
	err = Train(t.Context(), s.config(t), settings.Options{Stdout: &out, Stderr: &out, Hooks: h})
	return w, out.String(), err
}

// TestDiskIsLookedAt: if the disk has no room for what a run must write, the run is refused before
// its first step, and the error lists changes that help. If the disk may become full later, the run
// says after which step.
func TestDiskIsLookedAt(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	pattern := newScene(t, "save_steps: 4\nmax_steps: 16\n") // four saves
	w, _, err := pattern.planned(t, 1<<40)
	if !errors.Is(err, errPlanned) || w.Saves != 4 || w.Model < 1000 || w.Checkpoint < w.Model+1000 || w.Log < 1000 {
		t.Fatalf("%+v, %v", w, err)
	}
	c, m, l := w.Checkpoint, w.Model, w.Log
	const (
		only = "set save_only_model: true"
		none = "set save_strategy: no"
	)
	for name, tc := range map[string]struct {
		extra   string
		free    int64
		refused bool
		says    []string
		silent  []string
	}{
		"all fits":               {"", 4*c + m + l, false, nil, []string{"room"}},
		"one byte less":          {"", 4*c + m + l - 1, false, []string{"there is room for 4 of the 4 checkpoints", "the final model, written last, may fail"}, []string{"saves from step"}},
		"all stay, room for two": {"", 2*c + m + l, false, []string{"note: output_dir ", "room for 2 of the 4 checkpoints", "saves from step 12 on may fail", "set save_total_limit: 1", only, none, "choose another output_dir"}, nil},
		"all stay, room for one": {"", c + m + l, false, []string{"room for 1 of the 4 checkpoints", "saves from step 8 on may fail", none}, []string{"save_total_limit", only}},
		"not even one":           {"", c + m + l - 1, true, []string{"has ", " free and the run takes ", "4 checkpoints of ", "the final model of ", none}, []string{"save_total_limit", only}},
		"not even a model":       {"", m + l - 1, true, []string{"free ", "or choose another output_dir"}, []string{"save_total_limit", only, none}},
		"two stay":               {"save_total_limit: 2\n", 3*c + l, false, nil, []string{"room"}},
		"two do not":             {"save_total_limit: 2\n", 3*c + l - 1, true, []string{"3 checkpoints of ", "of which the oldest goes when the next is whole", "set save_total_limit: 1", only, none}, nil},
		"nor one":                {"save_total_limit: 2\n", 2*c + l - 1, true, []string{only, none}, []string{"save_total_limit"}},
		"one stays":              {"save_total_limit: 1\n", 2*c + m + l, false, nil, []string{"room"}},
		"one and no model":       {"save_total_limit: 1\n", 2*c + m + l - 1, true, []string{none}, []string{"save_total_limit"}},
		"one of every step":      {"save_total_limit: 1\nsave_steps: 1\n", 3*c + l, false, nil, []string{"room"}},
		"not one of every step":  {"save_total_limit: 1\nsave_steps: 1\n", 3*c + l - 1, true, []string{"3 checkpoints of ", none}, []string{"save_total_limit"}},
		"models only":            {"save_only_model: true\n", 4*m + l, false, nil, []string{"room"}}, // three, and the final one
		"not all models":         {"save_only_model: true\n", 4*m + l - 1, false, []string{"room for 3 of the 3 checkpoints", "set save_total_limit: 2", none}, []string{only}},
		"at the end only":        {"save_steps: 0\n", c + m + l, false, nil, []string{"room"}},
		"not at the end":         {"save_steps: 0\n", c + m + l - 1, true, []string{"a checkpoint of ", "the final model of ", none}, []string{"save_total_limit"}},
		"never":                  {"save_strategy: no\n", m + l, false, nil, []string{"room"}},
		"not the model":          {"save_strategy: no\n", m + l - 1, true, []string{"(the final model of "}, []string{only, none}},
		"that of a Ctrl-C":       {"save_steps: 500\nkeep_checkpoints: false\n", c + m + l - 1, true, []string{"a checkpoint of ", none}, nil},
		"until done":             {"save_steps: 0\nkeep_checkpoints: false\n", c + m + l - 1, true, []string{none}, nil},
	} {
		_, said, err := pattern.in(t).with(tc.extra).planned(t, tc.free)
		if tc.refused {
			checkError(t, err, true, append(tc.says, "run.yaml:", " output_dir ")...)
			said = err.Error()
		} else if !errors.Is(err, errPlanned) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range tc.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q is not said:\n%s", name, want, said)
			}
		}
		for _, no := range tc.silent {
			if strings.Contains(said, no) {
				t.Errorf("%s: %q is said:\n%s", name, no, said)
			}
		}
	}
}

// TestDiskOfAResumedRun: the checkpoints that a resumed run will remove count as free space.
func TestDiskOfAResumedRun(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 4\nmax_steps: 4\nsave_total_limit: 1\nlr_scheduler_type: constant\n")
	s.mustTrain(t)
	s = s.with("max_steps: 12\n")
	w, _, err := s.planned(t, 1<<40)
	if !errors.Is(err, errPlanned) {
		t.Fatal(err)
	}
	// The run saves two more checkpoints. The first of them replaces the present one.
	if _, _, err := s.planned(t, 2*w.Checkpoint+w.Model+(64<<10)); !errors.Is(err, errPlanned) {
		t.Error(err)
	}
	if _, _, err := s.planned(t, w.Checkpoint/2); errors.Is(err, errPlanned) {
		t.Error("half of a checkpoint is enough")
	}
	write(t, filepath.Join(s.out, "checkpoint-6.tmp-9", "x"), string(make([]byte, 2*w.Checkpoint+w.Model)))
	if _, _, err := s.planned(t, w.Checkpoint/2); !errors.Is(err, errPlanned) {
		t.Errorf("what a killed save has left is not counted as room: %v", err)
	}
}

// TestDryRunShowsDisk: a dry run shows the disk space that the run would take.
func TestDryRunShowsDisk(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "save_steps: 3\nsave_total_limit: 2\n")
	w, _, _ := s.planned(t, 1<<40)
	var out, raw bytes.Buffer
	h := settings.Hooks{FS: freeFS{lazyFS{checkpoint.OS()}, 3 << 20}}
	testkit.NoError(t, DryRun(t.Context(), s.config(t), settings.Options{Stdout: &out, Stderr: &out, Hooks: h}))
	for _, want := range []string{"disk  one checkpoint  ", "weights bf16 and the optimizer's state; 3 to write, the last 2 stay", "disk  final model", "of 3.0 MiB free in " + s.out,
		"disk  token cache", s.root + "/cache/"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	testkit.NoError(t, DryRun(t.Context(), s.config(t), settings.Options{Stdout: &raw, Stderr: &out, JSON: true, Hooks: h}))
	var shown struct {
		Disk struct {
			Checkpoint  int64 `json:"checkpoint_bytes"`
			Checkpoints int
			AtMost      int64 `json:"at_most_bytes"`
			Free        int64 `json:"free_bytes"`
		}
	}
	testkit.NoError(t, json.Unmarshal(raw.Bytes(), &shown))
	if d := shown.Disk; d.Checkpoint != w.Checkpoint || d.Checkpoints != 3 || d.AtMost != w.AtMost() || d.Free != 3<<20 {
		t.Errorf("%+v, want %+v", d, w)
	}
	h.FS = freeFS{lazyFS{checkpoint.OS()}, 1000}
	checkError(t, DryRun(t.Context(), s.config(t), settings.Options{Stdout: &out, Stderr: &out, Hooks: h}), true, "output_dir "+s.out+" has 1000 B free")
}

// countFS records the largest total size of checkpoints and models on disk at any time. It counts
// when a further one of them is begun.
type countFS struct {
	lazyFS
	out               string
	checkpoint, model int64
	most              int64
}

func (f *countFS) Mkdir(path string) error {
	there, err := filepath.Glob(filepath.Join(f.out, "checkpoint-*[0-9]"))
	if err != nil {
		return err
	}
	whole := 0
	for _, dir := range there {
		if !strings.Contains(dir, ".tmp") {
			whole++
		}
	}
	if base := filepath.Base(path); strings.Contains(base, ".tmp-") {
		now := int64(whole)*f.checkpoint + f.checkpoint
		if strings.HasPrefix(base, "model") {
			now += f.model - f.checkpoint
		}
		f.most = max(f.most, now)
	}
	return f.lazyFS.Mkdir(path)
}

// TestDiskIsEnough: no run needs more disk space at any time than its plan says.
func TestDiskIsEnough(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	pattern := newScene(t, "")
	for _, extra := range []string{"save_steps: 1\n", "save_steps: 1\nsave_total_limit: 1\n", "save_steps: 2\nsave_total_limit: 1\n", "save_steps: 4\nsave_total_limit: 1\n", "save_steps: 1\nsave_total_limit: 2\n",
		"save_steps: 3\nsave_total_limit: 2\n", "save_strategy: epoch\nsave_total_limit: 1\n", "save_steps: 3\nsave_only_model: true\n",
		"save_steps: 3\nkeep_checkpoints: false\nsave_total_limit: 1\n", "save_strategy: no\n", "save_steps: 0\n"} {
		s := pattern.in(t).with(extra)
		w, _, err := s.planned(t, 1<<40)
		if !errors.Is(err, errPlanned) {
			t.Fatal(err)
		}
		disk := &countFS{lazyFS: lazyFS{checkpoint.OS()}, out: s.out, checkpoint: w.Checkpoint, model: w.Model}
		// The batch of step n is packed only after the report of step n−2, so that training
		// is at most one step ahead of the saved and removed checkpoints.
		var reported [9]chan struct{}
		for i := range reported {
			reported[i] = make(chan struct{})
		}
		h := settings.Hooks{FS: disk, Stepped: func(step int) { close(reported[step]) }, Packing: func(step int, eval bool) {
			if !eval && step > 2 {
				<-reported[step-2]
			}
		}}
		testkit.Must(s.train(t, t.Context(), h))(t)
		if most := w.AtMost() - w.Log; disk.most > most {
			t.Errorf("%q: %d bytes are planned (%+v) and %d are in use", extra, most, w, disk.most)
		} else if disk.most < most {
			t.Logf("%q: %d of %d bytes", extra, disk.most, most)
		}
	}
}
