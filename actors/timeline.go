package actors

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"mt/base/timeline"
	"mt/device"
)

// This file reports a run to Options.Timeline. It reports the time of each work on its stream or actor, the messages
// between works, and the content of each slot.

// tracer reports the work of a run to a timeline.Recorder.
type tracer struct {
	rec   *timeline.Recorder
	now   func() time.Duration // the hub's clock
	names []string             // layer names

	mu      sync.Mutex
	holds   map[credit]*hold
	ahead   map[packBatch]credit // credits of batches that no pass has taken yet
	updated map[int]*piece       // by layer: its last update
	fetched map[int]*piece       // by layer: the last update whose weights were fetched
	saved   map[int]*piece       // by layer: its last save
	summed  map[int]*piece       // by layer: the last sum over ranks
	grads   map[int]*piece       // by layer: the last disk write or read of its gradient
	states  map[int]credit       // by layer: its current or last state slot
	saving  int                  // the step of the checkpoint in progress
	placed  map[credit]timeline.Track
	until   map[timeline.Track]time.Duration // by track of a credit: end of the last reported hold

	// skew is added to the hub's clock to get the time shown in the trace, which follows the clock
	// of the first lane's device. skew changes from step to step, to correct drift. The shown time
	// never runs back: least is its lower bound.
	skew, least time.Duration
}

// time returns the time to show in the trace: the hub's clock plus skew, but at least least. The caller holds t.mu.
func (t *tracer) time() time.Duration { return max(t.now()+t.skew, t.least) }

// piece is a piece of work in the trace: a launch, the copies of one work on a stream, or a work on the host.
type piece struct {
	track        timeline.Track
	name, detail string
	step         int
	start, end   time.Duration
	enqueued     time.Duration // by the hub's clock
	from, to     device.Event  // events around the copies of a work; nil: a launch with marks, or work on the host
	over         bool          // start and end are known
	arrows       []*arrow      // arrows that wait for its end
	holds        []*hold       // the slots that it uses
}

// arrow is drawn in the trace from the end of one piece of work to the start of another that it has made possible.
type arrow struct {
	name     string
	from, to *piece
}

// credit identifies one unit of a credit (see the package comment), for example one weight slot of a lane.
type credit struct {
	kind  string
	index int
	lane  laneID
}

// hold is the time during which one content, such as a tile, occupies a slot. It lasts from the start of the first
// piece that uses this content to the end of the last one.
type hold struct {
	track      timeline.Track
	name       string
	object     object // the activation in an activation slot
	step       int
	start, end time.Duration
	begun      bool   // start is known
	pending    int    // pieces that are not over
	made, last *piece // the piece that last changed the content, and the last piece that used it
	byPeer     bool   // another lane's device copied the content here, and no launch has used it
	released   bool   // no piece will follow
}

// object identifies an activation: by its program, counted from 1, and its number in the program's Objects. Zero: none.
type object struct{ prog, id int }

// The kinds of credits in a trace. A head slot is a weight slot of class Whole.
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

// newTracer makes the tracer of a run. It returns nil if rec is nil: then nothing is traced.
func newTracer(rec *timeline.Recorder, now func() time.Duration, names []string) *tracer {
	if rec == nil {
		return nil
	}
	return &tracer{rec: rec, now: now, names: names, holds: map[credit]*hold{}, ahead: map[packBatch]credit{},
		updated: map[int]*piece{}, fetched: map[int]*piece{}, saved: map[int]*piece{}, summed: map[int]*piece{}, grads: map[int]*piece{}, states: map[int]credit{}, placed: map[credit]timeline.Track{}, until: map[timeline.Track]time.Duration{}}
}

// place returns the track (the row of the trace) on which the content of slot c is shown. It makes
// the track on the first call.
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

// takes records that p begins to fill slot c with new content, called name. An arrow leads to p from the last piece
// that used the previous content, because p had to wait for it.
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

// uses records that p uses the content of slot c. It returns the piece that used the content before; nil if there is
// none.
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

// follows records that piece p of the timeline uses the slot of credit c, and that the piece which used the slot before
// caused p, in the same step. It draws an arrow called message from that piece to p.
func (t *tracer) follows(message string, c credit, p *piece) {
	if before := t.uses(c, p); before != nil {
		p.step = before.step
		t.link(message, before, p)
	}
}

// frees records that no further piece will use the content of hold h.
func (t *tracer) frees(h *hold) {
	if h.released {
		return
	}
	h.released = true
	if h.pending == 0 {
		t.reportHold(h)
	}
}

// reportHold reports a hold that is over to the recorder.
func (t *tracer) reportHold(h *hold) {
	if s := t.span(h); h.begun && s.Start <= s.End {
		t.until[h.track] = s.End
		t.rec.Span(s)
	}
}

// span returns the span that the trace shows for h, the time from filling a slot to its release.
// Perfetto drops spans that overlap, so the span begins no earlier than the previous span of the
// slot ends. Without this rule spans would overlap if weights are used in place: fetching then
// copies nothing, and can precede the last use of the previous weights.
func (t *tracer) span(h *hold) timeline.Span {
	return timeline.Span{Track: h.track, Name: h.name, Step: h.step, Start: max(h.start, t.until[h.track]), End: h.end}
}

// link draws an arrow called name between two pieces. It draws none if either is nil, or if both are on one track,
// where their order is visible.
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

// draw reports an arrow when the times of both its pieces are known. It drops an arrow that would lead back in time.
// Such arrows occur with weights used in place: their credit returns when a launch is enqueued, so the next use may
// begin before the launch does.
func (t *tracer) draw(a *arrow) {
	if a.from.over && a.to.over && a.from.start <= a.to.start {
		// A span excludes its end. The start of the arrow is moved inside the span, because two clocks agree only
		// roughly.
		left := max(a.from.start, min(a.from.end-1, a.to.start))
		t.rec.Flow(timeline.Flow{Name: a.name, From: a.from.track, To: a.to.track, Left: left, Landed: a.to.start})
	}
}

// ended reports a piece whose start and end are known, and the arrows and holds that waited for its end.
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

// begin records that actor id begins work `do` on the host. It returns the piece to pass to done.
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

// onDisk fills in p for a task that reads or writes a disk: its track, its name and the slots that it uses.
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

// movesBy records that p, a piece of a layer's update, uses the layer's gradient. The gradient is
// in a slab or, if it has waited on a disk, in the layer's state slot.
func (t *tracer) movesBy(e update, p *piece) {
	if e.Slab != noSlab {
		t.follows("GradLanded", credit{kind: slabCredit, index: e.Slab}, p)
	} else if read := t.grads[e.Layer]; read != nil {
		p.step = read.step
	}
}

// The Stager has two tracks, because it reads and writes at the same time.
const (
	readsTrack  = "stager, reads"
	writesTrack = "stager, writes"
)

// usesState records that p uses a layer's state slot. It returns the previous user; nil if the layer's state is never
// on a disk.
func (t *tracer) usesState(layer int, p *piece) (before *piece) {
	if c, ok := t.states[layer]; ok {
		return t.uses(c, p)
	}
	return nil
}

// done records that the work on the host for which begin has returned p is over.
func (t *tracer) done(p *piece) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.end = t.time()
	t.ended(p)
}

// fetches records that p fetches a layer's weights. An arrow leads from the layer's last update to p, if p is the first
// fetch after it.
func (t *tracer) fetches(layer int, p *piece) {
	if u := t.updated[layer]; u != t.fetched[layer] {
		t.link("LayerUpdated", u, p)
		t.fetched[layer] = u
	}
}

// packs records that p packs the batch of task e. It takes the first free credit for a packed
// batch, which the trace shows as a slot.
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

// takesBatch records that p copies the batch of a pass into a batch slot, so its credit is free for
// another packed batch. The batches of an evaluation are used in order, so the one packed first is
// taken.
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
	if !ok || pass.Check { // a diagnosis reuses a batch
		return
	}
	delete(t.ahead, e)
	t.link("BatchReady", t.uses(c, p), p)
	t.frees(t.holds[c])
}

// open returns spans for the slots whose content is still in use, for viewers of a running step.
// The spans end at the current time.
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

// close ends the timeline of the slots: it writes the spans of contents that slots still have at the end of the run.
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
