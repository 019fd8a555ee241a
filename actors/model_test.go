package actors

import (
	"cmp"
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/plan"
)

// world is a simulated run: it runs the actors' cores without protoactor, device or clock. It
// delivers messages, executes effects one by one and completes works in a random legal order.
// Mailboxes, the effects of one actor and the completions of one stream keep their order; nothing
// else does.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	cfg     worldConfig
	cores   []core      // by seat: the index of an actor, see the function seat
	boxes   [][]message // by seat
	todo    [][]effect  // by seat
	choices []int       // what may happen next, reused
	async   []work      // works in progress, any of which may end
	saying  [][]send    // messages of ended works that are not sent yet

	lanes    []*laneWorld
	across   int             // activations that went from device to device
	on       int             // activations that went through the host
	passage  map[int]content // host places in use by activations between lanes, by their first token
	full     map[int]bool    // by slab: it holds a gradient
	version  []int           // by layer: the version of its weights on the host
	reading  []int           // by layer: launches that may still read it
	saved    map[int]int     // layers written, by step
	taken    map[string]int
	returned map[string]int
	steps    []int // steps reported, in order
	evals    int
	stopped  bool // the run was asked to stop, maybe without the Conductor's knowledge
	atStop   int  // steps planned when the run was asked to stop; −1: it was not
	saves    []int
	booked   map[string]bool // messages in the table of credits
	ended    bool
	givenUp  *StepAbortedError            // the run's error if it was aborted; nil: otherwise
	trace    map[address]*strings.Builder // nil: not kept
	err      error
	team     *teamWorld         // nil: there is one rank
	drawn    map[[3]int][]int32 // by rank, program and layer: the offsets that offsetsOf drew

	tier  *tierWorld
	parts []int // by layer: finished works of its update
	// headParts has the landed parts of the head's gradient, if the parts are on several lanes and some have not landed.
	headParts int
	matrices  map[[2]int]matrixAt // by lane and buffer
}

// laneWorld is the simulated device of a lane: what its slots hold, and its streams.
type laneWorld struct {
	index   int
	slots   map[int]content   // weight slots
	acts    map[int]content   // activation slots
	spilled map[place]content // host buffers
	parts   []offloadGrad     // of the gradient in progress
	buffers map[int]roundSum  // by gradient buffer
	sums    map[int]roundSum  // by tile: what its slab holds
	resumed int               // launches that continued the sum of an earlier round
	counts  map[int][]int32   // by program: counts of all lanes on the device
	routed  int               // 1: a layer's tokens are with its experts
	joined  int               // micro-batches that came back from the experts
	streams [copyStreams]streamWorld
}

// The numbers of a lane's streams whose completions are announced: gradients and losses to the
// host, launches, activations to the host, and activations into other lanes' slots.
const (
	d2hStream = iota
	computeStream
	outStream
	acrossStream
	copyStreams
)

// streamWorld is a simulated stream of a lane.
type streamWorld struct {
	pending []func() []send // completions, in order; each returns its messages
	saying  []send          // unsent messages of the last completion
}

// seat returns the index of an actor in world.cores and world.boxes.
func seat(a address) int { return int(a.lane)*int(numRoles) + int(a.role) }

// at returns the actor with this index in world.cores.
func at(seat int) address {
	return address{role: role(seat % int(numRoles)), lane: laneID(seat / int(numRoles))}
}

// once returns the core of an actor that a run has once, not for each lane.
func (w *world) once(r role) core { return w.cores[seat(address{role: r})] }

// roundSum is a gradient of a tile in a pass, summed over the rounds so far.
type roundSum struct{ prog, tile, rounds int }

// content says what a weight slot or an activation slot holds: which layer's weights at which
// version, or which activation of which program.
type content struct {
	layer, part, version int // weights
	prog, object         int // activations
	written              bool
}

func newWorld(t *testing.T, cfg worldConfig) *world {
	w := &world{t: t, rnd: rand.New(rand.NewSource(cfg.seed)), cfg: cfg, passage: map[int]content{}, drawn: map[[3]int][]int32{}, full: map[int]bool{}, version: make([]int, cfg.layers),
		reading: make([]int, cfg.layers), saved: map[int]int{}, parts: make([]int, cfg.layers), matrices: map[[2]int]matrixAt{}, taken: map[string]int{}, returned: map[string]int{}, booked: bookedMessages, atStop: -1, tier: newTierWorld(cfg.layers)}
	sched := Schedule{FirstStep: 1, LastStep: cfg.steps, SaveSteps: cfg.saveSteps, EvalSteps: cfg.evalSteps, EvalPasses: cfg.evalPasses,
		PauseAfter: cfg.pauseAfter, StopEarly: func(r EvalReport) bool { return r.Step == cfg.enoughAt },
		MaxNonFinite: cmp.Or(cfg.maxNonFinite, 100), SynchronousUpdates: cfg.sync, LR: func(int) float64 { return 1 }, DataPos: func(s int) int64 { return int64(s) }}
	spec := schedule.Spec{Layers: stages(cfg.kinds(), cfg.experts, cfg.headShards), OnDemand: cfg.onDemand, Lane: cfg.lane,
		WeightSlots: cfg.depths.WeightSlots, ActivationSlots: cfg.depths.ActivationSlots}
	spec.Layers[cfg.layers-1].Lanes = cfg.head
	if cfg.lane != nil {
		spec.Order = schedule.Lanes
	}
	spec.PerRound = cfg.perRound
	if spec.KeptSlots, spec.Kept = cfg.kept, cfg.keptOf; cfg.kept > 0 {
		plan.Keeping(spec.Layers, func(l int) bool { return cfg.kinds()[l].BeginsBlock() })
	}
	n := spec.Lanes()
	w.cores, w.boxes, w.todo = make([]core, n*int(numRoles)), make([][]message, n*int(numRoles)), make([][]effect, n*int(numRoles))
	sit := func(a address, c core) { w.cores[seat(a)] = c }
	for lane := range laneID(n) {
		w.lanes = append(w.lanes, &laneWorld{index: int(lane), buffers: map[int]roundSum{}, sums: map[int]roundSum{}, counts: map[int][]int32{}, slots: map[int]content{}, acts: map[int]content{}, spilled: map[place]content{}})
		prefetcher := fetching(spec, cfg.tied, cfg.depths)
		prefetcher.lane, prefetcher.rows, prefetcher.batches = lane, spec.On(0) == int(lane), max(1, cfg.batches)
		prefetcher.experts, prefetcher.weightsOnDisk, prefetcher.kept = cfg.experts > 0, cfg.weightsOnDisk, cfg.kept
		for from := range n {
			prefetcher.reachedBy = append(prefetcher.reachedBy, cfg.reaches>>(4*from+int(lane))&1 == 1)
		}
		sit(lane.prefetcher(), newPrefetcherCore(prefetcher, 0))
		sit(lane.compute(), newComputeCore(computeSpec{lane, cfg.depths.GradBuffers, cfg.experts > 0, cfg.balance(n)}))
		offloader := offloaderSpec{lane: lane, own: cfg.ownSlabs(), turns: cfg.depths.GradSlabs, gradOnDisk: cfg.gradOnDisk, onHost: cfg.onHost, parts: spec.InParts(), head: cfg.head, balance: cfg.balance(n), landed: toOptimizer}
		sit(lane.offloader(), newOffloaderCore(offloader))
	}
	conductor, checkpointer := newConductorCore(sched, State{}, cfg.depths.BatchesAhead, spec), newCheckpointerCore(cfg.layers, 0)
	conductor.statesOnDisk, checkpointer.stateOnDisk, checkpointer.shown = cfg.stateOnDisk != nil, cfg.stateOnDisk, make([]bool, len(cfg.stateOnDisk))
	checkpointer.links = cfg.links
	sit(conductorID, conductor)
	if cfg.stateOnDisk != nil {
		stager := newStagerCore(stagingOrder(cfg.stateOnDisk, summedIn(cfg.layers, cfg.tied), cfg.clip > 0), cfg.depths.StateSlots)
		stager.lanes, stager.weightsOnDisk, stager.links = n, cfg.weightsOnDisk, cfg.links
		stager.setGradsOnDisk(cfg.gradOnDisk)
		sit(stagerID, stager)
	}
	sit(feederID, &feederCore{})
	sit(optimizerID, newOptimizerCore(cfg.optimizer(spec, n), State{}))
	sit(checkpointerID, checkpointer)
	sit(reporterID, reporterCore{})
	if cfg.ranks > 1 {
		w.join(sit)
	}
	return w
}

func (w *world) send(to address, msg message) {
	switch m := msg.(type) {
	case SlabFreed:
		w.full[m.Slab] = false
	case GradLanded:
		if m.Layer == w.cfg.layers-1 && w.headParts > 0 {
			w.failf("the head's gradient is reported with %d of %d parts", w.headParts, w.cfg.headShards)
		}
	}
	w.team.sends(w, msg)
	w.count(reflect.TypeOf(msg).Name(), msg)
	w.boxes[seat(to)] = append(w.boxes[seat(to)], msg)
}

// bookedMessages has the types of messages that take or return a credit, from the table Credits.
var bookedMessages = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range Credits {
		m[c.Taken], m[c.Return] = true, true
	}
	return m
}()

// count counts each message that takes or returns a credit. name is the message's type.
func (w *world) count(name string, msg message) {
	if _, ok := w.booked[name]; !ok {
		return
	}
	slot := -1
	switch m := msg.(type) {
	case LayerFetched:
		slot = m.Slot
	case SlotFreed:
		slot = m.Slot
	}
	for _, c := range Credits {
		if slot >= 0 && (slot < w.cfg.depths.WeightSlots) != (c.Name == "weight slot") {
			continue // a credit of the other class of slots
		}
		if c.Taken == name {
			w.taken[c.Name]++
		}
		if c.Return == name {
			w.returned[c.Name]++
		}
	}
}

// begin starts the run.
func (w *world) begin() {
	w.send(conductorID, begin{})
	if w.cfg.stateOnDisk != nil {
		w.send(stagerID, begin{})
	}
}

// run runs the simulated run to its end. Its error is a deadlock, or an effect that did not find
// its inputs.
func (w *world) run() error {
	w.begin()
	for n := 0; w.err == nil; n++ {
		if n == w.cfg.stopAfter && !w.ended {
			w.askToStop()
		}
		if n+1 == w.cfg.abortAfter && !w.ended {
			w.send(conductorID, AbortRequested{})
		}
		if !w.move() {
			break
		}
		if n > 1_000_000 {
			return fmt.Errorf("no end after %d deliveries", n)
		}
	}
	if w.err == nil && !w.ended {
		return fmt.Errorf("deadlock: nothing is under way and the run has not ended (steps done: %v)", w.steps)
	}
	return w.err
}

func (w *world) askToStop() {
	w.send(conductorID, StopRequested{})
	w.stopped = true
}

// move lets one randomly chosen event happen, such as the handling of a message or the completion
// of a work. It returns false if no event can happen.
func (w *world) move() bool {
	choices := w.choices[:0]
	for id := range w.boxes {
		if len(w.boxes[id]) > 0 || len(w.todo[id]) > 0 {
			choices = append(choices, id)
		}
	}
	for i := range len(w.async) + len(w.saying) + w.team.arrived() {
		choices = append(choices, w.works()+i)
	}
	for i, l := range w.lanes {
		for k, s := range l.streams {
			if len(s.pending)+len(s.saying) > 0 {
				choices = append(choices, len(w.cores)+i*copyStreams+k)
			}
		}
	}
	w.choices = choices
	if len(choices) == 0 {
		return false
	}
	c := choices[w.rnd.Intn(len(choices))]
	for tries := 0; tries < 20 && w.slow(c); tries++ {
		c = choices[w.rnd.Intn(len(choices))]
	}
	switch s := c - len(w.cores); {
	case s < 0:
		w.turn(c)
	case c < w.works():
		w.stream(w.streamOf(s))
	case c < w.works()+len(w.async):
		w.complete(c - w.works())
	case c >= w.works()+len(w.async)+len(w.saying):
		w.team.arrive(c - w.works() - len(w.async) - len(w.saying))
	default:
		i := c - w.works() - len(w.async)
		if w.say(&w.saying[i]); len(w.saying[i]) == 0 {
			w.saying = slices.Delete(w.saying, i, i+1)
		}
	}
	return true
}

// works returns the number of the first choice in move that completes a work in progress. Choices
// are numbered in this order: actors, streams of each lane, works in progress, ended works whose
// messages are not all sent, notifications of ranks.
func (w *world) works() int { return len(w.cores) + copyStreams*len(w.lanes) }

// streamOf returns stream number i, counted over the streams of all lanes.
func (w *world) streamOf(i int) *streamWorld { return &w.lanes[i/copyStreams].streams[i%copyStreams] }

// slow reports whether the configuration delays event c. Events have the numbers that move takes. A
// configuration can delay one actor, or all messages which say that a copy or launch has ended.
func (w *world) slow(c int) bool {
	saying := w.cfg.slow == 1+int(numRoles)
	switch s := c - len(w.cores); {
	case s < 0:
		return w.cfg.slow == 1+int(at(c).role) && w.cfg.slowLane%len(w.lanes) == int(at(c).lane)
	case c < w.works():
		return saying && len(w.streamOf(s).saying) > 0
	}
	return saying && c >= w.works()+len(w.async)
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// turn lets an actor execute its next effect or handle its next message.
func (w *world) turn(id int) {
	if len(w.todo[id]) == 0 {
		msg := w.boxes[id][0]
		w.boxes[id] = w.boxes[id][1:]
		w.todo[id] = w.cores[id].step(msg)
		switch msg.(type) {
		case StopRequested, AbortRequested:
			if w.atStop < 0 {
				w.atStop = w.once(conductorRole).(*conductorCore).planned
			}
		}
		w.record(at(id), msg, w.todo[id])
		return
	}
	e := w.todo[id][0]
	w.todo[id] = w.todo[id][1:]
	switch e := e.(type) {
	case send:
		w.send(e.to, e.msg)
	case work:
		w.do(e, at(id).lane)
	}
}

// done queues the messages of a completed work. They are sent one by one, so that other events may
// happen between them.
func (w *world) done(e work, result any) {
	if all := e.completed(result); len(all) > 0 {
		w.saying = append(w.saying, all)
	}
}

// say sends the first of the queued messages in all, and removes it.
func (w *world) say(all *[]send) {
	s := (*all)[0]
	*all = (*all)[1:]
	w.send(s.to, s.msg)
}

// complete ends work i of those in progress (w.async) and computes its result.
func (w *world) complete(i int) {
	e := w.async[i]
	w.async = append(w.async[:i:i], w.async[i+1:]...)
	var result any
	switch d := e.do.(type) {
	case packBatch:
		if result = w.batch(d); w.stopped {
			w.send(conductorID, StopRequested{}) // repeated, as by the Feeder
		}
	case measure:
		result = 1.0
	case sumShare:
		result = w.team.sum(w, d)
	case update:
		if w.team == nil {
			w.moved(d.Layer)
		} else {
			w.tier.version[d.Layer]++ // the tile follows after the gather
		}
	case prepareMatrix, orthogonalize, applyMatrix:
		w.matrix(e.do, false)
	case readParams:
		w.tier.params[[2]int{int(e.done[0].to.lane), d.Slot}].here = true
	case fetchState:
		w.tier.states[d.Layer].here = true
	case flushState:
		w.flushed(d.Layer)
	case putGrad:
		w.gradPut(d)
	case fetchGrad:
		w.tier.grads[d.Layer].slot = w.tier.grads[d.Layer].disk
	case commitSave:
		if n := len(w.steps); n == 0 || w.steps[n-1] < d.Save.Step {
			w.failf("the checkpoint of step %d stands before the step is reported: %v", d.Save.Step, w.steps)
		}
		result = ""
		if w.saved[d.Save.Step] != w.cfg.layers {
			w.failf("checkpoint of step %d committed with %d layers", d.Save.Step, w.saved[d.Save.Step])
		}
		if want := w.updates(d.Save.Step); d.AdamStep != int64(want) {
			w.failf("checkpoint of step %d committed after %d updates, it says %d", d.Save.Step, want, d.AdamStep)
		}
		w.saves = append(w.saves, d.Save.Step)
	}
	w.done(e, result)
}

// TestRandomInterleavings runs random legal orders of events over random configurations. The run ends, every credit
// comes back, every launch finds its inputs, and the steps come in order.
func TestRandomInterleavings(t *testing.T) {
	t.Parallel()
	total := testkit.Count(t, interleavings, fewInterleavings)
	if testing.Short() {
		total = 200
	}
	first := int(drawSeed(t, total, 2*interleavings))
	var wg sync.WaitGroup
	var across, on, resumed atomic.Int64
	workers := runtime.GOMAXPROCS(0)
	for k := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for seed := first + k; seed < first+total && !t.Failed(); seed += workers {
				cfg := randomConfig(int64(seed))
				w := newWorld(t, cfg)
				err := w.play()
				across.Add(int64(w.across))
				on.Add(int64(w.on))
				for _, l := range w.lanes {
					resumed.Add(int64(l.resumed))
				}
				if err != nil {
					t.Errorf("seed %d: %v\nconfiguration: %+v", seed, err, cfg)
				}
			}
		}()
	}
	wg.Wait()
	if n := resumed.Load(); n < int64(total)/2 {
		t.Errorf("only %d launches continued the sum of an earlier round", n)
	}
	if a, b := across.Load(), on.Load(); total >= 1000 && (a < b/20 || b < a/20) {
		t.Errorf("%d activations went from device to device and %d through the host", a, b)
	}
}

// verify checks a simulated run that has ended: reports are complete and in order, all credits have
// come back, and the layers are at the right versions.
func (w *world) verify() error {
	for i, s := range w.steps {
		if s != i+1 {
			return fmt.Errorf("steps were reported in the order %v", w.steps)
		}
	}
	if e := w.givenUp; e != nil {
		return w.verifyGivenUp(e.Reached.Step)
	}
	last, saved := w.cfg.last()
	if !w.cfg.isAsked() && len(w.steps) != last || len(w.steps) > last {
		return fmt.Errorf("%d of %d steps were made", len(w.steps), last)
	}
	if n := len(w.saves); !saved && !w.cfg.isAsked() && n > 0 && (w.cfg.saveSteps == 0 || w.saves[n-1]%w.cfg.saveSteps != 0) {
		return fmt.Errorf("a run that pauses after step %d has saved steps %v", last, w.saves)
	}
	if n := len(w.steps); w.atStop >= 0 && n > w.atStop+w.team.late() {
		return fmt.Errorf("%d steps were planned when the run was asked to stop, and %d were made", w.atStop, n)
	}
	if n := len(w.steps); n > 0 && (saved || w.cfg.isAsked() && n < last) && (len(w.saves) == 0 || w.saves[len(w.saves)-1] != n) {
		return fmt.Errorf("step %d was the last and the last save is %v", n, w.saves)
	}
	for _, c := range Credits {
		if !w.cfg.creditSlabs() && w.cfg.gradOnDisk == nil && c.Name == "slab" {
			continue // every layer's own slab is not a credit
		}
		if c.Name == "batch" {
			if w.taken[c.Name] < w.returned[c.Name] {
				return fmt.Errorf("%d batches came, %d were asked for", w.returned[c.Name], w.taken[c.Name])
			}
			continue // the end of the run may leave a requested batch unused
		}
		if c.Name == "state slot" {
			if s, ok := w.once(stagerRole).(*stagerCore); ok && len(s.free)+len(s.staged) != w.cfg.depths.StateSlots {
				return fmt.Errorf("%d state slots are free and %d are not, of %d", len(s.free), len(s.staged), w.cfg.depths.StateSlots)
			}
			continue // states that were read ahead or shown to the Checkpointer are not returned
		}
		held := 0
		if c.Name == "weight slot" {
			for lane := range laneID(len(w.lanes)) {
				held += len(w.cores[seat(lane.compute())].(*computeCore).weights)
			}
			if held > 0 && w.atStop < 0 && w.team.stopped() == 0 { // kept for the next pass of an evaluation, which was stopped
				return fmt.Errorf("%d weight slots are held at the end", held)
			}
		}
		if w.taken[c.Name] != w.returned[c.Name]+held {
			return fmt.Errorf("credit %s: taken %d, returned %d, held %d", c.Name, w.taken[c.Name], w.returned[c.Name], held)
		}
	}
	return nil
}
