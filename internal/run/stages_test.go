package run

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/actors"
	"mt/base/parallel"
	"mt/checkpoint"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/resume"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
)

// openScene opens the data and model of a scene's run and plans it. Nothing large is allocated.
func openScene(t *testing.T, s scene) *save.Output {
	t.Helper()
	var log bytes.Buffer
	j, err := openRun(s.config(t), settings.Options{Stdout: &log, Stderr: &log, Hooks: settings.Hooks{FS: lazyFS{checkpoint.OS()}}}, open.Asks{Run: true}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Cleanup(func() {
		var err error
		if open.CloseAfter(j, &err); err != nil {
			t.Error(err)
		}
	})
	return j
}

// TestInitialise: every row of a new model has the values of model.InitRow for that row, for any
// number of threads. No two rows are equal.
func TestInitialise(t *testing.T) {
	j := openScene(t, newScene(t, ""))
	for _, threads := range []int{1, 3} {
		pool := parallel.New(threads)
		defer pool.Close()
		s := testkit.Must(host.NewStore(j.Plan.Layouts, j.Plan.Planes, pool))(t)
		defer s.Close()
		testkit.NoError(t, open.Initialise(s, j.Model, 11, pool))
		seen := map[string]bool{}
		for _, l := range s.Layers {
			for k, tl := range l.Layout.Tensors {
				got, want := make([]float32, tl.Elems()), make([]float32, tl.Elems())
				l.ReadRows(k, 0, tl.Rows, got)
				model.InitRow(j.Model, tl.Param, 0, 11, want)
				if !slices.Equal(got, want) {
					t.Errorf("%d threads: layer %d %s differs from its rows made at once", threads, l.Layout.Index, tl.Role)
				}
				for r := 0; tl.Dims == 2 && r < tl.Rows; r++ {
					row := testkit.Must(json.Marshal(got[r*tl.Cols : (r+1)*tl.Cols]))(t)
					if seen[string(row)] {
						t.Errorf("%d threads: layer %d %s: row %d is in the model twice", threads, l.Layout.Index, tl.Role, r)
					}
					seen[string(row)] = true
				}
			}
		}
		if len(seen) < 100 {
			t.Fatalf("only %d rows were looked at", len(seen))
		}
	}
}

// TestEpochs: with 11 rows and 4 rows a step, an epoch has 3 steps. num_train_epochs may be a
// fraction.
func TestEpochs(t *testing.T) {
	for epochs, want := range map[string]int{"1": 3, "2": 6, "0.5": 2, "1.5": 5, "0.01": 1} {
		s := newScene(t, "max_steps: -1\nnum_train_epochs: "+epochs+"\n")
		if got := openScene(t, s).Config.MaxSteps; got != want {
			t.Errorf("%s epochs are %d steps, want %d", epochs, got, want)
		}
	}
}

// openSaver returns a saver for a scene's output directory. It has already written the layers of
// the checkpoint of the given step, and has opened metrics.jsonl.
func openSaver(t *testing.T, s scene, step int) *save.Saver {
	t.Helper()
	j := openScene(t, s)
	w := &save.Weights{Output: j}
	t.Cleanup(func() { _ = w.Close() })
	testkit.NoError(t, w.Open(nil))
	log, _, err := report.OpenMetrics(j.FS(), filepath.Join(t.TempDir(), settings.MetricsFile), 0, func(w io.Writer) io.Writer { return &fullWriter{w, 3} })
	testkit.NoError(t, err)
	t.Cleanup(log.Close)
	sv := &save.Saver{Weights: w, Log: log, Kept: &report.Windows{}}
	testkit.NoError(t, sv.Open(step))
	for i, l := range w.Store.Layers {
		testkit.NoError(t, sv.Layer(i, l))
	}
	return sv
}

// TestNoCheckpointWithoutItsMetrics: if a metrics line could not be written, no later checkpoint is
// completed. A run resumed from it would have a gap in its metrics.
func TestNoCheckpointWithoutItsMetrics(t *testing.T) {
	s := newScene(t, "")
	sv := openSaver(t, s, 5)
	defer sv.Abort()
	if err := sv.Log.Write(map[string]int{"step": 5}); err == nil {
		t.Fatal("the line was written")
	}
	if err := sv.Commit(actors.State{Step: 5}, 20); err == nil {
		t.Error("it is committed")
	}
	if _, err := os.Stat(filepath.Join(s.out, "checkpoint-5")); err == nil {
		t.Error("the checkpoint is there")
	}
}

// TestCheckpointsKeepTheCountOfSkippedSteps: a checkpoint contains the number of consecutive
// skipped steps. A resumed run therefore gives up after as many as an uninterrupted one.
func TestCheckpointsKeepTheCountOfSkippedSteps(t *testing.T) {
	s := newScene(t, "")
	sv := openSaver(t, s, 5)
	want := actors.State{Step: 5, AdamStep: 3, NonFinite: 2, Tokens: 77}
	testkit.NoError(t, sv.Commit(want, 20))
	dir := filepath.Join(s.out, "checkpoint-5")
	state := testkit.Must(checkpoint.ReadState(dir))(t)
	if state.DataPos != 20 {
		t.Errorf("%s is at row %d", dir, state.DataPos)
	}
	if got := (resume.Point{State: state}).Reached(); got != want {
		t.Errorf("a run goes on from %+v, want %+v", got, want)
	}
}

// TestFinished: a run is finished if its output directory holds the complete model of exactly the
// checkpoint from which it would resume.
func TestFinished(t *testing.T) {
	s := newScene(t, "max_steps: 2\n")
	s.mustTrain(t)
	dir, state, _, err := checkpoint.Latest(s.out, nil)
	if err != nil || dir == "" {
		t.Fatalf("%q, %v", dir, err)
	}
	finished := func(at checkpoint.TrainerState) bool {
		return (&resume.Start{Inputs: openScene(t, s).Inputs, From: resume.Point{Dir: dir, State: at}}).Finished()
	}
	if !finished(state) {
		t.Error("the run is not done")
	}
	other := state
	other.AdamStep--
	if finished(other) {
		t.Error("the model is taken for that of another checkpoint")
	}
	testkit.NoError(t, os.Truncate(filepath.Join(s.out, "model.safetensors"), 1000))
	if finished(state) {
		t.Error("half a model is taken for one")
	}
}

// TestSettingsStay: no stage of a run changes the Config that the command passed.
func TestSettingsStay(t *testing.T) {
	s := newScene(t, "max_steps: -1\nnum_train_epochs: 2\n")
	c := s.config(t)
	before := string(c.YAML(""))
	o := settings.Options{Stdout: io.Discard, Stderr: io.Discard}
	for name, command := range map[string]func(context.Context, *config.Config, settings.Options) error{"train": Train,
		"dry run": DryRun, "plan": predict.Plan} {
		if err := command(t.Context(), c, o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := string(c.YAML("")); got != before {
			t.Errorf("%s has changed the settings to\n%s", name, got)
		}
	}
}

// TestValuesStay: no stage changes the values that earlier stages have returned.
func TestValuesStay(t *testing.T) {
	s := newScene(t, "")
	s.mustTrain(t)
	in := testkit.Must(open.Open(s.with("max_steps: 16\n").config(t), settings.Options{Stderr: io.Discard}, open.Asks{Run: true}))(t)
	defer in.Close()
	opened := string(in.Config.YAML(""))
	start := testkit.Must(resume.Find(in, nil))(t)
	found := string(start.Config.YAML(""))
	r := testkit.Must(resolve.Resolve(start))(t)
	if string(in.Config.YAML("")) != opened || string(start.Config.YAML("")) != found {
		t.Error("a stage has written to what an earlier one returned")
	}
	if resolved := string(r.Config.YAML("")); found == opened || resolved == found {
		t.Errorf("a stage has settled nothing:\n%s", resolved)
	}
}
