package actors

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"mt/base/timeline"
	"mt/device"
)

// This file tells Options.Timeline what a run does: which work took which stream or actor
// from when to when, what came of what, and who held which slot meanwhile.

// tracer follows the work of a run.
type tracer struct {
	rec   *timeline.Recorder
	now   func() time.Duration // of the hub
	names []string             // of the layers

	mu      sync.Mutex
	holds   map[credit]*hold
	ahead   map[packBatch]credit // of batches that no pass has taken yet
	updated map[int]*piece       // by layer: its last update
	fetched map[int]*piece       // by layer: the last update that was fetched
	saved   map[int]*piece       // by layer: its last save
	summed  map[int]*piece       // by layer: the last sum over several ranks
	grads   map[int]*piece       // by layer: the last write to a disk of its gradient, or read
	states  map[int]credit       // by layer: the state slot that it is or was in last
	saving  int                  // the step whose checkpoint is written
	placed  map[credit]timeline.Track
	until   map[timeline.Track]time.Duration // of credits: where the last stay ends that was told of

	// skew is what is added to the hub's clock to have the time that is shown, which is that
	// of the first lane's device. It changes from step to step, and what is shown stands still
	// rather than go back: it is never before least.
	skew, least time.Duration
}

// time is what is shown as now. t.mu is held.
func (t *tracer) time() time.Duration { return max(t.now()+t.skew, t.least) }

// piece is one piece of work: a launch, the copies of one work, something done on the host.
type piece struct {
	track        timeline.Track
	name, detail string
	step         int
	start, end   time.Duration
	enqueued     time.Duration // when, by the hub's clock
	from, to     device.Event  // round the copies of a work; none: of a launch that is marked, or of work on the host
	over         bool          // start and end are known
	arrows       []*arrow      // that wait for its end
	holds        []*hold       // the slots that it works in
}

// arrow leads from the end of a piece to the start of another one.
type arrow struct {
	name     string
	from, to *piece
}

// credit names one thing that there is a credit for. Lanes have slots of their own.
type credit struct {
	kind  string
	index int
	lane  laneID
}

// hold is the stay of something in a slot: from the start of the first piece of work that
// takes the slot for it to the end of the last that needs it there.
type hold struct {
	track      timeline.Track
	name       string
	object     object // of an activation slot
	step       int
	start, end time.Duration
	begun      bool   // start is known
	pending    int    // pieces that are not over
	made, last *piece // that changed what is there, that came
	byPeer     bool   // another lane's device has copied it there, and no launch has used it
	released   bool   // nothing follows
}

// object names an activation; the zero object names none.
type object struct{ prog, id int }

// The kinds of credits that are shown. A head slot is a weight slot of another class.
const (
	weightCredit     = "weight slot"
	headCredit       = "head slot"
	batchSlotCredit  = "batch slot"
	activationCredit = "activation slot"
	gradBufferCredit = "gradient buffer"
	slabCredit       = "slab"
	matrixCredit     = "matrix buffer"
	stateCredit      = "state slot"
	batchCredit      = "batch"
)

// newTracer makes the tracer of a run; nil where nobody wants to know.
func newTracer(rec *timeline.Recorder, now func() time.Duration, names []string) *tracer {
	if rec == nil {
		return nil
	}
	return &tracer{rec: rec, now: now, names: names, holds: map[credit]*hold{}, ahead: map[packBatch]credit{},
		updated: map[int]*piece{}, fetched: map[int]*piece{}, saved: map[int]*piece{}, summed: map[int]*piece{}, grads: map[int]*piece{}, states: map[int]credit{}, placed: map[credit]timeline.Track{}, until: map[timeline.Track]time.Duration{}}
}

// place is the track of a credit.
func (t *tracer) place(c credit) timeline.Track {
	at, ok := t.placed[c]
	if !ok {
		name := fmt.Sprintf("%s %d", c.kind, c.index)
		if c.lane > 0 {
			name = fmt.Sprintf("%s, lane %d", name, c.lane)
		}
		at = t.rec.Track(name, timeline.Credit)
		t.placed[c] = at
	}
	return at
}

// takes notes that p is the first to work in a slot that is taken for name. What led to
// it is that the slot was returned.
func (t *tracer) takes(c credit, name string, p *piece) *hold {
	if old := t.holds[c]; old != nil {
		t.frees(old)
		t.link(c.kind, old.last, p)
	}
	h := &hold{track: t.place(c), name: name, step: p.step, made: p}
	t.holds[c] = h
	t.uses(c, p)
	return h
}

// uses notes that p needs what a slot holds, and returns the piece before it that did.
func (t *tracer) uses(c credit, p *piece) (before *piece) {
	h := t.holds[c]
	if h == nil {
		return nil
	}
	before, h.last = h.last, p
	h.pending++
	p.holds = append(p.holds, h)
	return before
}

// follows is uses for a p that is of the same step as the piece before it, and that a
// message of it led to.
func (t *tracer) follows(message string, c credit, p *piece) {
	if before := t.uses(c, p); before != nil {
		p.step = before.step
		t.link(message, before, p)
	}
}

// frees notes that nobody else will use what a slot holds.
func (t *tracer) frees(h *hold) {
	if h.released {
		return
	}
	h.released = true
	if h.pending == 0 {
		t.reportHold(h)
	}
}

// reportHold tells of a hold that is over.
func (t *tracer) reportHold(h *hold) {
	if s := t.span(h); h.begun && s.Start <= s.End {
		t.until[h.track] = s.End
		t.rec.Span(s)
	}
}

// span is what is shown of a hold. Weights that are used in place are fetched by copying nothing,
// and while those that were fetched into the slot before are still computed with: a stay begins
// where the one before it ends, since Perfetto drops a span that overlaps another one.
func (t *tracer) span(h *hold) timeline.Span {
	return timeline.Span{Track: h.track, Name: h.name, Step: h.step, Start: max(h.start, t.until[h.track]), End: h.end}
}

// link draws an arrow from one piece to another. Within a track everybody sees what follows
// what.
func (t *tracer) link(name string, from, to *piece) {
	if from == nil || to == nil || from.track == to.track {
		return
	}
	a := &arrow{name, from, to}
	for _, p := range []*piece{from, to} {
		if !p.over {
			p.arrows = append(p.arrows, a)
		}
	}
	t.draw(a)
}

// draw tells of an arrow when both its ends are known. None leads back: the credit of weights
// that are used in place is returned when a launch is enqueued, and may be taken before it begins.
func (t *tracer) draw(a *arrow) {
	if a.from.over && a.to.over && a.from.start <= a.to.start {
		// The moment at which a span ends is not in it any more. Two clocks agree only so far.
		left := max(a.from.start, min(a.from.end-1, a.to.start))
		t.rec.Flow(timeline.Flow{Name: a.name, From: a.from.track, To: a.to.track, Left: left, Landed: a.to.start})
	}
}

// ended tells of a piece of which start and end are known now.
func (t *tracer) ended(p *piece) {
	p.over = true
	t.rec.Span(timeline.Span{Track: p.track, Name: p.name, Detail: p.detail, Step: p.step, Start: p.start, End: p.end})
	for _, a := range p.arrows {
		t.draw(a)
	}
	for _, h := range p.holds {
		if !h.begun || p.start < h.start {
			h.begun, h.start = true, p.start
		}
		h.end = max(h.end, p.end)
		if h.pending--; h.pending == 0 && h.released {
			t.reportHold(h)
		}
	}
	p.arrows, p.holds = nil, nil
}

// begin notes that an actor begins with a work on the host.
func (t *tracer) begin(id address, do task) *piece {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &piece{track: t.rec.Track(id.String(), timeline.Actor), start: t.time()}
	switch e := do.(type) {
	case packBatch:
		t.packs(e, p)
	case gatherRows:
		p.name, p.step = "gather rows", e.p.Step
		t.takes(credit{kind: batchSlotCredit, index: e.Slot, lane: id.lane}, "batch", p)
		t.takesBatch(e.p, p)
		t.fetches(0, p)
	case merge:
		p.name = "add the gradient of " + t.names[e.Layer]
		t.follows("GradLanded", credit{kind: slabCredit, index: e.Rows}, p)
		t.follows("GradLanded", credit{kind: slabCredit, index: e.Into}, p)
	case measure:
		p.name = "measure " + t.names[e.Layer]
		t.follows("GradLanded", credit{kind: slabCredit, index: e.Slab}, p)
	case sumShare:
		p.name, p.step = "add up the gradient of "+t.names[e.Layer], e.Step
		t.summed[e.Layer] = p
	case update:
		p.name = "update " + t.names[e.Layer]
		if sum := t.summed[e.Layer]; sum != nil {
			p.step = sum.step
		} else {
			t.movesBy(e, p)
		}
		t.link("StateFetched", t.usesState(e.Layer, p), p)
		t.link("LayerSaved", t.saved[e.Layer], p)
		t.updated[e.Layer], t.saved[e.Layer] = p, nil
	case prepareMatrix:
		p.name = "prepare a matrix of " + t.names[e.Of.Layer]
		t.movesBy(e.Of, p)
		t.link("StateFetched", t.usesState(e.Of.Layer, p), p)
		t.takes(credit{kind: matrixCredit, index: e.Buffer, lane: e.Lane}, "matrix of "+t.names[e.Of.Layer], p)
	case applyMatrix:
		p.name = "apply a matrix to " + t.names[e.Of.Layer]
		t.follows("MatrixOrthogonalized", credit{kind: matrixCredit, index: e.Buffer, lane: e.Lane}, p)
		t.usesState(e.Of.Layer, p)
		t.updated[e.Of.Layer] = p
	case openSave:
		p.name, p.step, t.saving = "open a checkpoint", e.Save.Step, e.Save.Step
	case saveLayer:
		p.name, p.step = "save "+t.names[e.Layer], t.saving
		t.link("LayerUpdated", t.updated[e.Layer], p)
		t.usesState(e.Layer, p)
		t.saved[e.Layer] = p
	case commitSave:
		p.name, p.step = "commit the checkpoint", e.Save.Step
	default:
		t.onDisk(id, do, p)
	}
	return p
}

// onDisk describes a work that reads from a disk or writes to one.
func (t *tracer) onDisk(id address, do task, p *piece) {
	switch e := do.(type) {
	case fetchState:
		p.track, p.name = t.rec.Track(readsTrack, timeline.Actor), "read the state of "+t.names[e.Layer]
		t.states[e.Layer] = credit{kind: stateCredit, index: e.Slot}
		t.takes(t.states[e.Layer], "state of "+t.names[e.Layer], p)
	case readParams:
		p.track, p.name, p.step = t.rec.Track(id.String()+", reads", timeline.Actor), "read the weights of "+t.names[e.Layer], e.Step
		t.fetches(e.Layer, p)
	case flushState:
		p.track, p.name = t.rec.Track(writesTrack, timeline.Actor), "write the state of "+t.names[e.Layer]
		t.follows("StateUpdated", t.states[e.Layer], p)
	case putGrad:
		p.track, p.name = t.rec.Track(writesTrack, timeline.Actor), "write the gradient of "+t.names[e.Layer]
		t.follows("GradMeasured", credit{kind: slabCredit, index: e.Slab}, p)
		t.grads[e.Layer] = p
	case fetchGrad:
		p.track, p.name = t.rec.Track(readsTrack, timeline.Actor), "read the gradient of "+t.names[e.Layer]
		t.usesState(e.Layer, p)
		if put := t.grads[e.Layer]; put != nil {
			p.step = put.step
		}
		t.grads[e.Layer] = p
	}
}

// movesBy notes that p uses the gradient that an update is made by, in a slab or in the layer's state slot.
func (t *tracer) movesBy(e update, p *piece) {
	if e.Slab != noSlab {
		t.follows("GradLanded", credit{kind: slabCredit, index: e.Slab}, p)
	} else if read := t.grads[e.Layer]; read != nil {
		p.step = read.step
	}
}

// The tracks of the Stager, which reads while it writes.
const (
	readsTrack  = "stager, reads"
	writesTrack = "stager, writes"
)

// usesState notes that p needs the state of a layer, and returns the piece before it that did; nil where the
// layer's state is never on a disk.
func (t *tracer) usesState(layer int, p *piece) (before *piece) {
	if c, ok := t.states[layer]; ok {
		return t.uses(c, p)
	}
	return nil
}

// done tells that the work is over for which begin returned p.
func (t *tracer) done(p *piece) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.end = t.time()
	t.ended(p)
}

// fetches notes that p brings the weights of a layer to where they are computed with, for
// the first time since an update where that is so.
func (t *tracer) fetches(layer int, p *piece) {
	if u := t.updated[layer]; u != t.fetched[layer] {
		t.link("LayerUpdated", u, p)
		t.fetched[layer] = u
	}
}

// packs notes that p packs a batch, with a credit that nobody holds.
func (t *tracer) packs(e packBatch, p *piece) {
	p.name, p.step = "pack a batch", e.Step
	if e.Eval {
		p.name, p.detail, p.step = "pack a batch to evaluate", "pass "+strconv.Itoa(e.Step), 0
	}
	c := credit{kind: batchCredit}
	for h := t.holds[c]; h != nil && !h.released; h = t.holds[c] {
		c.index++
	}
	t.ahead[e] = c
	t.takes(c, "batch", p)
}

// takesBatch notes that p takes the batch of a pass. Those of an evaluation are taken in
// their order.
func (t *tracer) takesBatch(pass *Pass, p *piece) {
	e := packBatch{Step: pass.Step}
	if pass.Eval {
		e = packBatch{Eval: true}
		for other := range t.ahead {
			if other.Eval && (e.Step == 0 || other.Step < e.Step) {
				e.Step = other.Step
			}
		}
	}
	c, ok := t.ahead[e]
	if !ok || pass.Check { // the batch of a diagnosis has been taken before
		return
	}
	delete(t.ahead, e)
	t.link("BatchReady", t.uses(c, p), p)
	t.frees(t.holds[c])
}

// open lists what is held and not over, as far as it reaches by now.
func (t *tracer) open() (out []timeline.Span) {
	for _, h := range t.holds {
		if !h.begun || h.released && h.pending == 0 {
			continue
		}
		s := t.span(h)
		if h.pending > 0 {
			s.End = max(s.Start, t.time())
		}
		if s.Start <= s.End {
			out = append(out, s)
		}
	}
	return out
}

// close tells of what is held at the end of the run.
func (t *tracer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		if !h.released {
			h.pending = 0
			t.frees(h)
		}
	}
	clear(t.holds)
}
