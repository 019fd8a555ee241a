package appraise

import (
	"math"

	"mt/cudart/emu/ptx"
)

// replayed is the state of one warp while a launch is simulated instruction by instruction. steps
// are the instructions of its trace.
type replayed struct {
	place    *place
	steps    []ptx.Step
	next     int         // index of the first step after the window
	writers  [][]int32   // for each register, the steps that produce its value
	done     []float64   // for each step, the time of its result
	window   []candidate // steps not yet issued, in order
	closed   bool        // the window ends with a step that later steps may not pass
	wake     float64     // earliest time of the next issue
	waits    int32       // the event that it waits for; 0: none
	copies   groups      // pending cp.async
	bulks    groups      // pending bulk copies to global memory
	reads    groups      // bulk copies that have not yet read all their shared memory
	products groups      // pending wgmma
}

// groups tracks asynchronous operations of a warp that are committed in groups and awaited group by
// group, such as cp.async. Times are in cycles.
type groups struct {
	closed []float64 // time at which each closed group is done
	open   float64   // time at which the operations of the open group are done
}

// add adds an operation, which will be done at the time done, to the open group.
func (g *groups) add(done float64) { g.open = max(g.open, done) }

// close closes the open group, as a commit instruction does. Later operations belong to the next
// group.
func (g *groups) close() { g.closed, g.open = append(g.closed, g.open), 0 }

// ready returns the time at which all closed groups are done, except for the last but of them,
// which may still be in progress.
func (g *groups) ready(but int) (at float64) {
	for i := range len(g.closed) - but {
		at = max(at, g.closed[i])
	}
	return at
}

// candidate is one of the next instructions of a warp. A candidate whose operands are ready may
// issue before earlier instructions.
type candidate struct {
	step  int32
	order order
	needs []int32 // the steps that produce its operands
}

// order says which earlier instructions an instruction may pass when it issues.
type order uint8

const (
	free   order = iota
	loads        // may pass free steps and other loads
	stores       // may pass free steps only
	fence        // passes no step, and no step passes it
)

var orders = map[ptx.Class]order{
	ptx.ClassLdmatrix: loads, ptx.ClassLoadGlobal: loads, ptx.ClassLoadShared: loads, ptx.ClassLoadLocal: loads,
	ptx.ClassStoreGlobal: stores, ptx.ClassStoreShared: stores, ptx.ClassStoreLocal: stores, ptx.ClassAtomic: stores, ptx.ClassCopy: stores,
	ptx.ClassBranch: fence, ptx.ClassBarrier: fence, ptx.ClassCopyWait: fence, ptx.ClassWarpSync: fence, ptx.ClassFence: fence,
	ptx.ClassWGMMA: fence, ptx.ClassWGMMAOrder: fence, ptx.ClassBulk: fence, ptx.ClassBulkWait: fence, ptx.ClassMbar: fence, ptx.ClassMbarWait: fence,
}

// begin sets the warp to the first instruction of a new thread block, which begins at the time at.
func (w *replayed) begin(at float64) {
	w.next, w.window, w.closed, w.waits, w.wake = 0, w.window[:0], false, 0, at
	for _, g := range []*groups{&w.copies, &w.bulks, &w.reads, &w.products} {
		g.closed, g.open = g.closed[:0], 0
	}
	for i := range w.writers {
		w.writers[i] = w.writers[i][:0]
	}
	for i := range w.done {
		w.done[i] = math.Inf(1)
	}
}

// fill adds instructions to the warp's window, the next instructions from which one is chosen to
// issue.
func (m *machine) fill(w *replayed) {
	for len(w.window) < ahead && !w.closed && w.next < len(w.steps) {
		at := int32(w.next)
		x := &m.meanings[w.steps[at].At]
		w.next++
		var needs []int32
		if n := len(w.window); n < cap(w.window) { // reuse the memory of an earlier candidate
			needs = w.window[:n+1][n].needs[:0]
		}
		for _, r := range x.Reads {
			for _, by := range w.writers[r] {
				if w.done[by] > m.now {
					needs = append(needs, by)
				}
			}
		}
		if m.costs[x.Class].issue == 0 { // the GPU has no such instruction: its result is its input
			for _, r := range x.Writes {
				w.writers[r] = append(w.writers[r][:0], needs...)
			}
			continue
		}
		for _, r := range x.Writes {
			w.writers[r] = append(w.writers[r][:0], at)
		}
		o := orders[x.Class]
		w.closed = o == fence
		w.window = append(w.window, candidate{at, o, needs})
	}
}

// try issues one instruction of the warp w on the quarter q and returns true. If none can issue, it
// returns false and sets w.wake, the time at which to try again.
func (m *machine) try(q *part, w *replayed) bool {
	m.fill(w)
	if len(w.window) == 0 {
		m.ended(w)
		return false
	}
	wake := math.Inf(1)
	var loading, storing bool
	for i := range w.window {
		c := &w.window[i]
		may := c.order == free || c.order == loads && !storing || c.order == stores && !loading && !storing || i == 0
		loading, storing = loading || c.order == loads, storing || c.order == stores
		if !may {
			continue
		}
		at := m.ready(q, w, c)
		if at <= m.now {
			m.execute(q, w, i)
			return true
		}
		wake = min(wake, at)
	}
	w.wake = wake
	return false
}

// queued is how many cycles of work may wait in the queue of the path to shared memory and caches.
// An instruction that would add more cannot issue yet.
const queued = 16

// ready returns the time at which the instruction c can issue. It is infinite if c needs the result
// of an instruction that has not issued.
func (m *machine) ready(q *part, w *replayed, c *candidate) float64 {
	x := &m.meanings[w.steps[c.step].At]
	k := &m.costs[x.Class]
	at := q.units[k.unit]
	if x.Class == ptx.ClassWGMMA {
		at = 0
	}
	if k.memory {
		at = max(at, m.path-queued)
	}
	for _, by := range c.needs {
		at = max(at, w.done[by])
	}
	if g := w.groupsOf(x); g != nil && x.Groups >= 0 {
		at = max(at, g.ready(x.Groups))
	}
	return at
}

// groupsOf returns the groups of asynchronous operations that an instruction commits or waits for; nil: it does
// neither.
func (w *replayed) groupsOf(x *ptx.Meaning) *groups {
	switch x.Class {
	case ptx.ClassCopyWait:
		return &w.copies
	case ptx.ClassWGMMAOrder:
		return &w.products
	case ptx.ClassBulkWait:
		if x.ReadOnly {
			return &w.reads
		}
		return &w.bulks
	}
	return nil
}

// execute issues the i-th instruction of the warp's window. It makes units and the path to memory
// busy, and sets the time at which the result is ready.
func (m *machine) execute(q *part, w *replayed, i int) {
	c := w.window[i]
	s := w.steps[c.step]
	x := &m.meanings[s.At]
	k := m.costs[x.Class]
	if s.Off {
		k = cost{issue: 1}
	}
	q.free = m.now + k.issue
	if k.unit != unitNone && x.Class != ptx.ClassWGMMA {
		q.units[k.unit] = m.now + k.cycles
	}
	w.done[c.step] = m.now + k.latency
	if k.memory {
		m.access(w, &c, s, x.Class, k.latency)
	}
	copy(w.window[i:], w.window[i+1:])
	last := len(w.window) - 1
	w.window[last] = candidate{needs: c.needs} // the memory of needs is reused
	w.window = w.window[:last]
	w.wake = m.now + 1
	if c.order != fence {
		return
	}
	w.closed = false
	if !s.Off {
		m.pass(q, w, x, s)
	}
}

// access accounts for the bytes that the instruction s reads or writes. It makes the path to the
// first-level cache, the L2 cache and device memory busy. latency is how many cycles later a result
// arrives.
func (m *machine) access(w *replayed, c *candidate, s ptx.Step, class ptx.Class, latency float64) {
	wavefronts := int64(s.Wavefronts)
	cycles := path(wavefronts, int64(s.Sectors), 1)
	if m.now < m.until {
		cycles /= 1 - m.taken
	}
	m.path = max(m.path, m.now) + cycles
	done := m.path + latency
	moved := int64(s.Fresh)
	if class == ptx.ClassStoreGlobal || class == ptx.ClassAtomic { // these bypass the first-level cache
		moved = int64(s.Sectors)
	}
	if moved > 0 {
		m.memory = max(m.memory, m.now) + float64(moved)*m.sector
		done = max(done, m.memory+m.far)
	}
	switch class {
	case ptx.ClassStoreGlobal, ptx.ClassStoreShared, ptx.ClassStoreLocal:
		done = m.now
	case ptx.ClassCopy:
		w.copies.add(done)
	}
	w.done[c.step] = done
}

// pass executes an instruction that later ones may not overtake, such as a branch, a barrier or a
// wait.
func (m *machine) pass(q *part, w *replayed, x *ptx.Meaning, s ptx.Step) {
	switch x.Class {
	case ptx.ClassBranch:
		w.wake = m.now + latencyBranch
	case ptx.ClassCopyWait, ptx.ClassWGMMAOrder:
		if x.Groups == ptx.Closes {
			w.groupsOf(x).close()
		}
	case ptx.ClassBulkWait:
		if x.Groups == ptx.Closes {
			w.bulks.close()
			w.reads.close()
		}
	case ptx.ClassBarrier:
		if !x.Arrives {
			w.waits, w.wake = s.Event, math.Inf(1)
		}
		m.happens(w.place, s.Event, m.now+latencyBarrier)
	case ptx.ClassMbar:
		m.happens(w.place, s.Event, m.now+latencyMbar)
	case ptx.ClassMbarWait:
		m.await(w, s.Event)
	case ptx.ClassWGMMA:
		m.multiply(q, w, x, s)
	case ptx.ClassBulk:
		m.bulk(w, s)
	}
}

// multiply occupies the tensor core of the warp's quarter with the warp's part of a wgmma, Hopper's matrix instruction.
func (m *machine) multiply(q *part, w *replayed, x *ptx.Meaning, s ptx.Step) {
	cycles := m.product(x.Columns, s.Wavefronts)
	q.units[unitTensor] = max(q.units[unitTensor], m.now) + cycles
	w.products.add(q.units[unitTensor] + latencyProduct)
	m.until, m.taken = q.units[unitTensor], min(float64(s.Wavefronts)/cycles, mostTaken)
}

// mostTaken is the largest share of the path to shared memory that a running wgmma takes from other
// instructions.
const mostTaken = 0.9

// bulk accounts for the bytes of a bulk copy, which go past the first-level cache.
func (m *machine) bulk(w *replayed, s ptx.Step) {
	m.path = max(m.path, m.now) + float64(s.Wavefronts)
	m.memory = max(m.memory, m.now) + float64(s.Sectors)*m.sector
	done := m.memory + m.far + latencyBulk
	if s.Event != 0 { // to shared memory
		m.happens(w.place, s.Event, done)
		return
	}
	w.bulks.add(done)
	w.reads.add(m.path + latencyBulk)
}
