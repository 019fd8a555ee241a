package actors

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"mt/data"
	"mt/device"
	"mt/internal/testkit"
	"mt/layers/schedule"
)

// fakeClockDevice makes events to which a fakeStream gives its own time, so that a test decides how
// long launches and waits take.
type fakeClockDevice struct {
	device.Device
	made int
}

type fakeEvent struct{ at time.Duration }

func (d *fakeClockDevice) NewEvent() (device.Event, error) { d.made++; return &fakeEvent{at: -1}, nil }

func (e *fakeEvent) Elapsed(start device.Event) time.Duration { return e.at - start.(*fakeEvent).at }
func (e *fakeEvent) Close()                                   {}

// fakeStream is a stream whose time the test sets.
type fakeStream struct {
	device.Stream
	now time.Duration
}

func (s *fakeStream) Record(e device.Event) { e.(*fakeEvent).at = s.now }

// TestClock sets a stream's time by hand. Waits within a program and between two programs are
// counted under their causes. Launches are not counted as stalls, and the time of an evaluation
// belongs to no program.
func TestClock(t *testing.T) {
	dev := &fakeClockDevice{}
	c, s := newStalls(dev), &fakeStream{}
	pass := func(ms int) { s.now += time.Duration(ms) * time.Millisecond }
	play := func(prog int) {
		c.timeline(s, prog).waited(NoStall)
		pass(3)
		c.timeline(s, prog).waited(StallData)
		pass(10)
		c.timeline(s, prog).worked()
		pass(2)
		c.timeline(s, prog).waited(StallWeights)
		pass(4)
		c.timeline(s, prog).waited(StallGradBuffer)
		pass(1)
		c.timeline(s, prog).waited(NoStall)
		pass(20)
		c.timeline(s, prog).worked()
		pass(5)
		c.timeline(s, prog).waited(StallWeights)
	}
	check := func(prog, totalMS int, extraData int) {
		t.Helper()
		total, stall := c.read(prog)
		want := [NumCauses]time.Duration{}
		want[NoStall] = 1 * time.Millisecond
		want[StallData] = time.Duration(3+extraData) * time.Millisecond
		want[StallWeights] = 7 * time.Millisecond
		want[StallGradBuffer] = 4 * time.Millisecond
		if stall != want {
			t.Errorf("program %d: stalls %v, want %v", prog, stall, want)
		}
		if want := time.Duration(totalMS) * time.Millisecond; total != want {
			t.Errorf("program %d took %v, want %v", prog, total, want)
		}
	}
	begin := func(prog, idleMS int, cause Cause) { // the time between two programs
		pass(idleMS)
		c.timeline(s, prog).waited(cause)
	}
	play(0)
	begin(1, 7, StallData) // before program 0 is read
	play(1)
	check(0, 45, 0)
	check(1, 45+7, 7)
	pass(1000) // an evaluation
	testkit.NoError(t, c.skip(s))
	begin(2, 2, StallData)
	play(2)
	check(2, 45+2, 2)
	made := dev.made
	for prog := 3; prog < 50; prog++ {
		begin(prog, 2, StallData)
		play(prog)
		if prog%5 == 0 {
			testkit.NoError(t, c.skip(s))
		}
		check(prog, 45+2, 2)
	}
	if dev.made > made+2 {
		t.Errorf("%d events for 3 programs, %d for 50: they are not used again", made, dev.made)
	}
}

// TestClockSumsAsItGoes: passed sums the stalls of the marks that the device has passed. Calls of
// it while a program runs do not change the result, whenever they come. They keep the number of
// events small: only marks that the device has not passed need one.
func TestClockSumsAsItGoes(t *testing.T) {
	const launches, ahead = 1000, 7 // marks that the device has not passed
	r := rand.New(rand.NewSource(3))
	devs := [2]*fakeClockDevice{{}, {}}
	clocks := [2]*stalls{newStalls(devs[0]), newStalls(devs[1])}
	s := &fakeStream{}
	var told []int
	for prog := range 5 {
		for range launches {
			cause, wait, work := Cause(r.Intn(int(NumCauses))), r.Intn(5), r.Intn(9)
			for _, pass := range []func(t *passTimeline){func(t *passTimeline) { t.waited(NoStall) },
				func(t *passTimeline) { t.waited(cause) }, func(t *passTimeline) { t.worked() }} {
				for _, c := range clocks {
					pass(c.timeline(s, prog))
				}
				s.now += time.Duration(wait) * time.Millisecond
				wait, work = work, wait
			}
			if told = append(told, clocks[1].timeline(s, prog).marksMade()); r.Intn(3) > 0 {
				clocks[1].passed(prog, told[len(told)-1]-ahead)
			}
		}
		clocks[1].passed(prog, told[0]) // long known
		clocks[1].passed(prog-1, 100)   // of a program that has been read
		wantTotal, want := clocks[0].read(prog)
		if total, stall := clocks[1].read(prog); total != wantTotal || stall != want || total == 0 {
			t.Errorf("program %d: %v, %v; want %v, %v", prog, total, stall, wantTotal, want)
		}
		clocks[1].passed(prog, told[len(told)-1]) // its last notification comes late
	}
	// Each launch makes 3 marks, and passed is called after 2 of 3 launches. So more than 40
	// launches between two calls are improbable (3^−40). The seed is fixed.
	if most := ahead + 3*40; devs[1].made > most || devs[0].made < 3*launches {
		t.Errorf("%d events with what has passed, want at most %d; %d without", devs[1].made, most, devs[0].made)
	}
}

// TestClockOfNothing: reading a program of which nothing was timed gives zero times.
func TestClockOfNothing(t *testing.T) {
	c := newStalls(&fakeClockDevice{})
	if total, stall := c.read(7); total != 0 || stall != [NumCauses]time.Duration{} {
		t.Errorf("got %v, %v", total, stall)
	}
	var none *passTimeline
	none.waited(StallData)
	none.worked()
	if err := none.failed(); err != nil {
		t.Error(err)
	}
}

// launchesOf gives Compute's core a program and then its inputs in the given order. It returns the
// launches that Compute enqueues, by their index.
func launchesOf(c *computeCore, p *Pass, msgs ...message) map[int]enqueue {
	out := map[int]enqueue{}
	for _, m := range append([]message{PassPlanned{p}}, msgs...) {
		for _, e := range c.step(m) {
			if w, ok := e.(work); ok {
				if l, ok := w.do.(enqueue); ok {
					out[l.Index] = l
				}
			}
		}
	}
	return out
}

// TestCausesOfStalls: a late launch names the input that was missing (Blocked). If that was a tile
// or the batch, it names the reason why the tile or batch was late. A launch waits for a tile's
// copy only at its first use in the slot.
func TestCausesOfStalls(t *testing.T) {
	p := planned(t, schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3}, fakeBatch(1))
	batch := BatchFetched{Cause: StallUpdate}
	block := LayerFetched{Visit: 1, Cause: StallCheckpoint}
	head := LayerFetched{Visit: 2, Cause: StallWeights}
	act := func(o int) ActivationFetched { return ActivationFetched{Object: o, Slot: o} }
	for _, c := range []struct {
		name    string
		msgs    []message
		blocked [5]Cause // by launch
	}{
		{"late batch", []message{block, head, act(0), act(1), batch}, [5]Cause{0: StallUpdate}},
		{"late block", []message{batch, head, act(0), act(1), block}, [5]Cause{1: StallCheckpoint}},
		{"late head", []message{batch, block, act(0), act(1), head}, [5]Cause{2: StallWeights}},
		{"late activation", []message{batch, block, head, act(0), act(1)}, [5]Cause{0: StallActivation, 1: StallActivation}},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := newComputeCore(computeSpec{gradBuffers: 3, experts: true})
			got := launchesOf(core, p, c.msgs...)
			if len(got) != 5 {
				t.Fatalf("%d of 5 launches", len(got))
			}
			// Earlier launches may name any cause. The tested launch must name the input that came
			// last.
			for i, want := range c.blocked {
				if want != NoStall && got[i].Blocked != want {
					t.Errorf("launch %d was blocked by %s, want %s", i, got[i].Blocked, want)
				}
				if fresh := i < 3; got[i].WaitWeights != fresh {
					t.Errorf("launch %d waits for weights or batch: %t, want %t", i, got[i].WaitWeights, fresh)
				}
			}
			if got[1].Fetched != StallCheckpoint || got[0].Fetched != StallUpdate {
				t.Errorf("fetched causes %s and %s, want update and checkpoint", got[0].Fetched, got[1].Fetched)
			}
		})
	}
}

// TestCauseOfPassage: waiting for an activation from another lane has its own cause. Activations
// that come back from the host for the backward count as activations, even if another lane computed
// them.
func TestCauseOfPassage(t *testing.T) {
	programs := testkit.Must(schedule.Programs(schedule.Spec{Order: schedule.Lanes, Lane: []int{0, 1, 0, 0, 0}, Layers: dense(5), WeightSlots: 1, ActivationSlots: 3}, []int{2}))(t)
	for lane, want := range [][]string{
		{"1: layer 2 forward in passage", "2: layer 3 forward in activation", "3: layer 4 backward grad activation", "4: layer 3 backward in activation", "4: layer 3 backward grad activation",
			"5: layer 2 backward in activation", "5: layer 2 backward grad activation", "6: layer 0 backward grad passage"},
		{"0: layer 1 forward in passage", "1: layer 1 backward in activation", "1: layer 1 backward grad passage"},
	} {
		p := &Pass{Program: programs[lane], Batch: fakeBatch(2)}
		var got []string
		for i, l := range p.Launches {
			at := fmt.Sprintf("%d: layer %d %s", i, p.Visits[l.Visit].Layer, p.Visits[l.Visit].Phase)
			if l.In >= 0 {
				got = append(got, fmt.Sprintf("%s in %s", at, p.inputStall(l)))
			}
			if l.Grad >= 0 {
				got = append(got, fmt.Sprintf("%s grad %s", at, p.gradStall(l)))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("lane %d: launches are late for %q, want %q", lane, got, want)
		}
	}
	p := &Pass{Program: programs[1], Batch: fakeBatch(2)}
	launch := p.Launches[0]
	late := launchesOf(newComputeCore(computeSpec{lane: 1, gradBuffers: 1}), p, BatchFetched{}, LayerFetched{Visit: launch.Visit}, ActivationFetched{Object: launch.Out, Slot: 1},
		ActivationFetched{Object: launch.In, Filled: true})[0]
	if late.Blocked != StallPassage || !late.WaitIn {
		t.Errorf("the launch that waited for another lane was blocked by %s, and its stream waits: %t", late.Blocked, late.WaitIn)
	}
}

// TestGradBufferStall: a launch that was late because no gradient buffer was free names that cause.
func TestGradBufferStall(t *testing.T) {
	p := planned(t, schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3}, fakeBatch(1))
	core := newComputeCore(computeSpec{gradBuffers: 1, experts: true})
	all := []message{BatchFetched{}, LayerFetched{Visit: 1}, LayerFetched{Visit: 2}, ActivationFetched{Object: 0}, ActivationFetched{Object: 1, Slot: 1}}
	if got := launchesOf(core, p, all...); len(got) != 3 {
		t.Fatalf("%d launches with one gradient buffer, want 3", len(got))
	}
	for i := 3; i < 5; i++ {
		var blocked []Cause
		for _, e := range core.step(GradBufferFreed{}) {
			if w, ok := e.(work); ok {
				if l, ok := w.do.(enqueue); ok {
					blocked = append(blocked, l.Blocked)
				}
			}
		}
		if len(blocked) != 1 || blocked[0] != StallGradBuffer {
			t.Errorf("launch %d: blocked by %v, want the gradient buffer", i, blocked)
		}
	}
}

// TestRunAhead: Compute keeps at most launchesAhead launches in progress, fewer if they have many
// tokens (tokensAhead). Waiting for a launch to complete causes no stall and hides no other cause.
func TestRunAhead(t *testing.T) {
	for _, tc := range []struct{ micro, tokens, ahead int }{{20, 16384, launchesAhead}, {20, 1, launchesAhead}, {4, 50000, 2}, {3, 70000, 1}, {3, 524288, 1}} {
		batch := &data.Batch{Supervised: 1, UniqueIDs: []int32{1}}
		var sizes []int
		for range tc.micro {
			batch.MicroBatches = append(batch.MicroBatches, data.MicroBatch{Tokens: tc.tokens})
			sizes = append(sizes, tc.tokens)
		}
		programs := testkit.Must(schedule.Programs(schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 100}, sizes))(t)
		p := &Pass{Program: programs[0], Batch: batch}
		msgs := []message{BatchFetched{Cause: StallData}, LayerFetched{Visit: 1, Cause: StallUpdate}}
		for o := range p.Objects {
			msgs = append(msgs, ActivationFetched{Object: o, Slot: o})
		}
		core := newComputeCore(computeSpec{gradBuffers: 1, experts: true})
		if got := launchesOf(core, p, msgs...); len(got) != tc.ahead {
			t.Errorf("micro-batches of %d tokens: %d launches ahead, want %d", tc.tokens, len(got), tc.ahead)
		}
		causes := map[int]Cause{} // by launch
		pass := func(m message) {
			for _, e := range core.step(m) {
				if w, ok := e.(work); ok {
					if l, ok := w.do.(enqueue); ok {
						causes[l.Index] = l.Blocked
					}
				}
			}
		}
		head := 2 * tc.micro // its first launch
		for passed := 0; len(core.ahead) > 0; passed++ {
			pass(LaunchPassed{})
			if made := tc.ahead + len(causes); made-(passed+1) > tc.ahead {
				t.Fatalf("%d launches made and %d passed", made, passed+1)
			}
		}
		if len(causes) != head-tc.ahead || slices.Max(slices.Collect(maps.Values(causes))) != NoStall {
			t.Errorf("micro-batches of %d tokens: launches were blocked by %v", tc.tokens, causes)
		}
		if pass(LayerFetched{Visit: 2, Cause: StallUpdate}); causes[head] != StallUpdate {
			t.Errorf("micro-batches of %d tokens: a launch whose weights came late was blocked by %s", tc.tokens, causes[head])
		}
	}
}

// TestCauseOfBatch: a launch that was late because of the batch names the reason why the batch was
// late.
func TestCauseOfBatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		waited Cause // Pass.Waited: why the plan was late
		before []message
		after  []message
		want   Cause
	}{
		{"ready", NoStall, []message{LayerUpdated{Layer: 0, Version: 1}}, nil, StallData},
		{"synchronous", StallUpdate, []message{LayerUpdated{Layer: 0, Version: 1}}, nil, StallUpdate},
		{"update", NoStall, nil, []message{LayerUpdated{Layer: 0, Version: 1}}, StallUpdate},
		{"checkpoint", NoStall, nil, []message{LayerUpdated{Layer: 0, Version: 1, Waited: StallCheckpoint}}, StallCheckpoint},
		{"checkpoint before", StallUpdate, []message{LayerUpdated{Layer: 0, Version: 1, Waited: StallCheckpoint}}, nil, StallCheckpoint},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schedule.Spec{Layers: dense(3), WeightSlots: 1, ActivationSlots: 3}
			core := newPrefetcherCore(fetching(s, false, testDepths(1)), 0)
			p := planned(t, s, fakeBatch(1))
			p.Version, p.Waited = 1, c.waited
			var got []Cause
			for _, m := range append(append(c.before, PassPlanned{p}), c.after...) {
				for _, e := range core.step(m) {
					if w, ok := e.(work); ok {
						for _, s := range w.done {
							got = append(got, s.msg.(rowsGathered).sent.Cause)
						}
					}
				}
			}
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("causes %v, want %s", got, c.want)
			}
		})
	}
}
