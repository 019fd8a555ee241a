package silicon

import (
	"math"

	"mt/cudart/emu/ptx"
)

// replayed is a warp while it is replayed.
type replayed struct {
	place   *place
	steps   []ptx.Step
	next    int         // the first step that is not in the window
	writers [][]int32   // for each register, the steps that its value is made by
	done    []float64   // for each step, when its result is there
	window  []candidate // steps that have not been issued, in order
	closed  bool        // the window ends with a step that others may not pass
	wake    float64     // before this nothing can be issued
	waits   bool        // at a barrier
	groups  []float64   // when each closed group of copies has landed
	open    float64     // the same of the copies since
}

// candidate is a step in the window.
type candidate struct {
	step  int32
	order order
	needs []int32 // the steps that make its operands
}

// order is what may pass what.
type order uint8

const (
	free   order = iota
	loads        // may pass free steps and other loads
	stores       // may pass free steps only
	fence        // passes none and is passed by none
)

var orders = map[ptx.Class]order{
	ptx.ClassLdmatrix: loads, ptx.ClassLoadGlobal: loads, ptx.ClassLoadShared: loads, ptx.ClassLoadLocal: loads,
	ptx.ClassStoreGlobal: stores, ptx.ClassStoreShared: stores, ptx.ClassStoreLocal: stores, ptx.ClassAtomic: stores, ptx.ClassCopy: stores,
	ptx.ClassBranch: fence, ptx.ClassBarrier: fence, ptx.ClassCopyWait: fence, ptx.ClassWarpSync: fence, ptx.ClassFence: fence,
}

// begin starts the warp of a new block.
func (w *replayed) begin(at float64) {
	w.next, w.window, w.closed, w.waits, w.groups, w.open, w.wake = 0, w.window[:0], false, false, w.groups[:0], 0, at
	for i := range w.writers {
		w.writers[i] = w.writers[i][:0]
	}
	for i := range w.done {
		w.done[i] = math.Inf(1)
	}
}

// fill takes steps into the window.
func (m *machine) fill(w *replayed) {
	for len(w.window) < ahead && !w.closed && w.next < len(w.steps) {
		at := int32(w.next)
		x := &m.meanings[w.steps[at].At]
		w.next++
		var needs []int32
		if n := len(w.window); n < cap(w.window) { // what was there before left its memory
			needs = w.window[:n+1][n].needs[:0]
		}
		for _, r := range x.Reads {
			for _, by := range w.writers[r] {
				if w.done[by] > m.now {
					needs = append(needs, by)
				}
			}
		}
		if m.costs[x.Class].issue == 0 { // not an instruction of the GPU: its result is what it reads
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

// try issues a step of the warp if one can be issued, and else says when to look again.
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

// queued is how many cycles of work may wait before the path to memory.
const queued = 16

// ready is when a step can be issued; infinite where that depends on a step that is not.
func (m *machine) ready(q *part, w *replayed, c *candidate) float64 {
	x := &m.meanings[w.steps[c.step].At]
	k := &m.costs[x.Class]
	at := q.units[k.unit]
	if k.memory {
		at = max(at, m.path-queued)
	}
	for _, by := range c.needs {
		at = max(at, w.done[by])
	}
	if x.Class == ptx.ClassCopyWait && x.Groups >= 0 {
		for i := range len(w.groups) - x.Groups {
			at = max(at, w.groups[i])
		}
	}
	return at
}

// execute issues the i-th step of the window.
func (m *machine) execute(q *part, w *replayed, i int) {
	c := w.window[i]
	s := w.steps[c.step]
	x := &m.meanings[s.At]
	k := m.costs[x.Class]
	if s.Off {
		k = cost{issue: 1}
	}
	q.free = m.now + k.issue
	if k.unit != unitNone {
		q.units[k.unit] = m.now + k.cycles
	}
	w.done[c.step] = m.now + k.latency
	if k.memory {
		m.access(w, &c, s, x.Class, k.latency)
	}
	copy(w.window[i:], w.window[i+1:])
	last := len(w.window) - 1
	w.window[last] = candidate{needs: c.needs} // its memory is used again
	w.window = w.window[:last]
	w.wake = m.now + 1
	if c.order != fence {
		return
	}
	w.closed = false
	m.pass(w, x)
}

// access moves what a step reads or writes.
func (m *machine) access(w *replayed, c *candidate, s ptx.Step, class ptx.Class, latency float64) {
	wavefronts := int64(s.Wavefronts)
	m.path = max(m.path, m.now) + path(wavefronts, int64(s.Sectors), 1)
	done := m.path + latency
	moved := int64(s.Fresh)
	if class == ptx.ClassStoreGlobal || class == ptx.ClassAtomic { // they pass the first-level cache
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
		w.open = max(w.open, done)
	}
	w.done[c.step] = done
}

// pass does what a step does that others may not pass.
func (m *machine) pass(w *replayed, x *ptx.Meaning) {
	switch {
	case x.Class == ptx.ClassBranch:
		w.wake = m.now + latencyBranch
	case x.Class == ptx.ClassCopyWait && x.Groups < 0:
		w.groups = append(w.groups, w.open)
		w.open = 0
	case x.Class == ptx.ClassBarrier:
		w.waits, w.wake = true, math.Inf(1)
		w.place.arrived++
		m.release(w.place)
	}
}
