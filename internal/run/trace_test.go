package run

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"mt/base/timeline"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// traceSpan is an event of a trace file. Dur is its duration in µs.
type traceSpan struct {
	Ph, Name string
	Dur      float64
	Args     struct {
		Step  int
		Cause string
	}
}

// readTrace returns the events of a trace file.
func readTrace(t *testing.T, path string) (out []traceSpan) {
	t.Helper()
	f, err := os.Open(path)
	testkit.NoError(t, err)
	defer f.Close()
	r := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.NewDecoder(r).Decode(&out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// TestTraceFile: the gaps in a run's trace add up to the stalls in its metrics.jsonl. A second run
// overwrites the trace of the first. Tracing changes no bit of the run.
func TestTraceFile(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	plain := newScene(t, "val_size: 2\neval_steps: 3\nbinding: copy\n")
	plain.mustTrain(t)
	for _, name := range []string{"run.json", "run.json", "run.json.gz"} {
		path := filepath.Join(plain.root, name)
		s := plain.in(t).with("trace: " + path + "\n")
		s.mustTrain(t)
		sameTraffic(t, s, plain)
		s.checkStalls(t, readTrace(t, path))
	}
}

// checkStalls fails unless the gaps of a trace add up, for each step and cause, to the stalls in
// metrics.jsonl.
func (s scene) checkStalls(t *testing.T, spans []traceSpan) {
	t.Helper()
	gaps := map[int]map[string]float64{}
	for _, e := range spans {
		if e.Args.Cause != "" {
			if gaps[e.Args.Step] == nil {
				gaps[e.Args.Step] = map[string]float64{}
			}
			gaps[e.Args.Step][e.Args.Cause] += e.Dur / 1e6
		}
	}
	steps := 0
	for _, line := range s.metrics(t) {
		var m struct {
			Step   int
			StallS map[string]float64 `json:"stall_s"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &m))
		if m.StallS == nil {
			continue // an evaluation
		}
		steps++
		for cause, want := range m.StallS {
			if got := gaps[m.Step][cause]; got < 0.99*want-1e-8 || got > 1.01*want+1e-8 {
				t.Errorf("step %d waited %v s for %s, the trace says %v", m.Step, want, cause, got)
			}
		}
	}
	if steps != 8 {
		t.Errorf("metrics.jsonl has %d steps", steps)
	}
}

// fullDisk is a file that accepts room bytes and then fails.
type fullDisk struct {
	io.WriteCloser
	room int
}

var errNoRoom = errors.New("no space left on device")

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, errNoRoom
	}
	return d.WriteCloser.Write(b)
}

// TestTraceOnAFullDisk: if the trace file cannot be written any more, the run prints one warning
// and has the same result.
func TestTraceOnAFullDisk(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	plain := newScene(t, "")
	plain.mustTrain(t)
	for name, room := range map[string]int{"run.json": 1 << 16, "none.json": 0, "run.json.gz": 100} {
		s := plain.in(t)
		s = s.with("trace: " + filepath.Join(s.root, name) + "\n")
		said := testkit.Must(s.train(t, context.Background(), settings.Hooks{Trace: func(w io.WriteCloser) io.WriteCloser { return &fullDisk{w, room} }}))(t)
		if n := strings.Count(said, "no space left on device; training goes on"); n != 1 {
			t.Errorf("%s: %d warnings:\n%s", name, n, said)
		}
		sameTraffic(t, s, plain)
	}
}

// TestTraceThatCannotBe: if the trace file cannot be created, the run is refused before it reads or
// writes anything. An existing file at the path stays.
func TestTraceThatCannotBe(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "")
	for path, want := range map[string]string{
		s.rows:                                "there is a file that no run of mt has written as a trace",
		filepath.Join(s.root, "no", "t.json"): "no such file or directory",
		filepath.Join(s.rows, "t.json"):       "not a directory",
		s.root:                                "it is a directory, not a file",
		"/dev/full":                           "it is a device, not a file",
		"/proc/t.json":                        "no such file or directory",
	} {
		before, _ := os.ReadFile(s.rows)
		said, err := s.with("trace: "+path+"\n").train(t, context.Background(), settings.Hooks{Reading: func(string) { t.Error("data is read") }})
		var usage *config.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v\n%s", path, err, said)
		}
		if after, _ := os.ReadFile(s.rows); string(after) != string(before) {
			t.Errorf("%s: the data has changed", path)
		}
		if _, err := os.Stat(s.out); err == nil {
			t.Errorf("%s: there is an output_dir", path)
		}
	}
	path := filepath.Join(s.root, "t.json")
	if err := DryRun(t.Context(), s.with("trace: "+path+"\n").config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a dry run has made a trace")
	}
}

// TestTimelineFile: a run writes the timeline of its last step if the config asks for it, and
// otherwise not.
func TestTimelineFile(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "")
	for _, asked := range []bool{false, true} {
		s = s.in(t)
		testkit.NoError(t, Train(context.Background(), s.config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard, Timeline: asked}))
		raw, err := os.ReadFile(filepath.Join(s.out, settings.TimelineFile))
		if !asked {
			if err == nil {
				t.Errorf("there is a %s", settings.TimelineFile)
			}
			continue
		}
		var step timeline.Step
		if err != nil || json.Unmarshal(raw, &step) != nil || step.Step != 8 || step.Seconds <= 0 {
			t.Fatalf("%v: %s", err, raw)
		}
		kinds := map[string]int{}
		for _, track := range step.Tracks {
			kinds[track.Kind] += len(track.Spans)
		}
		if kinds["stream"] == 0 || kinds["actor"] == 0 || kinds["credit"] == 0 {
			t.Errorf("spans by kind: %v", kinds)
		}
	}
}
