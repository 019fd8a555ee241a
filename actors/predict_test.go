package actors

import (
	"math"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"mt/base/timeline"
	"mt/device"
	"mt/device/virtual"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan/rates"
)

// machine returns the rates of an imaginary GPU and host that are so fast that tests can slow down
// one resource and see its effect.
func machine() *rates.Machine {
	fast := rates.Op{Rate: 1e4}
	return &rates.Machine{Name: "test", Device: rates.Device{Name: "GPU", Kind: "cuda", Memory: 1, Bandwidth: 1e4,
		Products:  map[string][]rates.Product{"fp32": {{Rate: 1e3}}, "bf16": {{Rate: 1e3}}},
		Attention: map[string][]rates.Attention{"fp32": {{Length: 16, Dim: 6, Forward: 1e3, Backward: 1e3}}, "bf16": {{Length: 16, Dim: 6, Forward: 1e3, Backward: 1e3}}}},
		Link: rates.Link{Up: 1e4, Down: 1e4, Both: 2e4}, Host: rates.Host{Cores: 8, Memory: 1, Bandwidth: 1e5, Update: fast, Norm: fast, Gather: fast, Message: 0.001},
		Disk: rates.Disk{Write: 1e4, Read: 1e4}}
}

// predict predicts the trial on machine m and returns the reports of its steps.
func (tr trial) predict(t *testing.T, m *rates.Machine) (steps []StepReport) {
	t.Helper()
	var out outcome
	o := tr.options(nil, nil, nil, tr.plan(tr.config()), &out)
	o.Schedule.NoSave = true
	testkit.NoError(t, Predict(t.Context(), o, m, func(r StepReport, _ virtual.Use) float64 { steps = append(steps, r); return math.Inf(1) }))
	return steps
}

// TestPredictionMovesTheSameBytes: a predicted run follows the same programs as the real one, so
// both report the same bytes copied between host and device, whatever the depths.
func TestPredictionMovesTheSameBytes(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for range testkit.Count(t, 60, 6) {
		tr := base()
		tr.copyTiles, tr.tied, tr.gradBF16, tr.noClip, tr.steps = true, r.Intn(2) == 0, r.Intn(3) == 0, r.Intn(2) == 0, 3
		tr.depths.WeightSlots, tr.depths.GradBuffers, tr.depths.ActivationSlots = 1+r.Intn(3), 1+r.Intn(2), 3+r.Intn(4)
		tr.depths.GradSlabs = 2 + r.Intn(2)
		tr.keeps = randomKeeps(r, tr.blocks)
		if r.Intn(3) == 0 {
			tr.shards = 3
		}
		tr.muon, tr.depths.MatrixBuffers = r.Intn(3) == 0, 1+r.Intn(3)
		tr.onHost = r.Intn(3) == 0
		tr.wrap = func(d device.Device) device.Device { return d }
		real := mustRun(t, tr)
		var h2d, d2h int64
		for _, s := range tr.predict(t, machine()) {
			h2d, d2h = h2d+s.H2D, d2h+s.D2H
		}
		if h2d != real.h2d || d2h != real.d2h {
			t.Errorf("%+v: predicted %d bytes to the device and %d back, moved were %d and %d", tr, h2d, d2h, real.h2d, real.d2h)
		}
	}
}

// TestPredictionOfPassing: an activation that passes between devices which can copy to each other
// is not counted as a copy from or to the host. It takes the time of the machine's link between
// devices.
func TestPredictionOfPassing(t *testing.T) {
	tr := base()
	tr.copyTiles, tr.steps, tr.micro, tr.order, tr.lane = true, 3, 8, schedule.Lanes, []int{0, 1, 0, 1, 0}
	step := func(peer float64) (all StepReport) {
		m := machine()
		m.Link.Peer, m.Link.Wires = peer, true
		for _, s := range tr.predict(t, m) {
			all.H2D, all.D2H, all.Peer, all.Elapsed = all.H2D+s.H2D, all.D2H+s.D2H, all.Peer+s.Peer, all.Elapsed+s.Elapsed
		}
		return all
	}
	host, fast, slow := step(0), step(1e4), step(1e-4)
	if host.Peer != 0 || fast.Peer == 0 || host.H2D-fast.H2D != fast.Peer || host.D2H-fast.D2H != fast.Peer {
		t.Errorf("through the host %d bytes to the devices and %d back, else %d and %d, and %d between them", host.H2D, host.D2H, fast.H2D, fast.D2H, fast.Peer)
	}
	if least := float64(slow.Peer) / 2 / 1e5; slow.Elapsed.Seconds() < least || fast.Elapsed.Seconds() > least/10 {
		t.Errorf("%d bytes pass: at 1e5 a second the step takes %v, at 1e13 %v", slow.Peer, slow.Elapsed, fast.Elapsed)
	}
}

// TestPredictionOfExperts: a prediction gives every expert equally many tokens, and copies every
// expert's tile to the device.
func TestPredictionOfExperts(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		tr := base()
		tr.copyTiles, tr.experts, tr.chosen, tr.onDemand, tr.aux = true, 4, 2, onDemand, true
		for _, lanes := range []int{1, 2} {
			for l := range tr.config().Layouts(false) {
				if lanes > 1 {
					tr.order, tr.lane = schedule.Lanes, append(tr.lane, l%lanes)
				}
			}
			steps := tr.predict(t, machine())
			if s := steps[1]; s.Experts == 0 || s.ExpertBytes == 0 || s.Elapsed <= 0 {
				t.Errorf("on demand %t, %d lanes: %+v", onDemand, lanes, s)
			}
		}
	}
}

// plainDevice hides that a device is virtual, so that each launch of an expert is made anew.
type plainDevice struct{ device.Device }

// TestExpertsAreAlike: a prediction that repeats the launches of a layer's experts has the same reports as one that
// makes each anew. One expert's second matrix is frozen, and another expert, so their launches differ. Experts get unequal
// numbers of tokens.
func TestExpertsAreAlike(t *testing.T) {
	tr := base()
	tr.experts, tr.chosen, tr.copyTiles, tr.steps = 5, 2, true, 2
	var reports [2][]StepReport
	for i, wrap := range []func(device.Device) device.Device{nil, func(d device.Device) device.Device { return plainDevice{d} }} {
		var out outcome
		p := tr.plan(tr.config())
		for l := range p.Layouts {
			for k := range p.Layouts[l].Tensors {
				if x := &p.Layouts[l].Tensors[k]; x.Part == 3 && x.Role == model.RoleExpertDown || x.Part == 4 {
					x.Frozen = true
				}
			}
		}
		o := tr.options(nil, nil, nil, p, &out)
		o.Schedule.NoSave, o.Wrap = true, wrap
		m := machine()
		m.Device.Bandwidth, m.Device.Launch = 1, 3
		m.Device.Products = map[string][]rates.Product{"fp32": {{Rate: 1e-3}}, "bf16": {{Rate: 1e-3}}}
		testkit.NoError(t, Predict(t.Context(), o, m, func(r StepReport, _ virtual.Use) float64 { reports[i] = append(reports[i], r); return math.Inf(1) }))
	}
	if len(reports[0]) != 2 || !reflect.DeepEqual(reports[0], reports[1]) {
		t.Errorf("repeated %+v, made anew %+v", reports[0], reports[1])
	}
}

// TestPredictedStall: if one resource of the machine is slow, the predicted stall is counted under
// that resource's cause, and is about as long as the resource is busy.
func TestPredictedStall(t *testing.T) {
	tr := base()
	tr.copyTiles, tr.steps = true, 3
	slow := func(change func(m *rates.Machine)) StepReport {
		m := machine()
		change(m)
		return tr.predict(t, m)[1]
	}
	most := func(r StepReport) Cause {
		top := NoStall
		for c := range NumCauses {
			if r.Stall[c] > r.Stall[top] {
				top = c
			}
		}
		return top
	}
	if r := slow(func(m *rates.Machine) { m.Host.Update.Fixed = 1e4 }); most(r) != StallUpdate || r.Elapsed < 50*time.Millisecond || r.Elapsed > 51*time.Millisecond {
		t.Errorf("five updates of 10 ms: %v, most for %s", r.Elapsed, most(r))
	}
	lion := tr
	lion.planned = tr.plan(tr.config())
	lion.planned.Optim = "lion"
	m := machine()
	m.Host.Updates = map[string]rates.Op{"lion": {Fixed: 1e4, Rate: m.Host.Update.Rate}, "sgd": {Fixed: 1e5, Rate: 1}}
	if r := lion.predict(t, m)[1]; most(r) != StallUpdate || r.Elapsed < 50*time.Millisecond || r.Elapsed > 51*time.Millisecond {
		t.Errorf("five updates of 10 ms by Lion: %v, most for %s", r.Elapsed, most(r))
	}
	muon := tr
	muon.muon = true
	muon.planned = muon.plan(tr.config())
	muon.planned.Optim = "muon"
	matrices := time.Duration(0)
	for l := range muon.planned.Layouts {
		matrices += time.Duration(len(muon.planned.Matrices(l)))
	}
	m.Host.Updates = map[string]rates.Op{"muon": {Fixed: 1e3, Rate: m.Host.Update.Rate}}
	if r, least := muon.predict(t, m)[1], matrices*2*time.Millisecond; matrices == 0 || r.Elapsed < least || r.Elapsed > least+2*time.Millisecond {
		t.Errorf("%d matrices of 2 ms each: %v", matrices, r.Elapsed)
	}
	if r := slow(func(m *rates.Machine) { m.Link.Up = 1e-3 }); r.Stall[StallWeights]+r.Stall[StallData] < r.Elapsed*9/10 || most(r) != StallWeights {
		t.Errorf("a slow link: %v, stalls %v", r.Elapsed, r.Stall)
	}
	if r := slow(func(m *rates.Machine) { m.Link.Up, m.Host.Update.Fixed = 1e-3, 10 }); r.Stall[StallUpdate] > r.Elapsed/20 || most(r) != StallWeights {
		t.Errorf("a slow link, and updates for which tiles wait a little: %v, stalls %v", r.Elapsed, r.Stall)
	}
	tr.depths.GradBuffers = 1
	if r := slow(func(m *rates.Machine) { m.Link.Down = 1e-3 }); most(r) != StallGradBuffer && most(r) != StallUpdate {
		t.Errorf("a slow way back: %v, most for %s", r.Elapsed, most(r))
	}
	tr.depths.ActivationSlots = 3
	if r := slow(func(m *rates.Machine) { m.Link.Latency = 1e4 }); most(r) != StallActivation {
		t.Errorf("slow copies with few activation slots: %v, most for %s", r.Elapsed, most(r))
	}
	tr = base()
	if r := slow(func(m *rates.Machine) { m.Host.Pack = 1e4 }); most(r) != StallData {
		t.Errorf("slow packing: %v, most for %s", r.Elapsed, most(r))
	}
}

// TestPredictionRepeats: two predictions of the same run give the same reports. Predict rejects a
// machine that lacks a necessary rate.
func TestPredictionRepeats(t *testing.T) {
	tr := base()
	tr.copyTiles = true
	one, two := tr.predict(t, machine()), tr.predict(t, machine())
	for i := range one {
		if one[i] != two[i] {
			t.Errorf("step %d: %+v, then %+v", i+1, one[i], two[i])
		}
	}
	m := machine()
	delete(m.Device.Products, "fp32")
	var out outcome
	err := Predict(t.Context(), tr.options(nil, nil, nil, tr.plan(tr.config()), &out), m, func(StepReport, virtual.Use) float64 { return math.Inf(1) })
	if err == nil || !strings.Contains(err.Error(), "device.products.fp32") {
		t.Errorf("no rates for fp32: %v", err)
	}
}

// TestPredictedTimeline: the timeline (trace) of a predicted run has the same tracks as that of a
// real run.
func TestPredictedTimeline(t *testing.T) {
	tr := base()
	tr.copyTiles = true
	tracks := func(run func(tr trial)) (names []string, spans int) {
		tr.timeline = timeline.New(timeline.Options{KeepStep: true})
		run(tr)
		for _, track := range tr.timeline.Last().Tracks {
			if n, isBatch := strings.CutPrefix(track.Name, "batch "); !isBatch || strings.HasPrefix(n, "slot") { // the number of batches at a time depends on the clock
				names = append(names, track.Name)
			}
			if track.Name == "compute" {
				for _, s := range track.Spans {
					if s.Cause == "" {
						spans++
					}
				}
			}
		}
		return names, spans
	}
	for _, lane := range [][]int{nil, {0, 1, 0, 1, 0}} {
		if tr.lane = lane; lane != nil {
			tr.order, tr.micro = schedule.Lanes, 8
		}
		real, launches := tracks(func(tr trial) { mustRun(t, tr) })
		m := machine()
		m.Link.Peer, m.Device.Bandwidth = 1e4, 10 // no launch takes less than a nanosecond
		predicted, same := tracks(func(tr trial) { tr.predict(t, m) })
		if strings.Join(real, " ") != strings.Join(predicted, " ") || launches != same && lane == nil { // with several lanes, steps end at different times
			t.Errorf("lanes %v: tracks %v with %d launches, predicted %v with %d", lane, real, launches, predicted, same)
		}
	}
}

// TestCausesHaveWords: no two causes of a stall have the same name, or the same description in
// reports.
func TestCausesHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for c := range NumCauses {
		if seen[c.String()] || seen[c.words()] {
			t.Errorf("cause %d is called %q and %q, as another one is", c, c, c.words())
		}
		seen[c.String()], seen[c.words()] = true, true
	}
}

// TestPredictedLanes: two devices take little more than half the time of one if computing dominates.
func TestPredictedLanes(t *testing.T) {
	m := machine()
	m.Device.Products["fp32"], m.Link.Latency, m.Host.Message = []rates.Product{{Rate: 1e-3}}, 0, 0
	tr := base()
	tr.copyTiles, tr.order, tr.micro, tr.blocks, tr.rows, tr.steps = true, schedule.Lanes, 1, 8, 8, 3
	one := tr.predict(t, m)[1]
	for l := range tr.config().Layouts(false) {
		tr.lane = append(tr.lane, l%2)
	}
	two := tr.predict(t, m)[1]
	if share := two.Elapsed.Seconds() / one.Elapsed.Seconds(); share < 0.5 || share > 0.65 {
		t.Errorf("two devices take %.3f of what one takes: %v and %v", share, two.Elapsed, one.Elapsed)
	}
}

// TestPredictedPacking: states that are compressed on disks make a run on a slow disk faster. On a
// fast disk the compression's time on the host's cores makes the run slower.
func TestPredictedPacking(t *testing.T) {
	tr := base()
	tr.steps, tr.noClip, tr.saveSteps = 3, true, 0
	tr = tr.statesOnDisk(2).weightsOnDiskToo()
	packed := tr
	packed.packed = true
	slow, fast := machine(), machine()
	slow.Disk.Read, slow.Disk.Write = 1e-3, 1e-3
	fast.Disk.Read, fast.Disk.Write, fast.Host.Cores = 1e3, 1e3, 1
	was, is := tr.predict(t, slow)[1], packed.predict(t, slow)[1]
	if _, tiles := tr.plan(tr.config()).DiskBytes(); was.DiskRead < tr.stateBytes()+tiles || was.DiskWritten != tr.stateBytes() {
		t.Errorf("a step reads %d bytes and writes %d, with %d of states and %d of tiles", was.DiskRead, was.DiskWritten, tr.stateBytes(), tiles)
	}
	if x := float64(is.Elapsed) / float64(was.Elapsed); x > 0.9 || x < 0.8 {
		t.Errorf("on a slow disk a step takes %v in place of %v", is.Elapsed, was.Elapsed)
	}
	for _, x := range [][2]int64{{is.DiskRead, was.DiskRead}, {is.DiskWritten, was.DiskWritten}} {
		if ratio := float64(x[0]) / float64(x[1]); ratio > 0.9 || ratio < 0.8 {
			t.Errorf("%d bytes are moved in place of %d", x[0], x[1])
		}
	}
	if was, is := tr.predict(t, fast)[1], packed.predict(t, fast)[1]; is.Elapsed <= was.Elapsed {
		t.Errorf("packing on one core takes no time: %v, %v", is.Elapsed, was.Elapsed)
	}
}
