package actors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mt/base/timeline"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cpu"
	"mt/device/wrap"
	"mt/internal/testkit"
	"mt/layers"
	"mt/plan"
)

// traceEvent is an event of a trace as Perfetto reads it. Times are in µs.
type traceEvent struct {
	Ph, Name, Cat string
	TID, ID       int
	TS, Dur       float64
	Args          struct {
		Name, Detail, Cause string
		Step                int
	}
}

func (e traceEvent) end() float64 { return e.TS + e.Dur }

// traced is a recorded trace and the reports of its run.
type traced struct {
	tracks  map[int]string
	spans   map[string][]traceEvent // by track, in order
	starts  map[int]traceEvent      // of flows
	finish  map[int]traceEvent
	reports []StepReport
	last    []*timeline.Step // after each step but the last
	out     outcome
}

type memoryFile struct{ bytes.Buffer }

func (*memoryFile) Close() error { return nil }

// trace runs tr, records a trace of the run and reads it.
func (tr trial) trace(t *testing.T) (out traced) {
	t.Helper()
	var content memoryFile
	file := timeline.NewFile(&content, false, func(err error) { t.Errorf("the trace: %v", err) })
	tr.timeline = timeline.New(timeline.Options{Process: "measured", File: file, KeepStep: true})
	tr.reported = func(r StepReport) {
		out.reports, out.last = append(out.reports, r), append(out.last, tr.timeline.Last())
	}
	got := testkit.Must(tr.run(t))(t)
	file.Close()
	out.out = got
	var events []traceEvent
	if err := json.Unmarshal(content.Bytes(), &events); err != nil {
		t.Fatalf("the trace is no JSON: %v", err)
	}
	out.tracks, out.spans, out.starts, out.finish = map[int]string{}, map[string][]traceEvent{}, map[int]traceEvent{}, map[int]traceEvent{}
	for _, e := range events {
		if e.Name == "thread_name" {
			out.tracks[e.TID] = e.Args.Name
		}
	}
	for _, e := range events {
		switch e.Ph {
		case "X":
			out.spans[out.tracks[e.TID]] = append(out.spans[out.tracks[e.TID]], e)
		case "s":
			out.starts[e.ID] = e
		case "f":
			out.finish[e.ID] = e
		}
	}
	for _, s := range out.spans {
		slices.SortFunc(s, func(a, b traceEvent) int { return cmp.Compare(a.TS, b.TS) })
	}
	return out
}

// slowCopies is a delay for streams: every third operation of a copying stream takes 300 µs, so
// that every cause of a stall takes visible time.
func slowCopies(stream string, n int64) time.Duration {
	if stream != "compute" && n%3 == 0 {
		return 300 * time.Microsecond
	}
	return 0
}

// slowLaunches is a delay for streams: launches take 100 µs, so that they wait for each other. The
// first 50 are not delayed, because the tracer compares clocks then.
func slowLaunches(stream string, n int64) time.Duration {
	if stream == "compute" && n > 50 {
		return 100 * time.Microsecond
	}
	return 0
}

// tracedShapes returns trials whose traces together contain everything that a trace can show.
func tracedShapes() map[string]trial {
	least := plan.Depths{WeightSlots: 1, GradBuffers: 1, GradSlabs: 2, ActivationSlots: 3, BatchesAhead: 1}
	out := map[string]trial{}
	add := func(name string, f func(*trial)) {
		tr := base()
		tr.evalSteps, tr.delay = 2, slowCopies
		f(&tr)
		out[name] = tr
	}
	add("in place", func(*trial) {})
	add("in place, fetched ahead", func(tr *trial) {
		tr.blocks, tr.rows, tr.steps, tr.evalSteps = 4, 2, 2, 1
		tr.depths, tr.delay = testDepths(2), slowLaunches
	})
	add("copied", func(tr *trial) { tr.copyTiles = true })
	add("least", func(tr *trial) { tr.copyTiles, tr.depths = true, least })
	add("no clip", func(tr *trial) {
		tr.copyTiles, tr.noClip, tr.tied, tr.bf16, tr.gradBF16, tr.shards = true, true, true, true, true, 2
	})
	add("kept tensors travel", func(tr *trial) {
		tr.copyTiles, tr.blocks, tr.keep, tr.travel = true, 4, layers.KeepAll, 1
	})
	add("muon", func(tr *trial) { tr.copyTiles, tr.muon, tr.depths.MatrixBuffers = true, true, 2 })
	add("muon, in place", func(tr *trial) { tr.muon = true })
	add("experts", func(tr *trial) { tr.copyTiles, tr.experts, tr.chosen, tr.onDemand = true, 6, 1, true })
	add("on disks", func(tr *trial) {
		tr.copyTiles, tr.saver, tr.saveSteps = true, &recorder{}, 2
		*tr = tr.statesOnDisk(2)
	})
	add("gradients on disks", func(tr *trial) {
		tr.copyTiles, tr.muon, tr.saver, tr.saveSteps = true, true, &recorder{}, 2
		*tr = tr.statesOnDisk(2).gradsOnDisk(1)
	})
	add("gradients on disks, in place", func(tr *trial) { *tr = tr.statesOnDisk(2).gradsOnDisk(2) })
	add("weights on disks", func(tr *trial) {
		tr.copyTiles, tr.depths.WeightSlots = true, 3
		*tr = tr.statesOnDisk(2).weightsOnDiskToo()
	})
	add("weights on disks, in place", func(tr *trial) { *tr = tr.statesOnDisk(1).weightsOnDiskToo() })
	add("saved", func(tr *trial) { tr.copyTiles, tr.saver, tr.saveSteps = true, &recorder{}, 1 })
	return out
}

// TestTraceOfRuns: in a trace, the spans of one track never overlap, the gaps of the compute stream
// are its reported stalls, and arrows lead from one span to another, forward in time.
func TestTraceOfRuns(t *testing.T) {
	for name, tr := range tracedShapes() {
		t.Run(name, func(t *testing.T) {
			inShort(t, name, "copied")
			t.Parallel()
			got := tr.trace(t)
			got.check(t, tr)
			if !slices.ContainsFunc(got.spans["compute"], func(e traceEvent) bool { return e.Args.Detail == "micro-batch 1" }) {
				t.Error("no launch is said to be of the first micro-batch")
			}
			plain := tr
			plain.timeline = nil
			if want := mustRun(t, plain); want.digest() != got.out.digest() {
				t.Error("a trace changes the weights")
			}
		})
	}
}

// lost is a stream that has failed: it returns an error.
type lost struct{ device.Stream }

func (lost) Err() error { return errors.New("lost") }

// TestTraceBesideALostStream: if a stream has failed, the trace has the works of the device's other
// streams and none of the failed stream, whose events are invalid.
func TestTraceBesideALostStream(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	defer dev.Close()
	var content memoryFile
	file := timeline.NewFile(&content, false, func(err error) { t.Error(err) })
	begin := time.Now()
	tr := newTracer(timeline.New(timeline.Options{Process: "measured", File: file}), func() time.Duration { return time.Since(begin) }, nil)
	l := &laneTracer{tracer: tr, r: &lane{dev: dev}}
	for _, name := range []string{"up", "down"} {
		stream, err := dev.NewStream(name)
		testkit.NoError(t, err)
		defer stream.Close()
		s := &streamTracer{of: l, stream: stream, track: tr.rec.Track(name, timeline.Stream)}
		p := &piece{track: s.track, name: "work of " + name}
		for _, e := range []*device.Event{&s.last, &p.from, &p.to} {
			if *e, err = l.event(); err != nil {
				t.Fatal(err)
			}
			stream.Record(*e)
		}
		testkit.NoError(t, stream.Sync())
		if name == "up" {
			s.stream = lost{stream}
		}
		s.unreported = []*piece{p}
		l.streams = append(l.streams, s)
	}
	l.close()
	file.Close()
	if text := content.String(); strings.Contains(text, "work of up") || !strings.Contains(text, "work of down") {
		t.Errorf("the trace is\n%s", text)
	}
}

// TestTraceOnCUDA: the claims of TestTraceOfRuns also hold for the streams and events of an
// emulated GPU.
func TestTraceOnCUDA(t *testing.T) {
	testkit.NotShort(t)
	tr := base()
	tr.blocks, tr.rows, tr.steps, tr.evalSteps = 1, 2, 2, 1
	tr.depths = testDepths(1)
	tr, _, end := onCUDA(t, tr, emu.Options{})
	defer end()
	tr.trace(t).check(t, tr)
}

// TestClocksAreKeptTogether: after each step the tracer corrects its clocks, so that no work is
// shown before it was enqueued or after its notification. The hub's clock follows the first device;
// other devices' clocks follow the hub. The shown time never runs back.
func TestClocksAreKeptTogether(t *testing.T) {
	const us = time.Microsecond
	for index := range laneID(2) {
		now := time.Duration(0)
		l := &laneTracer{tracer: &tracer{now: func() time.Duration { return now }, rec: timeline.New(timeline.Options{})},
			r: &lane{index: index}, low: math.MinInt64, high: math.MaxInt64}
		streams := []*streamTracer{{of: l}, {of: l}, {of: l}}
		l.compute, l.streams = streams[1], streams
		for _, step := range []struct{ device, enqueued, heard, wrong time.Duration }{
			{100 * us, 90 * us, 130 * us, 0},           // both clocks agree
			{200 * us, 250 * us, 280 * us, 50 * us},    // the device's clock is behind
			{300 * us, 330 * us, 390 * us, 50 * us},    // by no more than that
			{500 * us, 450 * us, 520 * us, 20 * us},    // by less
			{600 * us, 560 * us, 1000 * us, 20 * us},   // unchanged
			{1100 * us, 900 * us, 1050 * us, -50 * us}, // the device's clock is ahead
		} {
			now = step.heard
			told, shown := step.device+l.shift, l.time()
			for _, s := range streams {
				s.at = step.device
			}
			l.boundShift(&piece{enqueued: step.enqueued, end: told})
			l.stepDone(&passTimeline{})
			if got := l.shift - l.skew; got != step.wrong {
				t.Errorf("lane %d, at %v: the device is behind by %v, want %v", index, step.device, got, step.wrong)
			}
			if index == 0 && l.shift != 0 {
				t.Errorf("at %v the first device's clock was set, by %v", step.device, l.shift)
			}
			if l.time() < shown {
				t.Errorf("lane %d: after %v the hub's clock shows %v", index, shown, l.time())
			}
			for _, s := range streams {
				s.last = &fakeEvent{}
				if got := s.shownTime(s.last); got < told {
					t.Errorf("lane %d: after %v the stream goes on at %v", index, told, got)
				}
			}
		}
	}
}

func (g traced) check(t *testing.T, tr trial) {
	t.Helper()
	for track, spans := range g.spans {
		for i := range spans[1:] {
			if a, b := spans[i], spans[i+1]; b.TS < a.end()-5e-4 { // half a ns
				t.Errorf("%s: %q to %.3f and %q from %.3f overlap", track, a.Name, a.end(), b.Name, b.TS)
			}
		}
	}
	// At most this many batches exist at a time: for training and for an evaluation each, those
	// packed ahead and one that is being copied to the device.
	if most := 2 * (tr.depths.BatchesAhead + 1); g.spans["batch "+strconv.Itoa(most)] != nil {
		t.Errorf("more than %d batches are held at a time", most)
	}
	g.checkStalls(t)
	g.checkFlows(t, tr)
	g.checkSteps(t, tr)
}

// checkStalls compares the gaps in the compute stream's track with the reported stalls, by step and
// cause. The rest of the stream's time must be covered by launches.
func (g traced) checkStalls(t *testing.T) {
	t.Helper()
	for _, r := range g.reports {
		gaps, work := map[string]float64{}, 0.0
		for _, e := range g.spans["compute"] {
			switch {
			case e.Args.Step != r.Step || strings.HasPrefix(e.Name, "evaluate"):
			case e.Args.Cause != "":
				gaps[e.Args.Cause] += e.Dur
			default:
				work += e.Dur
			}
		}
		near := func(what string, got float64, want time.Duration) {
			us := float64(want.Nanoseconds()) / 1e3
			if math.Abs(got-us) > us/100+0.01 {
				t.Errorf("step %d: %s took %.1f µs, the trace says %.1f", r.Step, what, us, got)
			}
		}
		left := r.Compute
		for c, d := range r.Stall {
			if left -= d; Cause(c) != NoStall {
				near("waiting for "+Cause(c).String(), gaps[Cause(c).String()], d)
			}
		}
		near("work", work, left)
	}
}

// checkFlows checks every arrow of a trace: it begins within a span, and ends where another span
// begins, not earlier. All kinds of credits and the main messages must have arrows.
func (g traced) checkFlows(t *testing.T, tr trial) {
	t.Helper()
	found := map[string]int{}
	for id, s := range g.starts {
		f, ok := g.finish[id]
		if !ok || f.TS < s.TS || f.Name != s.Name || f.TID == s.TID {
			t.Errorf("the flow %+v ends with %+v", s, f)
		}
		inside := func(e traceEvent) bool { return e.TS == s.TS || e.TS < s.TS && s.TS < e.end() }
		begins := func(e traceEvent) bool { return e.TS == f.TS }
		if !slices.ContainsFunc(g.spans[g.tracks[s.TID]], inside) || !slices.ContainsFunc(g.spans[g.tracks[f.TID]], begins) {
			t.Errorf("the flow %s from %s at %v to %s at %v: there is no such span", s.Name, g.tracks[s.TID], s.TS, g.tracks[f.TID], f.TS)
		}
		found[s.Name]++
	}
	if len(g.finish) != len(g.starts) {
		t.Errorf("%d flows begin and %d end", len(g.starts), len(g.finish))
	}
	for _, want := range []string{"BatchReady", "rowsGathered", "BatchFetched", "LayerFetched", "GradComputed", "GradLanded", "LayerUpdated", "LossComputed",
		"weight slot", "head slot", "batch slot", "gradient buffer", "slab"} {
		if found[want] == 0 && (want != "head slot" || tr.shards == 0) {
			t.Errorf("no flow is called %s: %v", want, found)
		}
	}
	fetches, layers := 0, 0
	for _, e := range g.spans["h2d"] {
		if strings.HasPrefix(e.Name, "fetch layer") || strings.HasPrefix(e.Name, "fetch head") {
			fetches++
		}
	}
	for _, e := range g.spans["optimizer"] {
		if strings.HasPrefix(e.Name, "update") {
			layers++
		}
	}
	spills := 0
	for _, spans := range g.spans {
		for _, e := range spans {
			if e.Name == "spill an activation" {
				spills++
			}
		}
	}
	if found["ActivationComputed"] != spills || spills == 0 && tr.depths.ActivationSlots == 3 && tr.blocks > 1 {
		t.Errorf("%d activations were spilled, and %d flows lead there", spills, found["ActivationComputed"])
	}
	if track := g.spans[fmt.Sprintf("activation slot %d", tr.depths.ActivationSlots)]; tr.travel > 0 {
		named := func(e traceEvent) bool { return strings.HasPrefix(e.Name, "kept by layer ") || e.Name == "activation" }
		if len(track) == 0 || !slices.ContainsFunc(track, named) || slices.ContainsFunc(track, func(e traceEvent) bool { return !named(e) }) {
			t.Errorf("what travels is shown as %v", track[:min(3, len(track))])
		}
	}
	if found["LayerFetched"] != fetches {
		t.Errorf("%d tiles were fetched, and %d flows lead to a launch", fetches, found["LayerFetched"])
	}
	if found["LayerUpdated"] < layers*(len(g.reports)-1)/len(g.reports) {
		t.Errorf("%d updates, and %d flows lead from them", layers, found["LayerUpdated"])
	}
}

// checkSteps compares the steps that the timeline shows to viewers of a running training with the
// steps' reports.
func (g traced) checkSteps(t *testing.T, tr trial) {
	t.Helper()
	for i, r := range g.reports {
		s := g.last[i]
		if s.Step != r.Step || math.Abs(s.Seconds-r.Compute.Seconds()) > 0.01*s.Seconds {
			t.Errorf("step %d took %v; viewers see step %d of %v s", r.Step, r.Compute, s.Step, s.Seconds)
		}
		var stalls float64
		seen := map[string]bool{}
		for _, track := range s.Tracks {
			for _, span := range track.Spans {
				if span.Start < 0 || span.End > s.Seconds || span.End < span.Start {
					t.Errorf("step %d: %s is %+v, the step ends at %v", r.Step, track.Name, span, s.Seconds)
				}
				if seen[strings.TrimRight(track.Name, "0123456789 ")] = true; span.Cause != "" {
					stalls += span.End - span.Start
				}
			}
		}
		var want time.Duration
		for _, d := range r.Stall[NoStall+1:] {
			want += d
		}
		if math.Abs(stalls-want.Seconds()) > want.Seconds()/100+1e-8 {
			t.Errorf("step %d stood still for %v, viewers see %v s", r.Step, want, stalls)
		}
		for _, c := range Credits { // an evaluation before a step has already shown the updates of the previous step
			if c.Name == "launch ahead" {
				continue // shown as its launch
			}
			if !seen[c.Name] && i > 0 && c.Name != "exchange buffer" && (c.Name != "state slot" || tr.stateOnDisk != nil) && (c.Name != "matrix buffer" || tr.muon && (r.Step-1)%tr.evalSteps != 0) && (c.Name != "head slot" || tr.shards == 0) && (c.Name != "batch" || r.Step < g.reports[len(g.reports)-1].Step) {
				t.Errorf("step %d: nobody holds a %s", r.Step, c.Name)
			}
		}
	}
}

// TestTraceOfFaults: if a device call fails, a run with a trace ends with the same error as a run
// without one.
func TestTraceOfFaults(t *testing.T) {
	tr := base()
	tr.blocks, tr.rows, tr.steps, tr.copyTiles = 1, 2, 1, true
	for call := int64(1); ; call += 7 {
		var dev *wrap.Failing
		tr.wrap = func(d device.Device) device.Device {
			dev = wrap.Fail(d, call)
			return dev
		}
		var content memoryFile
		file := timeline.NewFile(&content, false, func(err error) { t.Error(err) })
		tr.timeline = timeline.New(timeline.Options{Process: "measured", File: file, KeepStep: true})
		_, err := tr.run(t)
		file.Close()
		if !json.Valid(content.Bytes()) {
			t.Fatalf("call %d: the trace is no JSON", call)
		}
		if dev.Calls() < call {
			if call < 100 {
				t.Errorf("only %d calls", dev.Calls())
			}
			return
		}
		var want *wrap.Fault
		if !errors.As(err, &want) || want.Call != call {
			t.Fatalf("call %d failed; the run says %v", call, err)
		}
	}
}
