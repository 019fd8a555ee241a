package actors

import (
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mt/device"
	"mt/device/wrap"
	"mt/host"
	"mt/internal/testkit"
)

var faultRuns = flag.Int("fault-runs", 0, "how many runs TestRandomFaults draws, each with three faults; 0: a few")

// keeper is a Saver that keeps whole checkpoints to resume from.
type keeper struct {
	open   map[int]layerBytes // by layer, of the save in progress; nil: none
	step   int                // the step of the save in progress
	kept   []*outcome         // committed checkpoints, in order, each with its state and step
	wrong  []string           // calls made out of order
	layers int                // how many layers a checkpoint has
}

func (k *keeper) Open(step int) error {
	if k.open != nil {
		k.wrong = append(k.wrong, fmt.Sprintf("open %d in the save of step %d", step, k.step))
	}
	k.open, k.step = map[int]layerBytes{}, step
	return nil
}

func (k *keeper) Layer(i int, l *host.LayerState) error {
	if _, twice := k.open[i]; twice || k.open == nil {
		k.wrong = append(k.wrong, fmt.Sprintf("layer %d twice, or without a save", i))
		return nil
	}
	k.open[i] = bytesOf(l)
	return nil
}

func (k *keeper) Commit(s State, _ int64) error {
	if s.Step != k.step || len(k.open) != k.layers {
		k.wrong = append(k.wrong, fmt.Sprintf("commit of step %d with %d layers in the save of step %d", s.Step, len(k.open), k.step))
	}
	saved := &outcome{end: s}
	for i := range k.layers {
		saved.state = append(saved.state, k.open[i])
	}
	k.kept, k.open = append(k.kept, saved), nil
	return nil
}

func (k *keeper) Abort() {
	if k.open == nil {
		k.wrong = append(k.wrong, "abort without a save")
	}
	k.open = nil
}

// books is a device that counts the host memory registered with it, to check that all is
// unregistered. The device's Usage already counts device memory, and an unclosed stream shows as a
// leaked goroutine.
type books struct {
	device.Device
	registered atomic.Int64
}

func (b *books) Register(memory ...[]byte) error {
	err := b.Device.Register(memory...)
	if err == nil {
		b.registered.Add(int64(len(memory)))
	}
	return err
}

func (b *books) Unregister(memory ...[]byte) {
	b.registered.Add(-int64(len(memory)))
	b.Device.Unregister(memory...)
}

// faulty runs tr and lets one call of its device fail; call 0: none. late: the call returns no
// error, and the stream reports it later, as on a GPU (wrap.FailLate). Also after a failure the run
// must free everything; undisturbed checks memory and goroutines.
func (tr trial) faulty(t *testing.T, call int64, late bool) (out outcome, saves *keeper, dev *wrap.Failing, err error) {
	t.Helper()
	var all []*books // by lane
	tr.wrap = func(d device.Device) device.Device {
		b := &books{Device: d}
		if all = append(all, b); len(all) != 1+tr.faultyLane {
			return b
		}
		fail := wrap.Fail
		if late {
			fail = wrap.FailLate
		}
		dev = fail(b, call)
		return dev
	}
	saves = &keeper{layers: len(tr.config().Layouts(tr.bf16))}
	tr.saver = saves
	home := tr.lend(0)
	out, err = tr.run(t)
	for _, b := range all {
		if n := b.registered.Load(); n != 0 {
			t.Errorf("call %d: %d registrations are left", call, n)
		}
	}
	if n := home.all(); n != 0 {
		t.Errorf("call %d: %d layers are not given back", call, n)
	}
	if len(saves.wrong) > 0 || saves.open != nil {
		t.Errorf("call %d: saves: %q; one is open: %t", call, saves.wrong, saves.open != nil)
	}
	return out, saves, dev, err
}

// versionsOf compares each layer of o with its states in want after 0, 1, 2, … steps. It returns
// the newest and the oldest step at which a layer is. Each layer must equal one of the states: then
// none is half updated or updated with a wrong gradient. Muon updates a layer in several works, so
// parts of the layer may be one step ahead.
func (o outcome) versionsOf(t *testing.T, err error, tr trial, want outcome) (newest, oldest int) {
	t.Helper()
	oldest = len(want.versions)
	for i, l := range o.state {
		v := slices.IndexFunc(want.versions, func(state []layerBytes) bool { return reflect.DeepEqual(state[i], l) })
		for from := 0; tr.muon && v < 0 && from+1 < len(want.versions); from++ {
			if l.between(want.versions[from][i], want.versions[from+1][i]) {
				v = from
			}
		}
		if v < 0 {
			t.Errorf("%v: layer %d is as after no step", err, i)
		}
		last := v // a layer that a step leaves unchanged matches several steps
		for last >= 0 && last+1 < len(want.versions) && reflect.DeepEqual(want.versions[last+1][i], want.versions[v][i]) {
			last++
		}
		newest, oldest = max(newest, v), min(oldest, last)
	}
	return newest, oldest
}

// between reports whether each byte of l equals the byte of a or of b: l is a layer of which some
// parts are already updated (b) and others not (a).
func (l layerBytes) between(a, b layerBytes) bool {
	either := func(l, a, b []byte) bool {
		for i, x := range l {
			if x != a[i] && x != b[i] {
				return false
			}
		}
		return true
	}
	for i, x := range l.lo {
		if x != a.lo[i] && x != b.lo[i] {
			return false
		}
	}
	for i, p := range l.planes {
		if !either(p, a.planes[i], b.planes[i]) {
			return false
		}
	}
	return either(l.tile, a.tile, b.tile)
}

// TestEveryLateFault makes each call of a step in turn fail late, as on a GPU: the call returns no
// error, and the stream reports it when it reaches the call. No value that was computed without the
// call's result reaches a weight or a moment.
func TestEveryLateFault(t *testing.T) {
	every := int64(testkit.Every(t, 6))
	undisturbed(t, func(t *testing.T) { everyLateFault(t, every) })
}

func everyLateFault(t *testing.T, every int64) {
	for name, change := range map[string]func(*trial){
		"clip":    func(*trial) {},
		"no-clip": func(tr *trial) { tr.noClip, tr.tied, tr.bf16, tr.gradBF16 = true, true, true, true },
		"experts": func(tr *trial) { tr.noClip, tr.experts, tr.chosen, tr.onDemand = true, 2, 1, true },
		"muon":    func(tr *trial) { tr.muon, tr.bf16, tr.depths.MatrixBuffers = true, true, 2 },
		"2-lanes": onLanes(2),
		"3-lanes": onLanes(3),
		"4-lanes": onLanes(4),
	} {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "clip")
			t.Parallel()
			tr := small()
			change(&tr)
			want := testkit.Must(tr.synchronous(t))(t)
			for call := drawCall(t, every); ; call += every {
				got, _, dev, err := tr.faulty(t, call, true)
				if dev.Calls() < call {
					if err != nil || call < 100 {
						t.Fatalf("%d calls, %v", dev.Calls(), err)
					}
					return
				}
				var named *wrap.Fault
				if !errors.As(err, &named) || named.Call != call {
					t.Fatalf("call %d failed and the run's error is %v", call, err)
				}
				if got.versionsOf(t, err, tr, want); t.Failed() {
					return
				}
			}
		})
	}
}

// onLanes changes a trial to n lanes. The last lane's device fails.
func onLanes(n int) func(*trial) {
	return func(tr *trial) {
		tr.blocks = 2
		*tr = tr.withLanes(n, int64(n))
		tr.faultyLane, tr.throughHost = n-1, n == 3
	}
}

// TestRandomFaults draws runs of all kinds with saves and evaluations, and makes one device call in
// each fail.
//
//   - The run ends with an error that names the call, and everything is freed.
//   - Every checkpoint has the bits that a run without pipelining has at a reported step.
//   - Every layer in memory has the bits after one step or the next. None is half updated.
//   - A run resumed from the last checkpoint ends like the undisturbed run.
func TestRandomFaults(t *testing.T) {
	testkit.NotShort(t)
	runs := *faultRuns
	if runs == 0 {
		runs = testkit.Count(t, manyFaultRuns, fewFaultRuns)
	}
	first := drawSeed(t, runs, 1000)
	var mu sync.Mutex
	ended := map[string]int{}
	undisturbed(t, func(t *testing.T) {
		for seed := first; seed < first+int64(runs); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				for _, how := range randomFaults(t, seed) {
					mu.Lock()
					ended[how]++
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("runs that ended: %v", ended)
	if runs > 5 && (ended["before the first checkpoint"] == 0 || ended["between checkpoints"] == 0) {
		t.Error("no run was ended where it could go wrong")
	}
}

// randomFaults draws a run from seed and repeats it with three different failing calls. It returns,
// for each, how far the run was when it failed.
func randomFaults(t *testing.T, seed int64) (ended []string) {
	t.Helper()
	r := rand.New(rand.NewSource(seed))
	tr := randomTrial(r)
	tr.steps, tr.saveSteps, tr.evalSteps = 2+r.Intn(3), 1+r.Intn(2), r.Intn(3)
	want, err := tr.synchronous(t)
	testkit.NoError(t, err)
	tr.delay = randomDelays(seed)
	whole, saves, dev, err := tr.faulty(t, 0, false)
	testkit.NoError(t, err)
	if got, n := len(saves.kept), (tr.steps+tr.saveSteps-1)/tr.saveSteps; whole.digest() != want.digest() || got != n {
		t.Fatalf("without a fault: steps %v and %d checkpoints; the synchronous step gives %v, and %d are asked for", whole.steps, got, want.steps, n)
	}
	third := dev.Calls() / 3
	for i := range int64(3) {
		call := i*third + 1 + r.Int63n(third)
		if how := tr.fails(t, call, r.Intn(2) == 0, whole, want); how != "" {
			ended = append(ended, how)
		}
		if t.Failed() {
			t.Fatalf("call %d of a run of %+v", call, tr)
		}
	}
	return ended
}

// fails runs tr with one failing call, checks what the run leaves, and resumes from it. It compares with whole, a run
// without a fault, and with want, which has every version of the weights. It returns how far the run was at the
// failure.
func (tr trial) fails(t *testing.T, call int64, late bool, whole, want outcome) string {
	t.Helper()
	got, saves, dev, err := tr.faulty(t, call, late)
	if err == nil && dev.Calls() < call {
		return "" // this run made fewer calls
	}
	var named *wrap.Fault
	if !errors.As(err, &named) || named.Call != call || named.Name == "" || !strings.Contains(err.Error(), named.Error()) || strings.Contains(err.Error(), "goroutine ") {
		t.Errorf("the call failed and the run's error is %v", err)
		return ""
	}
	if n := len(got.steps); !slices.Equal(got.steps, whole.steps[:n]) {
		t.Errorf("%v: the steps before it are %v, without it %v", err, got.steps, whole.steps[:n])
	}
	for _, saved := range saves.kept {
		if s := saved.end.Step; s > len(got.steps) || !reflect.DeepEqual(saved.state, want.versions[s]) {
			t.Errorf("%v: after %d steps the checkpoint of step %d has other bits", err, len(got.steps), s)
		}
	}
	newest, oldest := got.versionsOf(t, err, tr, want)
	if newest > oldest+1 || newest > len(got.steps)+2 {
		t.Errorf("%v: after %d reported steps layers are as after step %d to %d", err, len(got.steps), oldest, newest)
	}
	if strings.HasPrefix(err.Error(), "prepare the pipeline: ") {
		return "before the first step" // nothing is saved, and no weight has changed
	}
	again, from := tr, 0
	if n := len(saves.kept); n > 0 {
		again.start = saves.kept[n-1]
		from = again.start.end.Step
	}
	if from == tr.steps {
		return "after the last checkpoint"
	}
	end, _, _, bad := again.faulty(t, 0, false)
	if bad != nil || end.digest() != want.digest() || !slices.Equal(end.steps, whole.steps[from:]) {
		t.Errorf("%v, and the run that goes on from step %d: %v; steps %v, without the fault %v", err, from, bad, end.steps, whole.steps[from:])
	}
	if from == 0 {
		return "before the first checkpoint"
	}
	return "between checkpoints"
}
