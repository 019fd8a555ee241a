package appraise

import (
	"math"

	"mt/cudart/emu/ptx"
)

// Replay describes the simulation of one multiprocessor during a launch. The emulator has traced
// the instructions of one thread block; every simulated block repeats these.
type Replay struct {
	Kernel   *ptx.Kernel
	Trace    *ptx.Trace
	Resident int // thread blocks on the multiprocessor at a time
	Rounds   int // thread blocks that run in each place, one after another; the first ones begin together
	// Miss is the share of the requests to the L2 cache, counted in sectors of 32 bytes, that go on to device memory.
	Miss float64
	// Active is the number of multiprocessors that share the L2 cache and the memory.
	Active int
}

// ahead is how many of its next instructions, without branches between them, a simulated warp
// examines to find one that can issue. A real GPU issues instructions in the order that ptxas has
// chosen, but PTX is not in that order. Looking ahead approximates it. ahead is the only number
// that was calibrated with measurements: see docs/benchmarks.md.
const ahead = 24

// Cycles returns the multiprocessor's cycles for one round of blocks, averaged over Rounds.
//
// The model:
//
//   - A warp issues one of its next instructions whose operands are ready, from straight-line code only. Stores, copies and
//     barriers stay in order.
//   - A quarter issues one instruction a cycle, of the warp that issued last, or else of the oldest warp.
//   - Units and the path to memory are busy as cost says. The path has a queue of queued cycles.
//   - Sectors pass to and from the L2 cache one after another, at the multiprocessor's share of the cache's rate. Misses pass
//     at its share of the memory's rate.
//   - A wgmma keeps the tensor core of the warp's quarter busy after earlier wgmma, while the warp continues. Meanwhile other
//     instructions share the path to shared memory with its operands.
//   - The trace's events order bulk copies, arrivals and waits.
//
// There are no bank conflicts of registers, no instruction cache misses, no limits on outstanding loads, and no
// thermal throttling.
func (g *GPU) Cycles(r Replay) float64 {
	m := newMachine(g, r)
	for m.left > 0 {
		m.now = m.step()
	}
	return max(m.end, m.memory) / float64(r.Rounds) // memory: a block's last stores may reach the L2 cache after its end
}

// machine is the state of one multiprocessor while a launch is replayed (simulated instruction by instruction). Times
// are in cycles.
type machine struct {
	costs    [ptx.Classes]cost
	meanings []ptx.Meaning
	trace    *ptx.Trace
	now, end float64
	left     int // blocks that have not ended or not begun

	parts  [quarters]part
	path   float64 // time at which the path to shared memory and caches is free
	memory float64 // time at which the path to the L2 cache is free
	slowed float64 // factor by which wgmma is slower than the peak; see GPU.slowed
	taken  float64 // share of the path to shared memory that the last wgmma takes
	until  float64 // time at which tensor cores finish that wgmma
	sector float64 // cycles of a sector on the path to the L2 cache
	far    float64 // cycles until a sector arrives
}

// part is one of the four quarters (SM sub-partitions) of the multiprocessor. Each issues
// instructions of its own warps.
type part struct {
	warps []*replayed
	free  float64 // time at which the quarter can issue again
	units [units]float64
	last  *replayed
}

// place is room for one thread block on the multiprocessor. When its block ends, the next block starts there.
type place struct {
	warps  []*replayed
	rounds int
	alive  int
	events []happening
}

// happening is one event of the trace, such as the end of a bulk copy, in one simulated thread
// block. The event needs several instructions, and happens with the last of them.
type happening struct {
	left int32   // instructions that the event still needs
	at   float64 // time at which the instructions so far are done
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

// begin starts the next thread block in the place p. `at` is the time in cycles.
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

// step lets every quarter issue what it can at the time m.now. It returns the next time at which
// any instruction can issue.
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
		panic("appraise: a replay in which every warp waits") // impossible for the trace of a launch that ended
	}
	return max(next, m.now+1)
}

// issue lets one warp of the quarter q issue an instruction: the warp that issued last, or else the oldest warp that
// can.
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

// ended is called when a warp has ended. With the last warp of a thread block its place becomes free for the next
// block.
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

// happens is called when one of the instructions that an event needs is done, at the time at. With
// the last of them the event happens, and the warps waiting for the event wake up. Events are
// numbered from 1; 0: none.
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

// await makes the warp w wait until an event of its block has happened. event is the event's number
// from 1 on; 0: none.
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
