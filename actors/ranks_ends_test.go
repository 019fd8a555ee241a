package actors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/base/cluster"
	"mt/data"
	"mt/device"
	"mt/device/wrap"
	"mt/host"
	"mt/internal/testkit"
)

// This file has tests of how several ranks save, skip steps, stop and fail together.

// rankSaver is a recorder (a Saver that keeps what it is given) for one of several ranks. As in a
// real run, all ranks take part in writing each layer.
type rankSaver struct {
	recorder
	c cluster.Comm
}

func (s *rankSaver) Layer(i int, l *host.LayerState) error {
	own := binary.LittleEndian.AppendUint32(nil, uint32(s.step<<16|i))
	all, err := cluster.Gather(s.c, own)
	if err != nil {
		return err
	}
	for rank, v := range all {
		if !bytes.Equal(v, own) {
			return fmt.Errorf("rank %d writes %v and this one %v", rank, v, own)
		}
	}
	return s.recorder.Layer(i, l)
}

// saving gives every rank a rankSaver. The returned slice has the savers after the run has ended.
func (tr *rankTrial) saving(t *testing.T) []*rankSaver {
	savers := make([]*rankSaver, tr.ranks)
	tr.change = func(rank int, o *Options) {
		c, err := o.World.NewComm("checkpoint")
		if err != nil {
			t.Error(err)
		}
		savers[rank] = &rankSaver{recorder: recorder{cuts: map[int][]byte{}}, c: c}
		o.Saver, o.Schedule.NoSave = savers[rank], false
	}
	return savers
}

// TestRanksSave: all ranks write the same layers in the same order, each with its bits after the
// step. The saves change no bit of the training.
func TestRanksSave(t *testing.T) {
	for _, noClip := range []bool{false, true} {
		t.Run(fmt.Sprintf("clip %t", !noClip), func(t *testing.T) {
			if !noClip {
				testkit.NotShort(t)
			}
			tr := together(3)
			tr.noClip, tr.steps = noClip, 5
			plain := tr.mustTrain(t)
			tr.saveSteps = 2
			savers := tr.saving(t)
			if got := tr.mustTrain(t); got.digest() != plain.digest() {
				t.Error("saving changed the result")
			}
			if calls := savers[0].calls; len(calls) != 21 || !slices.Equal(calls, savers[1].calls) || !slices.Equal(calls, savers[2].calls) {
				t.Errorf("ranks made the calls\n%v\n%v\n%v", calls, savers[1].calls, savers[2].calls)
			}
			short := tr
			short.change, short.saveSteps, short.steps = nil, 0, 2
			all, _ := short.runRanks(t)
			for rank, o := range all {
				var want []byte
				for _, call := range savers[rank].calls[1:6] {
					var l int
					testkit.Must(fmt.Sscanf(call, "layer %d", &l))(t)
					want = append(want, bytes.Join(append(o.state[l].planes, o.state[l].tile), nil)...)
				}
				if !bytes.Equal(savers[rank].cuts[2], want) {
					t.Errorf("rank %d saved another state than that after step 2", rank)
				}
			}
		})
	}
}

// rowsWith0 returns a function that makes the rows of a step. In the given steps, row number `row`
// contains token 0.
func rowsWith0(row int, steps ...int) func(int) []data.Row {
	return func(step int) (out []data.Row) {
		for r := range 6 {
			one := data.Row{IDs: make([]int32, 3+(step+r)%5)}
			for i := range one.IDs {
				one.IDs[i] = int32(1 + (7*step+3*r+i*i)%36)
			}
			if r == row && slices.Contains(steps, step) {
				one.IDs[1] = 0
			}
			out = append(out, one)
		}
		return out
	}
}

// TestRanksSkipTogether: in steps 2 and 3 the loss of one rank is not finite. All ranks skip these
// steps.
func TestRanksSkipTogether(t *testing.T) {
	testkit.NotShort(t)
	for _, noClip := range []bool{false, true} {
		tr := together(2)
		tr.noClip, tr.steps, tr.maxNonFinite, tr.read = noClip, 5, 3, rowsWith0(4, 2, 3)
		tr.spoils = func(_ int, s *host.Store) { spoilWeights(0)(s) }
		got := tr.mustTrain(t)
		for i, line := range got.steps {
			if want := i == 1 || i == 2; strings.HasSuffix(line, "true") != want {
				t.Errorf("clip %t: step %s, should it be skipped: %t", !noClip, line, want)
			}
		}
	}
}

// nonFinite trains on all ranks and checks that all end with the same NonFiniteError, which it
// returns.
func (tr rankTrial) nonFinite(t *testing.T) *NonFiniteError {
	t.Helper()
	_, errs := tr.runRanks(t)
	var first *NonFiniteError
	for rank, err := range errs {
		var at *NonFiniteError
		if !errors.As(err, &at) {
			t.Fatalf("rank %d ended with %v, all with %v", rank, err, errs)
		}
		if first == nil {
			first = at
		}
		if at.Error() != first.Error() || at.Step != first.Step || at.Finite != first.Finite {
			t.Errorf("rank %d ended with %v and rank 0 with %v", rank, at, first)
		}
	}
	return first
}

// TestRanksDiagnoseTogether: after too many skipped steps, all ranks end with an error that names the rank and the
// layer. No operation stays in progress, even if a stop, a save or an evaluation happens at the same time.
func TestRanksDiagnoseTogether(t *testing.T) {
	for name, change := range map[string]func(*rankTrial){
		"training": func(*rankTrial) {},
		"no clip":  func(tr *rankTrial) { tr.noClip = true },
		"the last step": func(tr *rankTrial) {
			tr.steps = 3
		},
		"evaluating": func(tr *rankTrial) { tr.evalSteps = 1 },
		"saving":     func(tr *rankTrial) { tr.saveSteps = 1; tr.saving(t) },
		"stopping": func(tr *rankTrial) {
			tr.change = func(rank int, o *Options) {
				stop := make(chan struct{})
				o.Stop = stop
				after, once := o.OnStep, sync.Once{}
				o.OnStep = func(r StepReport) {
					if after(r); r.Step == 2 && rank == 2 {
						once.Do(func() { close(stop) })
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.NotShort(t)
			for seed := range uint64(testkit.Count(t, 4, 2)) {
				tr := together(3)
				tr.seed = seed
				tr.steps, tr.maxNonFinite, tr.read = 8, 2, rowsWith0(2, 2, 3, 4, 5, 6)
				tr.spoils = func(_ int, s *host.Store) { spoilWeights(0)(s) }
				change(&tr)
				at := tr.nonFinite(t)
				if at.Step != 3 || at.Finite != 1 || !strings.Contains(at.Error(), "is that of layer 0, micro-batch 0 of rank 1;") {
					t.Errorf("step %d, finite %d: %v", at.Step, at.Finite, at)
				}
			}
		})
	}
}

// TestRanksSpoiltTogether: without clipping, a non-finite gradient ends all ranks at the same step.
// No collective operation stays in progress.
func TestRanksSpoiltTogether(t *testing.T) {
	testkit.NotShort(t)
	for _, saving := range []bool{false, true} {
		for seed := range uint64(4) {
			tr := together(3)
			tr.seed, tr.noClip, tr.saveSteps = seed, true, 1
			if saving {
				tr.saving(t)
			}
			tr.lr = func(int) float64 { return 1e-2 }
			tr.spoils = func(_ int, s *host.Store) { tr.spoilGradient(s) }
			if at := tr.nonFinite(t); at.Step != 1 || at.Finite != 0 || !strings.Contains(at.Error(), "the gradient of layer 1 is not finite") {
				t.Errorf("step %d, finite %d: %v", at.Step, at.Finite, at)
			}
		}
	}
}

// TestOneRankIsAskedToStop: if one rank is asked to stop, all ranks stop after the same step and
// save it. Each rank's Options.Stopping is called once.
func TestOneRankIsAskedToStop(t *testing.T) {
	testkit.NotShort(t)
	for _, evaluating := range []bool{false, true} {
		for seed := range uint64(6) {
			tr := together(3)
			tr.seed, tr.steps = seed, 200
			if evaluating {
				tr.evalSteps = 1
			}
			savers := tr.saving(t)
			save := tr.change
			stopped := make([]int, tr.ranks)
			tr.change = func(rank int, o *Options) {
				save(rank, o)
				stop := make(chan struct{})
				o.Stop, o.Stopping = stop, func() { stopped[rank]++ }
				after := o.OnStep
				o.OnStep = func(r StepReport) {
					if after(r); r.Step == 2 && rank == 1 {
						close(stop)
					}
				}
			}
			got := tr.mustTrain(t)
			last := len(got.steps)
			for rank, s := range savers {
				if len(s.saved) != 1 || s.saved[0].Step != last || last > 20 || stopped[rank] != 1 {
					t.Errorf("rank %d stopped %d times, and saved %+v; the run had %d steps", rank, stopped[rank], s.saved, last)
				}
			}
		}
	}
}

// TestRanksPause: a run of several ranks that pauses and resumes ends like an uninterrupted one.
func TestRanksPause(t *testing.T) {
	testkit.NotShort(t)
	tr := together(2)
	want := tr.mustTrain(t)
	tr.change = func(_ int, o *Options) { o.Schedule.PauseAfter = 2 }
	paused, errs := tr.runRanks(t)
	testkit.NoError(t, errors.Join(errs...))
	tr.spoils = func(rank int, s *host.Store) {
		from := tr.trial
		from.start = &paused[rank]
		from.fill(t, s, tr.config())
	}
	tr.change = func(rank int, o *Options) {
		o.Start, o.Schedule.FirstStep = paused[rank].end, 3
	}
	if got := tr.mustTrain(t); got.digest() != want.digest() || !slices.Equal(got.steps, want.steps[2:]) {
		t.Errorf("steps %v, want the end of %v", got.steps, want.steps)
	}
}

// TestAFaultOnOneRankEndsAll makes call 1, 2, 3, … of one rank's device fail. That rank ends with
// the error, and all others with an error that names the rank. No memory and no goroutine is left.
func TestAFaultOnOneRankEndsAll(t *testing.T) {
	testkit.NotShort(t)
	every := int64(testkit.Every(t, 16))
	for _, noClip := range []bool{false, true} {
		before := runtime.NumGoroutine()
		failed := 0
		for call := drawCall(t, every); ; call += every {
			tr := rankTrial{trial: small(), ranks: 3, seed: uint64(call)}
			tr.noClip, tr.depths.ExchangeBuffers, tr.depths.GathersAhead = noClip, 1, 1
			tr.steps = 2
			var dev *wrap.Failing
			tr.wraps = func(rank int, d device.Device) device.Device {
				if rank != 1 {
					return d
				}
				dev = wrap.Fail(d, call)
				return dev
			}
			_, errs := tr.runRanks(t)
			if errors.Join(errs...) == nil && dev.Calls() < call {
				break
			}
			failed++
			var want *wrap.Fault
			if !errors.As(errs[1], &want) || want.Call != call {
				t.Fatalf("call %d failed and rank 1 ended with %v", call, errs[1])
			}
			for _, rank := range []int{0, 2} {
				if err := errs[rank]; err != nil && !strings.Contains(err.Error(), "rank 1 ended the run: ") {
					t.Fatalf("call %d of rank 1 failed and rank %d ended with %v", call, rank, err)
				}
			}
		}
		if failed*int(every) < 120 {
			t.Errorf("only %d calls failed", failed)
		}
		settle(t, before)
	}
}

// TestRefusedRanks: a run with several ranks returns an error for options that it does not support,
// for a batch that is not divided among the ranks, and for the plan of another rank.
func TestRefusedRanks(t *testing.T) {
	for _, c := range []struct {
		change func(*rankTrial)
		want   []string // one of these
	}{
		{func(tr *rankTrial) {
			tr.change = func(_ int, o *Options) {
				o.Batch = func(step int, _ bool) (*data.Batch, error) { return tr.makeBatch(step), nil }
			}
		}, []string{"the batch is not one of 2 ranks"}},
		{func(tr *rankTrial) { // either rank may notice it
			tr.change = func(rank int, o *Options) { o.Schedule.EvalPasses, o.Schedule.EvalAtStart = 1, rank == 1 }
		}, []string{
			"rank 1 is at the end of pass 0, an evaluation after step 0, and this one, rank 0, of pass 0, of step 1",
			"rank 0 is at the end of pass 0, of step 1, and this one, rank 1, of pass 0, an evaluation after step 0",
		}},
		{func(tr *rankTrial) {
			tr.change = func(_ int, o *Options) { o.Plan.Rank = 1 - o.Plan.Rank }
		}, []string{"has the plan of rank"}},
		{func(tr *rankTrial) {
			tr.change = func(_ int, o *Options) { o.World = nil }
		}, []string{"rank 0 of 1 has the plan of rank"}},
	} {
		tr := together(2)
		c.change(&tr)
		_, errs := tr.runRanks(t)
		err := errors.Join(errs...)
		if err == nil || !slices.ContainsFunc(c.want, func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("got %v, want one of %q", err, c.want)
		}
	}
}
