package ptx

import (
	"fmt"
	"math/bits"
)

// proxy is the state of asynchronous work and mbarriers in a block. Only kernels with such instructions (sm_90a) have
// it. Loads and stores of threads use the generic proxy. wgmma and cp.async.bulk access shared memory through the
// asynchronous proxy. The order between the proxies is checked per row of 16 bytes, the smallest unit of asynchronous
// work:
//
//   - Asynchronous work may read or overwrite a thread's store if the thread has executed fence.proxy.async, and the
//     fence is ordered before the work.
//   - A warp may touch the destination of a copy if it knows that the phase of the copy's mbarrier is over: it has
//     waited, or is ordered after a warp that has.
//   - A warp may write the source of asynchronous work if some warp has waited for the work, and the wait is ordered
//     before the write.
//
// Source: PTX ISA 8.0, "Async proxy" and "Memory Consistency Model: Proxies".
type proxy struct {
	block   *block
	rows    []asyncRow
	read    []uint32 // [row][warp]: tick of the last read by either proxy
	fetched []uint32 // [row][warp]: tick of the last asynchronous read that has been waited for
	mbars   []*mbarrier
	at      map[uint32]int // offset in shared memory to index in mbars
	loads   []*bulkCopy    // pending copies to shared memory
	late    bool           // copies land only when no warp can make progress, instead of at random
	hash    uint64
	news    int // number of events so far after which another warp may continue
	expired int // value of news when waits last gave up early
	groups  []warpgroup
	pool    int // registers available to setmaxnreg.inc
}

// asyncRow is the history of asynchronous accesses to a row of 16 bytes of shared memory, for the checks.
type asyncRow struct {
	phase   uint32 // phase that ends with the copy that wrote the row
	owner   uint8  // index in proxy.mbars of this copy's mbarrier, plus one; 0: no copy wrote the row
	barrier uint8  // bit h: half h of the row is an mbarrier
	flights uint16 // pending asynchronous reads
}

// A clock says which accesses are ordered before a warp's next instruction (a vector clock). It is a slice of three
// parts. The first has a tick for each warp's accesses. From clockFences on, it has a tick for each warp's last
// fence.proxy.async. From clockMbars on, it has the number of completed phases of each mbarrier.
const (
	clockFences = 32
	clockMbars  = 64
	maxMbars    = 128
	clockProxy  = clockMbars + maxMbars
)

// newProxy returns the state that b needs for kernels with asynchronous work.
func newProxy(b *block) *proxy {
	return &proxy{block: b, at: map[uint32]int{}}
}

// begin resets the state for the next thread block. When the block's copies complete follows from
// seed.
func (p *proxy) begin(seed uint64) {
	b := p.block
	n := (len(b.shared) + 15) / 16
	if len(p.rows) < n {
		p.rows = make([]asyncRow, n)
	}
	if all := n * len(b.warps); len(p.read) < all {
		p.read, p.fetched = make([]uint32, all), make([]uint32, all)
	}
	clear(p.rows)
	clear(p.read)
	clear(p.fetched)
	clear(p.at)
	p.mbars, p.loads, p.news, p.expired = p.mbars[:0], p.loads[:0], 0, -1
	p.hash = mix(seed ^ 0x617379)
	p.late = p.hash&1 == 0
	p.groups = make([]warpgroup, (len(b.warps)+3)/4)
	p.pool = 0
	b.tick++ // the initial state is ordered before all warps
	b.full = b.tick
}

// join merges other into clock: the result orders everything that either of them orders.
func join(clock, other []uint32) {
	for i, v := range other {
		clock[i] = max(clock[i], v)
	}
}

// fenceProxy executes fence.proxy.async for the threads of mask. Stores are recorded per warp, not per thread. So
// the fence takes effect for the warp only when every thread that has stored since the last effective fence has
// executed one.
func (w *warp) fenceProxy(mask uint32) {
	b := w.block
	if b.proxy == nil || mask == 0 {
		return
	}
	b.proxy.publish(w, mask)
	if w.stored &^= mask; w.stored != 0 {
		return
	}
	b.tick++
	b.seen[w.index][clockFences+w.index] = b.tick
}

// visible reports whether a store that warp from made at tick is visible to asynchronous work of warp to. This
// requires that warp from has executed fence.proxy.async after the store, and that the fence is ordered before the
// next instruction of warp to.
func (p *proxy) visible(from int, tick uint32, to int) bool {
	return tick < p.block.seen[to][clockFences+from]
}

// over reports whether warp w knows that the bulk copy that wrote row r has completed. A warp knows
// by a wait of its own, or by a barrier after another warp's wait. If no copy wrote the row, the
// result is true.
func (p *proxy) over(r *asyncRow, w int) bool {
	return r.owner == 0 || p.block.seen[w][clockMbars+int(r.owner)-1] > r.phase
}

// copyOf describes, for errors, the copy that wrote a row.
func (p *proxy) copyOf(r *asyncRow) string {
	m := p.mbars[r.owner-1]
	return fmt.Sprintf("a bulk copy writes it, and phase %d of the mbarrier at offset %d was not waited for", r.phase, m.offset)
}

// readRows checks that loads of threads in mask from shared memory do not conflict with asynchronous work, and
// records the loads.
func (p *proxy) readRows(w *warp, in *inst, mask, bytes uint32) {
	warps := len(p.block.warps)
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane]
		r := &p.rows[off>>4]
		if !p.over(r, w.index) {
			w.fail(in, lane, "shared memory at offset %d is read while %s", off, p.copyOf(r))
		}
		if r.barrier != 0 && r.barrier&halves(off, bytes) != 0 {
			w.fail(in, lane, "shared memory at offset %d is read, which is an mbarrier", off)
		}
		p.read[int(off>>4)*warps+w.index] = p.block.tick
	}
}

// halves returns which 8-byte halves of a row an access at offset off touches: bit 0 for the first, bit 1 for the
// second. An access of less than 16 bytes touches only one half.
func halves(off uint64, bytes uint32) uint8 {
	if bytes == 16 {
		return 3
	}
	return 1 << (off >> 3 & 1)
}

// writeRows checks that stores of threads in mask to shared memory do not conflict with asynchronous work, and
// records the stores.
func (p *proxy) writeRows(w *warp, in *inst, mask, bytes uint32) {
	w.stored |= mask
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane]
		r := &p.rows[off>>4]
		switch {
		case !p.over(r, w.index):
			w.fail(in, lane, "shared memory at offset %d is written while %s", off, p.copyOf(r))
		case r.barrier != 0 && r.barrier&halves(off, bytes) != 0:
			w.fail(in, lane, "shared memory at offset %d is written, which is an mbarrier: mbarrier.inval is missing", off)
		case r.flights != 0:
			w.fail(in, lane, "shared memory at offset %d is written while %s", off, p.reader(uint32(off)))
		}
		p.fetchedBefore(w, in, lane, uint32(off))
	}
}

// fetchedBefore fails unless all completed asynchronous reads of the row at off are ordered before
// this warp's next instruction, which will write the row.
func (p *proxy) fetchedBefore(w *warp, in *inst, lane int, off uint32) {
	b := p.block
	n := len(b.warps)
	for v, tick := range p.fetched[int(off>>4)*n:][:n] {
		if tick >= b.full && v != w.index && !b.ordered(v, tick, w.index) {
			w.fail(in, lane, "shared memory at offset %d is written without a barrier after asynchronous work of warp %d read it", off, v)
		}
	}
}

// fetch is called when asynchronous work starts to read the row at off. It checks that the warp may
// start it, and counts the read as pending.
func (p *proxy) fetch(w *warp, in *inst, lane int, off uint32) {
	b, r := p.block, &p.rows[off>>4]
	if !p.over(r, w.index) {
		w.fail(in, lane, "shared memory at offset %d is read while %s", off, p.copyOf(r))
	}
	if r.barrier != 0 {
		w.fail(in, lane, "shared memory at offset %d is read, which is an mbarrier", off)
	}
	for i := range uint32(4) {
		c := &b.cells[off>>2+i]
		if c.write < b.began || c.info&15 != 15 {
			w.fail(in, lane, "shared memory at offset %d is read and nothing wrote it", off+4*i)
		}
		p.stored(w, in, lane, c, off+4*i, "read")
	}
	r.flights++
}

// stored fails unless the last store to a word is visible to asynchronous work of warp w.
// Visibility requires a fence.proxy.async after the store. The word's cell is c. done is the
// verb of the error: what the work does to the word, such as "written".
func (p *proxy) stored(w *warp, in *inst, lane int, c *cell, off uint32, done string) {
	b := p.block
	if c.write <= b.began { // written by a copy or never
		return
	}
	writer := int(c.info >> cellWarp & 31)
	switch {
	case c.info&cellPending != 0:
		w.fail(in, lane, "shared memory at offset %d is %s while a cp.async writes it", off, done)
	case p.visible(writer, c.write, w.index):
	case writer == w.index || b.ordered(writer, c.write, w.index):
		w.fail(in, lane, "shared memory at offset %d is %s asynchronously without a fence.proxy.async after warp %d wrote it", off, done, writer)
	default:
		w.fail(in, lane, "shared memory at offset %d is %s asynchronously without a barrier after warp %d wrote it", off, done, writer)
	}
}

// fetchEnd records that an asynchronous read of the row at off is complete and that the warp has waited for it.
func (p *proxy) fetchEnd(w *warp, off uint32) {
	at := int(off>>4)*len(p.block.warps) + w.index
	p.rows[off>>4].flights--
	p.read[at], p.fetched[at] = p.block.tick, p.block.tick
}

// claim checks that a bulk copy of warp w may write the row at off, and marks the row as written by
// the copy. The copy's mbarrier has the index owner, and its phase phase ends with the copy.
func (p *proxy) claim(w *warp, in *inst, lane int, off uint32, owner int, phase uint32) {
	b, r := p.block, &p.rows[off>>4]
	n := len(b.warps)
	switch {
	case !p.over(r, w.index):
		w.fail(in, lane, "shared memory at offset %d is written while %s", off, p.copyOf(r))
	case r.flights != 0:
		w.fail(in, lane, "shared memory at offset %d is written while %s", off, p.reader(off))
	case r.barrier != 0:
		w.fail(in, lane, "shared memory at offset %d is written, which is an mbarrier", off)
	}
	for v, tick := range p.read[int(off>>4)*n:][:n] {
		if tick >= b.full && v != w.index && !b.ordered(v, tick, w.index) {
			w.fail(in, lane, "shared memory at offset %d is written without a barrier after warp %d read it", off, v)
		}
	}
	for i := range uint32(4) {
		c := &b.cells[off>>2+i]
		if c.write >= b.began && c.info&15 != 0 {
			p.stored(w, in, lane, c, off+4*i, "written")
		}
	}
	*r = asyncRow{owner: uint8(owner + 1), phase: phase}
}

// landed marks the row at off as written by a completed bulk copy: all of its bytes then count as initialized.
func (p *proxy) landed(off uint32) {
	b := p.block
	for i := range uint32(4) {
		b.cells[off>>2+i] = cell{write: b.began, info: 15}
	}
	b.rows[off>>4] = row{}
}

// reader describes, for errors, the asynchronous work that reads a row.
func (p *proxy) reader(off uint32) string {
	for _, w := range p.block.warps {
		for i := range w.products.pending {
			q := &w.products.pending[i]
			for _, at := range q.rows {
				if at == off&^15 {
					return fmt.Sprintf("wgmma.mma_async at line %d reads it: wgmma.wait_group is missing", q.in.line)
				}
			}
		}
		for i := range w.bulk.pending {
			c := w.bulk.pending[i]
			for _, piece := range c.pieces {
				if !c.read && piece.shared == off&^15 {
					return fmt.Sprintf("a bulk copy at line %d reads it: cp.async.bulk.wait_group is missing", c.in.line)
				}
			}
		}
	}
	return "asynchronous work reads it"
}

// turn is called after a warp has run. Depending on the seed, it completes one pending bulk copy,
// or none.
func (p *proxy) turn() {
	if p.late || len(p.loads) == 0 {
		return
	}
	if p.hash = mix(p.hash); p.hash&1 != 0 {
		p.landOne()
	}
}

// unblock is called when no warp of the block can make progress. It completes a pending bulk copy. If there is
// none, it lets all waits for mbarriers return false early, at most once until something new happens. It returns
// false if it did neither: the block is deadlocked.
func (p *proxy) unblock() bool {
	if len(p.loads) > 0 {
		p.landOne()
		return true
	}
	if p.expired == p.news && p.block.launch.Period == 0 {
		return false
	}
	p.expired = p.news
	any := false
	for _, w := range p.block.warps {
		if w.poll != nil && w.poll.op == opMbarWait {
			w.giveUp, any = true, true
		}
	}
	return any
}

// landOne completes one of the pending bulk copies to shared memory, chosen by the seed.
func (p *proxy) landOne() {
	p.hash = mix(p.hash)
	i := int(p.hash >> 8 % uint64(len(p.loads)))
	c := p.loads[i]
	p.loads = append(p.loads[:i], p.loads[i+1:]...)
	c.land(p)
}

// end checks, when a thread block ends, that none of its asynchronous work is still pending.
func (p *proxy) end() {
	for _, w := range p.block.warps {
		for _, q := range w.products.pending {
			w.fail(q.in, 0, "the warp ends while this product is under way: wgmma.wait_group is missing")
		}
		for _, c := range w.bulk.pending {
			if !c.read {
				w.fail(c.in, c.lane, "the block ends while this copy reads its shared memory: cp.async.bulk.wait_group is missing")
			}
			c.write(w)
		}
		w.bulk.pending = w.bulk.pending[:0]
	}
	for len(p.loads) > 0 {
		p.landOne()
	}
	for i, m := range p.mbars {
		if c := m.last; c != nil && !p.waitedFor(i, m.lastOf) {
			c.warp.fail(c.in, c.lane, "the block ends and nothing waited for this copy")
		}
	}
	p.endGroups()
}

// waitedFor reports whether any warp of the block knows that a phase of an mbarrier is over.
func (p *proxy) waitedFor(mbar int, phase uint32) bool {
	for v := range p.block.warps {
		if p.block.seen[v][clockMbars+mbar] > phase {
			return true
		}
	}
	return false
}
