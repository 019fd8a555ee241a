package appraise

import (
	"math"

	"mt/cudart/emu/ptx"
)

// Replay is a launch that one multiprocessor replays: blocks that all do what one traced block did.
type Replay struct {
	Kernel   *ptx.Kernel
	Trace    *ptx.Trace
	Resident int // blocks at a time
	Rounds   int // blocks that follow each other in the place of one; the first begin together
	// Miss is the part of the sectors asked of the L2 cache that device memory has to bring or take.
	Miss float64
	// Active is how many multiprocessors share the L2 cache and the memory.
	Active int
}

// ahead is how many instructions of a straight piece of code are looked at for one that can be issued. A
// GPU takes them in the order that ptxas gives them; looking ahead stands for that order, which the
// PTX does not have yet. It is the one number that was calibrated: see docs/benchmarks.md.
const ahead = 24

// Cycles is what the multiprocessor takes for one round of blocks, on average over Rounds.
//
// The model: a warp issues what is among its next instructions and has its operands, from straight code
// only, with stores, copies and barriers in order. A quarter issues one instruction a cycle, of the warp
// that it took last or else of the oldest. Units and the path to memory are busy for what cost says;
// a queue of queued cycles stands before that path. Sectors pass to and from the L2 cache one after the
// other at the multiprocessor's share of its rate, or of the memory's for those that miss. A wgmma keeps the
// tensor core of the warp's quarter busy after what that was given before, while the warp goes on; meanwhile others have the
// path to shared memory but for what the operands take. Bulk copies, arrivals and waits are tied together by the trace's events. There are no
// bank conflicts of registers, no misses of instructions, no limits on outstanding loads, and no clock
// that falls when the GPU gets hot.
func (g *GPU) Cycles(r Replay) float64 {
	m := newMachine(g, r)
	for m.left > 0 {
		m.now = m.step()
	}
	return max(m.end, m.memory) / float64(r.Rounds) // what was stored is on its way when blocks end
}

// machine is one multiprocessor while it replays.
type machine struct {
	costs    [ptx.Classes]cost
	meanings []ptx.Meaning
	trace    *ptx.Trace
	now, end float64
	left     int // blocks that have not ended, and those to come

	parts  [quarters]part
	path   float64 // when the path to shared memory and caches is free
	memory float64 // when the way to the L2 cache is free
	slowed float64 // see GPU.slowed
	taken  float64 // part of the path to shared memory that the last wgmma takes
	until  float64 // when tensor cores are done with that
	sector float64 // cycles that a sector takes on that way
	far    float64 // cycles until a sector is there
}

// part is a quarter of the multiprocessor.
type part struct {
	warps []*replayed
	free  float64 // when it can issue
	units [units]float64
	last  *replayed
}

// place is where blocks follow each other on the multiprocessor.
type place struct {
	warps  []*replayed
	rounds int
	alive  int
	events []happening
}

// happening is an event of the trace, once.
type happening struct {
	left int32   // steps that it needs and that have not been taken
	at   float64 // when those that were are done
}

func newMachine(g *GPU, r Replay) *machine {
	m := &machine{costs: g.costs(), meanings: r.Kernel.Meanings(), trace: r.Trace, slowed: g.slowed(), left: r.Resident * r.Rounds}
	share := min(g.L2/float64(r.Active), bytesToL2)
	if r.Miss > 0 {
		reached := g.Reached / g.Clock / float64(r.Active) // bytes a cycle
		share = min(share, reached/r.Miss)
	}
	m.sector = 32 / share
	m.far = latencyL2 + min(r.Miss, 1)*(latencyMemory-latencyL2)
	registers := int32(0)
	for _, x := range m.meanings {
		for _, w := range x.Writes {
			registers = max(registers, w+1)
		}
		for _, w := range x.Reads {
			registers = max(registers, w+1)
		}
	}
	n := 0
	for range r.Resident {
		p := &place{rounds: r.Rounds}
		for i := range r.Trace.Warps {
			w := &replayed{place: p, steps: r.Trace.Warps[i], writers: make([][]int32, registers), done: make([]float64, len(r.Trace.Warps[i]))}
			p.warps = append(p.warps, w)
			q := &m.parts[n%quarters]
			q.warps = append(q.warps, w)
			n++
		}
		m.begin(p, 0)
	}
	return m
}

// begin starts a block in a place.
func (m *machine) begin(p *place, at float64) {
	p.rounds--
	p.alive, p.events = len(p.warps), p.events[:0]
	for _, n := range m.trace.Events {
		p.events = append(p.events, happening{left: n})
	}
	for _, w := range p.warps {
		w.begin(at)
	}
	for _, w := range p.warps {
		if len(w.steps) == 0 {
			m.ended(w)
		}
	}
}

// step issues what can be issued now, and returns when something more may be.
func (m *machine) step() float64 {
	next := math.Inf(1)
	for i := range m.parts {
		q := &m.parts[i]
		if q.free <= m.now {
			m.issue(q)
		}
		if q.free > m.now {
			next = min(next, q.free)
			continue
		}
		for _, w := range q.warps {
			next = min(next, w.wake)
		}
	}
	if math.IsInf(next, 1) && m.left > 0 {
		panic("appraise: a replay in which every warp waits") // a trace of a launch that ended has none
	}
	return max(next, m.now+1)
}

// issue lets one warp of a quarter issue.
func (m *machine) issue(q *part) {
	if q.last != nil && q.last.wake <= m.now && m.try(q, q.last) {
		return
	}
	for _, w := range q.warps {
		if w != q.last && w.wake <= m.now && m.try(q, w) {
			q.last = w
			return
		}
	}
}

// ended counts a warp that has ended. The last one of a block makes room for the next block.
func (m *machine) ended(w *replayed) {
	p := w.place
	w.wake = math.Inf(1)
	p.alive--
	if p.alive > 0 {
		return
	}
	m.left--
	m.end = max(m.end, m.now)
	if p.rounds > 0 {
		m.begin(p, m.now+latencyNewBlock)
	}
}

// happens takes one of the steps that an event needs, which is done at a time, and lets warps go on that wait for the last.
func (m *machine) happens(p *place, event int32, at float64) {
	if event == 0 {
		return
	}
	e := &p.events[event-1]
	e.left--
	e.at = max(e.at, at)
	if e.left > 0 {
		return
	}
	for _, w := range p.warps {
		if w.waits == event {
			w.waits, w.wake = 0, max(e.at, m.now+1)
		}
	}
}

// await has a warp wait for an event.
func (m *machine) await(w *replayed, event int32) {
	if event == 0 {
		return
	}
	if e := &w.place.events[event-1]; e.left <= 0 {
		w.wake = max(w.wake, e.at)
		return
	}
	w.waits, w.wake = event, math.Inf(1)
}
