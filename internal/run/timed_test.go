package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mt/cudart/emu"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// proposals returns an emulated GPU whose matrix-product algorithms report run times of the given
// numbers of hours. Nothing waits for these times.
func proposals(hours ...int) emu.Options {
	o := emu.Options{Threads: 1}
	for _, h := range hours {
		o.ProductTimes = append(o.ProductTimes, time.Duration(h)*time.Hour)
	}
	return o
}

// timedFile returns the single file of recorded algorithms in the scene's cache folder.
func timedFile(t *testing.T, s scene) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.root, "cache/matmul/*"))
	if err != nil || len(found) != 1 || filepath.Base(found[0]) != "emulated-gpu-driver-12080-cublaslt-120804.json" {
		t.Fatalf("choices are in %q, %v", found, err)
	}
	return found[0]
}

func recordOf(t *testing.T, s scene) []byte {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.AlgorithmsFile)))(t)
	return raw
}

// TestTimedProducts: with matmul: timed, a run measures the algorithms for matrix products, uses
// the fastest and caches the choice. The next run uses the cached choice even if another algorithm
// is faster by then, and so has the same bits. A run without the key uses other algorithms.
func TestTimedProducts(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "device: cuda\ncompute_dtype: fp32\nmatmul: timed\nmax_steps: 2\n")
	out, err := want.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(3, 2, 1))})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if dir := filepath.Join(want.root, "cache/matmul"); !strings.Contains(out, "note: matmul: timed: ") || !strings.Contains(out, "kept in "+dir) {
		t.Errorf("it is not said where choices are kept:\n%s", out)
	}
	raw, err := os.ReadFile(timedFile(t, want))
	testkit.NoError(t, err)
	var kept struct{ Shapes map[string][8]uint64 }
	testkit.NoError(t, json.Unmarshal(raw, &kept))
	var recorded map[string][8]uint64
	if err := json.Unmarshal(recordOf(t, want), &recorded); err != nil || len(recorded) == 0 || !maps.Equal(recorded, kept.Shapes) {
		t.Errorf("kept:\n%s\nrecorded:\n%s", raw, recordOf(t, want))
	}
	again, plain := want.in(t), want.in(t).with("matmul: heuristic\n")
	for _, s := range []scene{again, plain} {
		if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(1, 2, 3))}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sameRun(t, again, want)
	if bytes.Equal(recordOf(t, plain), recordOf(t, want)) {
		t.Error("without the key the same algorithms are taken")
	}
}

// TestTimedResume: a resumed run uses the algorithms that it recorded with its checkpoint. This
// holds if the cache was deleted and another algorithm is the fastest now.
func TestTimedResume(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "device: cuda\ncompute_dtype: fp32\nmatmul: timed\nmax_steps: 4\nsave_steps: 1\n")
	if out, err := want.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(3, 2, 1))}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	forget := func() {
		testkit.NoError(t, os.Remove(timedFile(t, want)))
	}
	forget()
	got := want.in(t)
	stop, cancel := context.WithCancel(t.Context())
	if _, err := got.train(t, stop, settings.Hooks{Symbols: emulate(t, proposals(3, 2, 1)), Stepped: func(step int) {
		if step == 2 {
			cancel()
		}
	}}); err == nil {
		t.Fatal("the run was not stopped")
	}
	forget()
	out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(1, 2, 3))})
	if err != nil || !strings.Contains(out, "resuming from ") || strings.Contains(out, "computed in another way") {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, want)
}

// TestTimedBranch: a run in a new output directory that resumes another run's checkpoint uses that
// run's recorded algorithms, unless its key matmul differs.
func TestTimedBranch(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cuda\ncompute_dtype: fp32\nmatmul: timed\nmax_steps: 3\nsave_steps: 2\n")
	if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(3, 2, 1))}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testkit.NoError(t, os.Remove(timedFile(t, s)))
	choices := func(s scene) (words map[string][8]uint64) {
		testkit.NoError(t, json.Unmarshal(recordOf(t, s), &words))
		return words
	}
	first := choices(s)
	for name, tc := range map[string]struct {
		keys string
		same bool
	}{"branch": {"", true}, "another rule": {"matmul: heuristic\n", false}} {
		b := s
		b.out = filepath.Join(s.root, strings.ReplaceAll(name, " ", "-"))
		b = b.with(fmt.Sprintf("resume_from_checkpoint: %s/checkpoint-2\n%s", s.out, tc.keys))
		if out, err := b.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(1, 2, 3))}); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		alike := 0
		for shape, words := range choices(b) {
			if first[shape] == words {
				alike++
			}
		}
		if want := map[bool]int{true: len(first), false: 0}[tc.same]; alike != want {
			t.Errorf("%s: %d choices are those of the record, want %d", name, alike, want)
		}
	}
}

// TestTimedRecordWithCheckpoint: the record of algorithms is on disk as soon as a checkpoint is. A
// run whose device is lost in the next step can therefore resume with the same bits.
func TestTimedRecordWithCheckpoint(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cuda\ncompute_dtype: fp32\nmatmul: timed\nmax_steps: 5\nsave_steps: 2\n")
	seen := 0
	if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(2, 1)), Stepped: func(int) {
		if _, err := os.Stat(filepath.Join(s.out, "checkpoint-2")); err != nil {
			return
		}
		seen++
		if _, err := os.Stat(filepath.Join(s.out, settings.AlgorithmsFile)); err != nil {
			t.Errorf("beside a checkpoint: %v", err)
		}
	}}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if seen == 0 {
		t.Error("no step saw the first checkpoint")
	}
}

// TestTimedFiles: a cached file of algorithms that is damaged, too long or of another kind is
// ignored with a note, and replaced.
func TestTimedFiles(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cuda\ncompute_dtype: fp32\nmatmul: timed\nmax_steps: 1\n")
	run := func() (string, []byte) {
		s := s.in(t)
		out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, proposals(2, 1))})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out, recordOf(t, s)
	}
	_, want := run()
	file := timedFile(t, s)
	good := testkit.Must(os.ReadFile(file))(t)
	for name, content := range map[string]string{
		"damaged": string(good[:len(good)/2]), "other device": strings.Replace(string(good), `"Emulated GPU"`, `"Another"`, 1),
		"other version": strings.Replace(string(good), "120804", "120805", 1), "too long": strings.Repeat(" ", 5<<20), "no object": "[]",
	} {
		write(t, file, content)
		out, got := run()
		if !strings.Contains(out, "note: matmul: timed: "+file) || !strings.Contains(out, "is passed over") {
			t.Errorf("%s: it is not said:\n%s", name, out)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, good) || !bytes.Equal(got, want) {
			t.Errorf("%s: the file is now\n%s\nwant\n%s", name, now, good)
		}
	}
}

// TestTimedNowhere: matmul: timed has no effect on a CPU, and a note says so.
func TestTimedNowhere(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cpu\nmatmul: timed\nmax_steps: 1\n")
	if out := s.mustTrain(t); !strings.Contains(out, "note: matmul: timed has no effect") {
		t.Errorf("it is not said:\n%s", out)
	}
}

// TestOwnProducts: the metrics count the products that mt's own kernels computed instead of
// cuBLASLt, and the run says why.
func TestOwnProducts(t *testing.T) {
	testkit.NotShort(t)
	for name, tc := range map[string]struct {
		o    emu.Options
		note string
	}{"absent": {emu.Options{WithoutBlasLt: true}, "note: no cuBLASLt: "}, "refuses": {emu.Options{RefuseProducts: 15}, "note: cuBLASLt does not take the product"}, "there": {emu.Options{}, ""}} {
		s := newScene(t, "device: cuda\ncompute_dtype: fp32\nmax_steps: 2\nlogging_steps: 1\n")
		out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, tc.o)})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if tc.note != "" && strings.Count(out, tc.note) != 1 {
			t.Errorf("%s: the notes are\n%s", name, out)
		}
		raw, err := os.ReadFile(filepath.Join(s.out, settings.MetricsFile))
		testkit.NoError(t, err)
		lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
		var last struct {
			Own int64 `json:"own_products"`
		}
		testkit.NoError(t, json.Unmarshal(lines[len(lines)-1], &last))
		if (last.Own > 20) != (tc.note != "") {
			t.Errorf("%s: %d products", name, last.Own)
		}
	}
}
