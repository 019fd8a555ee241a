package actors

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/data"
	"mt/device"
	"mt/device/op"
	"mt/host"
	"mt/internal/testkit"
	"mt/layers/schedule"
)

// recorder is a Saver that records its calls and the layers that it gets. A test can make a call
// fail (fail) or make Layer wait (hold).
type recorder struct {
	mu    sync.Mutex
	calls []string
	fail  string        // the call that fails: "open 2", "layer 1", "commit 2"
	hold  chan struct{} // Layer waits for it to be closed
	held  func()        // called before Layer waits
	saved []State
	pos   []int64
	cuts  map[int][]byte // by step: the content that Layer got; nil: not recorded
	step  int
}

var errDisk = errors.New("the disk is full")

func (r *recorder) call(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf(format, args...)
	r.calls = append(r.calls, name)
	if name == r.fail {
		return errDisk
	}
	return nil
}

func (r *recorder) Open(step int) error {
	r.step = step
	return r.call("open %d", step)
}

func (r *recorder) Layer(i int, l *host.LayerState) error {
	if r.hold != nil {
		r.held()
		<-r.hold
	}
	if r.cuts != nil {
		kept := bytesOf(l)
		r.cuts[r.step] = append(r.cuts[r.step], bytes.Join(append(kept.planes, kept.tile), nil)...)
	}
	return r.call("layer %d", i)
}

func (r *recorder) Commit(s State, pos int64) error {
	if err := r.call("commit %d", s.Step); err != nil {
		return err
	}
	r.saved, r.pos = append(r.saved, s), append(r.pos, pos)
	return nil
}

func (r *recorder) Abort() { _ = r.call("abort") }

// TestSaves: a run saves at the requested steps and at its end. Each layer is saved once between
// Open and Commit, with the weights of that step, and Commit gets the step's position in the data.
func TestSaves(t *testing.T) {
	tr := base()
	rec := &recorder{}
	tr.steps, tr.saveSteps, tr.saver = 5, 2, rec
	mustRun(t, tr)
	var steps []int
	for i, s := range rec.saved {
		steps = append(steps, s.Step)
		if s.AdamStep != int64(s.Step) || s.NonFinite != 0 || s.Tokens == 0 || rec.pos[i] != int64(s.Step*tr.rows) {
			t.Errorf("state %+v at data position %d", s, rec.pos[i])
		}
	}
	if !slices.Equal(steps, []int{2, 4, 5}) {
		t.Errorf("saved after steps %v, want 2, 4, 5", steps)
	}
	for k := 0; k+7 <= len(rec.calls); k += 7 {
		layers := slices.Sorted(slices.Values(rec.calls[k+1 : k+6]))
		if !strings.HasPrefix(rec.calls[k], "open") || !slices.Equal(layers, []string{"layer 0", "layer 1", "layer 2", "layer 3", "layer 4"}) ||
			!strings.HasPrefix(rec.calls[k+6], "commit") {
			t.Errorf("a save made the calls %v", rec.calls[k:k+7])
		}
	}
	if len(rec.calls) != 21 {
		t.Errorf("calls %v", rec.calls)
	}
}

// TestCommitsCarryTheOptimizersCounts: a checkpoint has Adam's step count and the number of consecutive skipped steps
// at the time of its layers' updates.
func TestCommitsCarryTheOptimizersCounts(t *testing.T) {
	c := newCheckpointerCore(1, 0)
	var got []commitSave
	for _, m := range []message{
		SaveRequested{Step: 4}, saveOpened{}, LayerUpdated{Version: 4, AdamStep: 2, NonFinite: 1, Save: true}, layerWritten{Step: 4}, StepReported{4}, saveCommitted{Step: 4},
		LayerUpdated{Version: 5, AdamStep: 2, NonFinite: 2, Save: true}, SaveRequested{Step: 5}, saveOpened{}, StepReported{5}, layerWritten{Step: 5}, saveCommitted{Step: 5},
	} {
		for _, e := range c.step(m) {
			if w, ok := e.(work); ok {
				if d, ok := w.do.(commitSave); ok {
					got = append(got, d)
				}
			}
		}
	}
	want := []commitSave{{SaveRequested{Step: 4}, 2, 1}, {SaveRequested{Step: 5}, 2, 2}}
	if !slices.Equal(got, want) {
		t.Errorf("commits %+v, want %+v", got, want)
	}
}

// TestCommitsWaitForReports: a checkpoint is committed only after its step was reported.
func TestCommitsWaitForReports(t *testing.T) {
	c := newCheckpointerCore(1, 3)
	for _, m := range []message{SaveRequested{Step: 5}, saveOpened{}, LayerUpdated{Version: 5, Save: true}, layerWritten{Step: 5}, StepReported{4}} {
		for _, e := range c.step(m) {
			if w, ok := e.(work); ok {
				if _, ok := w.do.(commitSave); ok {
					t.Fatalf("after %+v the checkpoint is committed, and step 5 is not reported", m)
				}
			}
		}
	}
	if got := c.step(StepReported{5}); len(got) != 1 {
		t.Errorf("after the report: %v, want the commit", got)
	}
}

// TestFailingSaves: a failing call of a save ends the run with its error, and the save is aborted once.
func TestFailingSaves(t *testing.T) {
	for _, fail := range []string{"open 2", "layer 0", "layer 4", "commit 2"} {
		t.Run(fail, func(t *testing.T) {
			tr := base()
			rec := &recorder{fail: fail}
			tr.steps, tr.saveSteps, tr.saver = 50, 2, rec
			out, err := tr.run(t)
			if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "save") {
				t.Fatalf("the run ended with %v", err)
			}
			if n := len(rec.calls); rec.calls[n-1] != "abort" || slices.Index(rec.calls, "abort") != n-1 {
				t.Errorf("calls %v: want abort at the end", rec.calls)
			}
			if len(rec.saved) > 0 || out.end.Step == 50 {
				t.Errorf("saved %v, and the run went on to step %d", rec.saved, out.end.Step)
			}
		})
	}
}

// TestSlowSavesHoldLayers: while a layer is being written to a checkpoint, its next update waits.
// So the checkpoint has the state of its step, however far training is. The wait is counted as a
// stall with the cause checkpoint.
func TestSlowSavesHoldLayers(t *testing.T) {
	for _, noClip := range []bool{false, true} {
		quick := base()
		quick.noClip, quick.steps, quick.saveSteps = noClip, 3, 1
		one := &recorder{cuts: map[int][]byte{}}
		quick.saver = one
		quick.sync = true
		want := mustRun(t, quick)

		slow := quick
		slow.sync = false
		rec := &recorder{cuts: map[int][]byte{}, hold: make(chan struct{})}
		slow.saver = rec
		// The write of the first layer goes on when the batch of step 3 is packed. By then training
		// has passed step 1, whose checkpoint is being written.
		var once, reached sync.Once
		waiting := make(chan struct{})
		rec.held = func() { once.Do(func() { close(waiting) }) }
		slow.batch = func(step int, _ *data.Batch) {
			if step == 3 {
				<-waiting
				reached.Do(func() { close(rec.hold) })
			}
		}
		sameAs(t, want, slow)
		for step, cut := range one.cuts {
			if !slices.Equal(sorted(rec.cuts[step]), sorted(cut)) {
				t.Errorf("clip %t: the checkpoint of step %d differs from one made in synchrony", !noClip, step)
			}
		}
	}
}

// sorted returns the bytes of b in ascending order. Tests compare checkpoints in this way, because
// layers are written in any order.
func sorted(b []byte) []byte { return slices.Sorted(slices.Values(b)) }

// TestHeldUpdatesSaySo: the Optimizer does not update a layer that is being saved. The later
// message LayerUpdated says that the update has waited for the checkpoint.
func TestHeldUpdatesSaySo(t *testing.T) {
	c := newOptimizerCore(optimizerSpec{lanes: 1, clip: 1, into: ids(3)}, State{})
	gradients := func(step int) (out []effect) {
		for l := 2; l >= 0; l-- {
			c.step(GradLanded{Step: step, Layer: l, Slab: l})
			out = c.step(measured{Layer: l, Squares: 1})
		}
		return out
	}
	updates := func(effects []effect) (layers []int, held []Cause) {
		for _, e := range effects {
			switch e := e.(type) {
			case work:
				if u, ok := e.do.(update); ok {
					layers = append(layers, u.Layer)
				}
			case send:
				if m, ok := e.msg.(LayerUpdated); ok && e.to == laneID(0).prefetcher() {
					held = append(held, m.Waited)
				}
			}
		}
		return layers, held
	}
	c.step(StepClosed{Step: 1, Save: true})
	gradients(1)
	for l := range 3 {
		c.step(updateDone{l})
	}
	c.step(StepClosed{Step: 2})
	if got, _ := updates(gradients(2)); len(got) != 0 {
		t.Fatalf("layers %v are updated while they are being saved", got)
	}
	if got, _ := updates(c.step(LayerSaved{Step: 1, Layer: 1})); len(got) != 0 {
		t.Fatalf("layers %v are updated before layer 0, which is held", got)
	}
	if got, _ := updates(c.step(LayerSaved{Step: 1, Layer: 0})); !slices.Equal(got, []int{0}) {
		t.Fatalf("layers %v are updated, want 0", got)
	}
	next, held := updates(c.step(updateDone{0}))
	if !slices.Equal(next, []int{1}) || !slices.Equal(held, []Cause{StallCheckpoint}) {
		t.Fatalf("after layer 0: layers %v, held %v", next, held)
	}
	if _, held := updates(c.step(updateDone{1})); !slices.Equal(held, []Cause{NoStall}) {
		t.Errorf("layer 1 was saved before its turn and is told as held: %v", held)
	}
}

// TestStopAnywhere asks runs to stop when the n-th device operation is enqueued, for every n. Each
// run ends without an error after a complete step, which it has saved.
func TestStopAnywhere(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	for _, name := range []string{"clip", "no-clip-eval"} {
		t.Run(name, func(t *testing.T) {
			tr := small()
			tr.steps, tr.saveSteps = 3, 2
			tr.noClip = name != "clip"
			stopped, every := map[int]bool{}, 3
			if testkit.Race {
				every = 13
			}
			for at, reached := 1, true; reached; at += every {
				stop := make(chan struct{})
				rec := &recorder{}
				run := tr
				run.saver, run.stop = rec, stop
				s := &stopper{at: at, stop: stop}
				run.wrap = func(d device.Device) device.Device {
					s.Device = d
					return s
				}
				out, err := run.run(t)
				reached = s.at <= 0
				if err != nil {
					t.Fatalf("stopped at operation %d: %v", at, err)
				}
				n := len(out.steps)
				stopped[n] = true
				if n == 0 {
					continue // before the first step began
				}
				if len(rec.saved) == 0 || rec.saved[len(rec.saved)-1].Step != n || rec.calls[len(rec.calls)-1] != fmt.Sprintf("commit %d", n) {
					t.Fatalf("stopped at operation %d: %d steps were made, the calls of the saver end with %v", at, n, rec.calls)
				}
			}
			if !stopped[1] || !stopped[2] || !stopped[3] {
				t.Errorf("runs ended after these numbers of steps: %v", stopped)
			}
		})
	}
}

// stopper is a device that asks the run to stop (closes stop) when operation number `at` is
// enqueued. It counts only one kind of operation, which every micro-batch of a block makes.
type stopper struct {
	device.Device
	at   int
	stop chan struct{}
}

func (s *stopper) Do(on device.Stream, o device.Op) {
	switch o.(type) {
	case *op.RMSNorm, *op.MatMul:
		if s.at--; s.at == 0 {
			close(s.stop)
		}
	}
	s.Device.Do(on, o)
}

// TestStopWithoutSaving: a run without checkpoints that is asked to stop makes no further step.
func TestStopWithoutSaving(t *testing.T) {
	tr := base()
	stop := make(chan struct{})
	tr.steps, tr.stop = 1000, stop
	tr.batch = func(step int, _ *data.Batch) {
		if step == 3 {
			close(stop)
		}
	}
	out, err := tr.run(t)
	if err != nil || len(out.steps) == 0 || len(out.steps) > 2 {
		t.Errorf("after a stop in the third batch %d steps were made: %v", len(out.steps), err)
	}
}

// TestStopBeforeTheBeginning: a run that is asked to stop at its start makes no step and saves nothing. It may have
// packed one batch.
func TestStopBeforeTheBeginning(t *testing.T) {
	for range 20 {
		tr := small()
		stop, rec := make(chan struct{}), &recorder{}
		close(stop)
		tr.steps, tr.stop, tr.saver, tr.saveSteps = 9, stop, rec, 1
		if out, err := tr.run(t); err != nil || len(out.steps) > 0 || len(rec.calls) > 0 {
			t.Fatalf("%d steps, and the saver was told %q: %v", len(out.steps), rec.calls, err)
		}
	}
}

// TestStopBetweenSteps: a run is asked to stop after a step, while no other step has begun. If
// nothing must be saved, it ends as soon as the updates are done. Otherwise it first requests a
// checkpoint of the state after the step (AtRest). It makes no other step.
func TestStopBetweenSteps(t *testing.T) {
	ends := effect(send{reporterID, flushReports{}})
	for _, noSave := range []bool{true, false} {
		for _, evaluating := range []bool{true, false} {
			c := newConductorCore(Schedule{FirstStep: 1, LastStep: 9, EvalPasses: 2, MaxNonFinite: 9, NoSave: noSave, DataPos: func(s int) int64 { return int64(4 * s) }},
				State{}, 1, schedule.Spec{})
			c.version, c.planned, c.tokens = 1, 1, 30 // one step is made, the next has no batch yet
			c.open[1] = &stepInProgress{}
			c.eval.running = evaluating
			c.step(begin{})
			if got := c.step(StopRequested{}); len(got) != 0 {
				t.Errorf("no save %t, evaluating %t: before the updates are done: %v", noSave, evaluating, got)
			}
			got := c.step(StepUpdated{Step: 1, AdamStep: 5, NonFinite: 2})[1:] // the step's report comes first
			save := effect(send{checkpointerID, SaveRequested{Step: 1, DataPos: 4, Tokens: 30, AtRest: true, AdamStep: 5, NonFinite: 2}})
			if want := map[bool]effect{true: ends, false: save}[noSave]; !slices.Equal(got, []effect{want}) {
				t.Errorf("no save %t, evaluating %t: %v, want %v", noSave, evaluating, got, want)
			}
			if got := c.step(SaveDone{Step: 1}); !noSave && !slices.Equal(got, []effect{ends}) {
				t.Errorf("evaluating %t: after the save: %v", evaluating, got)
			}
		}
	}
}
