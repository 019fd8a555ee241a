package actors

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"mt/base/accounts"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cpu"
	"mt/device/wrap"
	"mt/host/optim"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/plan"
)

// drawLanes puts every layer on one of n lanes, at least one on each.
func drawLanes(r *rand.Rand, layers, n int) []int {
	out := make([]int, layers)
	for i := range out {
		out[i] = r.Intn(n)
	}
	for lane, layer := range r.Perm(layers)[:n] {
		out[layer] = lane
	}
	return out
}

// drawParts draws the lane of each part of a head, and sets that of the head, the last in lane. A lane's parts follow
// each other. nil: all are on the head's lane.
func drawParts(r *rand.Rand, parts int, lane []int) []int {
	top, out, at := len(lane)-1, []int{}, 0
	order := r.Perm(1 + slices.Max(lane))
	for part := range parts {
		if part > 0 && at+1 < len(order) {
			at += r.Intn(2)
		}
		out = append(out, order[at])
	}
	if at == 0 || !slices.Contains(slices.Concat(lane[:top], out), lane[top]) { // a lane would have nothing
		return nil
	}
	lane[top] = out[0]
	return out
}

// withLanes returns the trial with its layers on n lanes, drawn by seed, and parts of the head where they may be on several.
func (tr trial) withLanes(n int, seed int64) trial {
	layers := len(tr.config().Layouts(false))
	tr.order = schedule.Lanes
	r := rand.New(rand.NewSource(seed))
	tr.lane = drawLanes(r, layers, min(n, layers))
	if tr.shards > 1 && !tr.noClip && !tr.layerwise && !tr.onHost && !tr.ahead {
		tr.head = drawParts(r, tr.shards, tr.lane)
	}
	return tr
}

// TestLanesEqualTheSynchronousStep: a run on any number of lanes, with any assignment of layers,
// gives the bits of a run without pipelining (the synchronous step) that takes micro-batches in the
// same order. This holds both for activations copied directly between devices and for those copied
// through the host.
func TestLanesEqualTheSynchronousStep(t *testing.T) {
	var across, parted atomic.Int64
	t.Run("shapes", func(t *testing.T) { lanesOfShapes(t, &across, &parted) })
	if across.Load() == 0 || parted.Load() == 0 {
		t.Errorf("%d bytes went from device to device, and %d heads had parts on several lanes", across.Load(), parted.Load())
	}
}

func lanesOfShapes(t *testing.T, across, parted *atomic.Int64) {
	for name, shape := range map[string]func(*trial){
		"fp32": func(tr *trial) { tr.micro, tr.shards = 1, 5 },
		"unclipped-tied": func(tr *trial) {
			tr.noClip, tr.tied, tr.micro, tr.depths = true, true, 1, testDepths(1)
			tr.depths.GradSlabs = 2
		},
		"copied-least": func(tr *trial) { tr.copyTiles, tr.micro, tr.depths = true, 1, testDepths(1) },
		"bf16":         func(tr *trial) { tr.copyTiles, tr.bf16, tr.gradBF16, tr.shards, tr.tied = true, true, true, 3, true },
		"experts":      func(tr *trial) { tr.copyTiles, tr.experts, tr.chosen, tr.onDemand, tr.micro = true, 8, 1, true, 1 },
		"balanced": func(tr *trial) {
			tr.copyTiles, tr.experts, tr.chosen, tr.aux, tr.bf16, tr.micro = true, 5, 2, true, true, 1
		},
		"muon": func(tr *trial) {
			tr.copyTiles, tr.muon, tr.bf16, tr.micro, tr.shards, tr.depths.MatrixBuffers = true, true, true, 1, 4, 2
		},
		"4-bit": func(tr *trial) {
			tr.wide, tr.by, tr.copyTiles, tr.bf16, tr.bf16Master, tr.micro = true, optim.Quantised{By: recipe, Bits: 4}, true, true, true, 1
		},
		"evaluations": func(tr *trial) { tr.evalSteps, tr.micro, tr.shards = 2, 1, 4 },
		"skipped": func(tr *trial) {
			tr.maxNonFinite, tr.spoil, tr.batch, tr.micro = 5, spoilWeights(0), withToken0(2, tr.rows, 1), 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "muon")
			t.Parallel()
			tr := base()
			shape(&tr)
			tr.order = schedule.Lanes
			want := testkit.Must(tr.synchronous(t))(t)
			one := mustRun(t, tr)
			for n := 2; n <= 4; n++ {
				seed := int64(100*n + len(name))
				tr := tr.withLanes(n, seed)
				tr.delay, tr.throughHost = randomDelays(seed), n == 3
				if tr.head != nil {
					parted.Add(1)
				}
				got := mustRun(t, tr)
				if across.Add(got.peer); tr.throughHost && got.peer > 0 {
					t.Errorf("%d bytes went from device to device, and all were to go through the host", got.peer)
				}
				if got.digest() != want.digest() || fmt.Sprint(got.steps, got.evals) != fmt.Sprint(one.steps, one.evals) {
					t.Errorf("layers on lanes %v: steps %v, evaluations %v; one lane gives %v and %v, the synchronous step %v", tr.lane, got.steps, got.evals, one.steps, one.evals, want.steps)
				}
			}
		})
	}
}

// TestReaderThatIsLate: a copy from another lane never overwrites an activation that the receiving
// lane must still read. In evaluations the slot may be returned as soon as its last reader is
// enqueued, so the copy must wait until the reader is done.
func TestReaderThatIsLate(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	tr := base()
	tr.order, tr.micro, tr.steps, tr.evalSteps, tr.depths.ActivationSlots = schedule.Lanes, 1, 1, 1, 10
	want := mustRun(t, tr)
	tr.lane = []int{0, 1, 0, 1, 0}
	opened := 0
	tr.open = func() (device.Device, error) {
		opened++
		late := time.Duration(opened) // the second device is slower
		return cpu.New(cpu.Options{Threads: 1, Unified: true, Delay: func(stream string, _ int64) time.Duration {
			if stream == "compute" {
				return late * late * 50 * time.Microsecond
			}
			return 0
		}})
	}
	if got := mustRun(t, tr); got.digest() != want.digest() || fmt.Sprint(got.evals) != fmt.Sprint(want.evals) || got.peer == 0 {
		t.Errorf("steps %v and evaluations %v, one lane gives %v and %v; %d bytes went from device to device", got.steps, got.evals, want.steps, want.evals, got.peer)
	}
}

// TestLanesTakeWhatIsPlanned: with several lanes, each device and the host allocate exactly the
// bytes in the plan's table.
func TestLanesTakeWhatIsPlanned(t *testing.T) {
	testkit.NotShort(t)
	r := rand.New(rand.NewSource(6))
	met := map[string]int{}
	for range 25 {
		q := randomRequest(r)
		q.EvalOnly, q.RowTokens, q.Order = false, max(q.RowTokens, 3), schedule.Lanes
		q.Devices = min(2+r.Intn(3), len(q.Config.Layouts(false)))
		p := testkit.Must(plan.Resolve(q))(t)
		tr := trialOf(q, p)
		tr.lane = p.Lane
		out := mustRun(t, tr)
		planned := tableOf(p)
		staging := int64(0)
		for lane, u := range out.usages {
			staging += u.Peak[accounts.HostStaging]
			for purpose, n := range u.Peak {
				name := fmt.Sprintf("device %d %s", lane, accounts.Purpose(purpose))
				if accounts.Purpose(purpose) != accounts.HostStaging && n != planned[name] {
					t.Errorf("%s: %d bytes are held, %d planned\n%+v", name, n, planned[name], q)
				}
			}
		}
		for _, purpose := range []accounts.Purpose{accounts.Passage, accounts.HiddenStates, accounts.WaitingHeads} {
			if got, want := out.arenas[purpose], planned["host "+purpose.String()]; got != want {
				t.Errorf("%s: %d bytes of the host are held, %d planned\n%+v", purpose, got, want, q)
			}
		}
		if want := planned["device host staging"]; staging != want {
			t.Errorf("%d bytes of the host are held, %d planned\n%+v", staging, want, q)
		}
		for what, is := range map[string]bool{"spilled": p.On(0).SpillBytes() > 0, "slabs": !p.Clip, "experts": p.Experts > 0, "in place": p.Unified, "parts": p.Spec.Shards() > 1, "hidden states on the host": p.Spec.OnHost} {
			if is {
				met[what]++
			}
		}
	}
	if len(met) != 6 {
		t.Errorf("not all kinds of runs were drawn: %v", met)
	}
}

// TestFailingLanes: a failing call on one device ends the run with its error, and all devices get their memory back.
func TestFailingLanes(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	tr := base().withLanes(3, 1)
	tr.steps, tr.rows, tr.micro, tr.copyTiles = 1, 3, 1, true
	failed, every, least := 0, int64(37), 10
	if testkit.Race {
		every, least = 4*every, least/4
	}
	for call := int64(1); call < 2000; call += every {
		opened := 0
		tr.wrap = func(d device.Device) device.Device {
			if opened++; opened != 1+int(call)%3 {
				return d
			}
			return wrap.Fail(d, call)
		}
		_, err := tr.run(t)
		var want *wrap.Fault
		if errors.As(err, &want) {
			failed++
		} else if err != nil {
			t.Fatalf("call %d: %v", call, err)
		}
	}
	if failed < least {
		t.Errorf("only %d calls failed", failed)
	}
}

// TestLanesOnGPUs: a run on several emulated GPUs gives the bits of a run on one, whether or not
// the GPUs can copy to each other. The emulated driver checks every access, that the memory belongs
// to the GPU, and that events order all accesses.
func TestLanesOnGPUs(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t)
	across := int64(0)
	for name, change := range map[string]func(*trial){
		"bf16": func(tr *trial) { tr.bf16, tr.gradBF16, tr.tied, tr.shards = true, true, true, 2 },
		"experts": func(tr *trial) {
			tr.experts, tr.chosen, tr.onDemand, tr.noClip, tr.aux, tr.blocks = 4, 1, true, true, true, 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testkit.Race && name == "bf16" {
				t.Skip("slow under the race detector, where experts run the same goroutines and more")
			}
			tr := base()
			tr.steps, tr.rows, tr.micro, tr.order, tr.blocks = 2, 3, 1, schedule.Lanes, 2
			change(&tr)
			want := runOnCUDA(t, tr, emu.Options{})
			for n := 2; n <= 3; n++ {
				apart := (n == 3) == (name == "bf16")
				if testkit.Race && apart {
					continue
				}
				got := runOnCUDA(t, tr.withLanes(n, int64(n)), emu.Options{Devices: n, Mode: emu.Random, Seed: uint64(n), WithoutPeers: apart})
				if across += got.peer; apart && got.peer > 0 {
					t.Errorf("%d bytes went from device to device", got.peer)
				}
				if got.digest() != want.digest() || fmt.Sprint(got.steps) != fmt.Sprint(want.steps) {
					t.Errorf("%d GPUs: steps %v, one gives %v", n, got.steps, want.steps)
				}
			}
		})
	}
	if across == 0 {
		t.Error("nothing went from device to device")
	}
}
