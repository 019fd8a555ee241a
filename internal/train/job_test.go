package train

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mt/actors"
	"mt/checkpoint"
	"mt/host"
	"mt/internal/parallel"
	"mt/model"
)

// openScene opens what is needed for a scene's run, planned, with nothing allocated.
func openScene(t *testing.T, s scene) *Output {
	t.Helper()
	var log bytes.Buffer
	j, err := openRun(s.config(t), Options{Stdout: &log, Stderr: &log, hooks: hooks{fs: lazyFS{checkpoint.OS()}}}, Asks{Run: true}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Cleanup(func() {
		var err error
		if closeAfter(j, &err); err != nil {
			t.Error(err)
		}
	})
	return j
}

// TestInitialise: a new model has in every row what model.InitRow says of that
// row, whatever the threads, and no two rows alike.
func TestInitialise(t *testing.T) {
	j := openScene(t, newScene(t, ""))
	for _, threads := range []int{1, 3} {
		pool := parallel.New(threads)
		defer pool.Close()
		s, err := host.NewStore(j.plan.Layouts, j.plan.Planes, pool)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := initialise(s, j.model, 11, pool); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, l := range s.Layers {
			for k, tl := range l.Layout.Tensors {
				got, want := make([]float32, tl.Elems()), make([]float32, tl.Elems())
				l.ReadRows(k, 0, tl.Rows, got)
				model.InitRow(j.model, tl.Param, 0, 11, want)
				if !slices.Equal(got, want) {
					t.Errorf("%d threads: layer %d %s differs from its rows made at once", threads, l.Layout.Index, tl.Role)
				}
				for r := 0; tl.Dims == 2 && r < tl.Rows; r++ {
					row, err := json.Marshal(got[r*tl.Cols : (r+1)*tl.Cols])
					if err != nil {
						t.Fatal(err)
					}
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

// TestEpochs: 11 rows, 4 a step, are 3 steps an epoch.
func TestEpochs(t *testing.T) {
	for epochs, want := range map[string]int{"1": 3, "2": 6, "0.5": 2, "1.5": 5, "0.01": 1} {
		s := newScene(t, "max_steps: -1\nnum_train_epochs: "+epochs+"\n")
		if got := openScene(t, s).c.MaxSteps; got != want {
			t.Errorf("%s epochs are %d steps, want %d", epochs, got, want)
		}
	}
}

// openSaver is a saver in a scene's output directory that has written the layers
// of a step's checkpoint, and a log of metrics.
func openSaver(t *testing.T, s scene, step int) *saver {
	t.Helper()
	j := openScene(t, s)
	store, err := host.NewStore(j.plan.Layouts, j.plan.Planes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	log, _, err := openMetrics(j.fs(), filepath.Join(t.TempDir(), metricsFile), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.f.Close() })
	sv := &saver{j: j, staging: &staging{team: j.team}, log: log, kept: &windows{}}
	if err := sv.Open(step); err != nil {
		t.Fatal(err)
	}
	for i, l := range store.Layers {
		if err := sv.Layer(i, l); err != nil {
			t.Fatal(err)
		}
	}
	return sv
}

// TestNoCheckpointWithoutItsMetrics: where a line of the metrics could not be
// written a checkpoint behind it would stand for a run that nobody can read.
func TestNoCheckpointWithoutItsMetrics(t *testing.T) {
	s := newScene(t, "")
	sv := openSaver(t, s, 5)
	defer sv.Abort()
	sv.log.out = &fullWriter{sv.log.f, 3}
	if err := sv.log.write(map[string]int{"step": 5}); err == nil {
		t.Fatal("the line was written")
	}
	if err := sv.Commit(actors.State{Step: 5}, 20); err == nil {
		t.Error("it is committed")
	}
	if _, err := os.Stat(filepath.Join(s.out, "checkpoint-5")); err == nil {
		t.Error("the checkpoint is there")
	}
}

// TestCheckpointsKeepTheCountOfSkippedSteps: a run that is resumed gives up after
// as many steps in a row as one that is not.
func TestCheckpointsKeepTheCountOfSkippedSteps(t *testing.T) {
	s := newScene(t, "")
	sv := openSaver(t, s, 5)
	want := actors.State{Step: 5, AdamStep: 3, NonFinite: 2, Tokens: 77}
	if err := sv.Commit(want, 20); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.out, "checkpoint-5")
	state, err := checkpoint.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if state.DataPos != 20 {
		t.Errorf("%s is at row %d", dir, state.DataPos)
	}
	run := &session{Output: sv.j, saver: sv, lastStep: state.Step, reached: resume{state: state}.reached()}
	if got := run.options().Start; got != want {
		t.Errorf("a run goes on from %+v, want %+v", got, want)
	}
}

// TestFinished: there is nothing to do where the output directory holds the whole
// model of the very checkpoint that a run would go on from.
func TestFinished(t *testing.T) {
	s := newScene(t, "max_steps: 2\n")
	s.mustTrain(t)
	dir, state, _, err := checkpoint.Latest(s.out, nil)
	if err != nil || dir == "" {
		t.Fatalf("%q, %v", dir, err)
	}
	finished := func(at checkpoint.TrainerState) bool {
		return (&Start{Inputs: openScene(t, s).Inputs, from: resume{dir: dir, state: at}}).finished()
	}
	if !finished(state) {
		t.Error("the run is not done")
	}
	other := state
	other.AdamStep--
	if finished(other) {
		t.Error("the model is taken for that of another checkpoint")
	}
	if err := os.Truncate(filepath.Join(s.out, "model.safetensors"), 1000); err != nil {
		t.Fatal(err)
	}
	if finished(state) {
		t.Error("half a model is taken for one")
	}
}
