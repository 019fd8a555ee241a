package ptx

import (
	"math/bits"
	"slices"
)

// Counts are what blocks of a kernel did, in instructions of warps. They do not depend on the
// order in which blocks and warps run.
type Counts struct {
	Blocks int64
	Warps  int64
	By     [Classes]int64 // instructions that at least one thread executed
	Off    int64          // instructions that no thread executed, because of their guards
	Lanes  int64          // instructions of threads
	// Divergent are branches at which threads of one warp went different ways.
	Divergent int64
	// Fresh are the sectors that a block reads, each counted once for a block: what a first-level cache
	// without bounds would ask for.
	Fresh int64
	// Products are the multiplications of mma and wgmma, each with its addition; Grouped are those of wgmma.
	Products, Grouped int64

	Load, Store, Copied, Atomic Traffic // global memory; Copied is what cp.async reads
	BulkLoad, BulkStore         Traffic // what cp.async.bulk reads and writes there, past the first-level cache
	// ldmatrix is a load, cp.async a store. A wgmma reads its operands once for the warpgroup. Bulk copies move 128 bytes at a time.
	SharedLoad, SharedStore Banks
}

// Traffic is what warps asked of global memory.
type Traffic struct {
	Requests int64 // instructions of warps
	Bytes    int64 // that threads asked for
	Sectors  int64 // pieces of 32 bytes that these lie in, each once for a request
}

// Banks is what warps asked of shared memory, which has 32 banks of 4 bytes.
type Banks struct {
	Requests   int64
	Wavefronts int64 // cycles in which the banks answer
	// Conflicts are those of Wavefronts in which a bank is asked again, for another word. Without
	// them a warp takes one for 4 bytes a thread, two for 8 and four for 16.
	Conflicts int64
}

// fields are all the numbers of c.
func (c *Counts) fields() []*int64 {
	out := []*int64{&c.Blocks, &c.Warps, &c.Off, &c.Lanes, &c.Divergent, &c.Fresh, &c.Products, &c.Grouped}
	for i := range c.By {
		out = append(out, &c.By[i])
	}
	for _, t := range []*Traffic{&c.Load, &c.Store, &c.Copied, &c.Atomic, &c.BulkLoad, &c.BulkStore} {
		out = append(out, &t.Requests, &t.Bytes, &t.Sectors)
	}
	for _, b := range []*Banks{&c.SharedLoad, &c.SharedStore} {
		out = append(out, &b.Requests, &b.Wavefronts, &b.Conflicts)
	}
	return out
}

// Add adds what other blocks did, so many times.
func (c *Counts) Add(o *Counts, times int64) {
	of := o.fields()
	for i, f := range c.fields() {
		*f += times * *of[i]
	}
}

// Halve makes every number half of what it was, rounded down.
func (c *Counts) Halve() {
	for _, f := range c.fields() {
		*f /= 2
	}
}

// Issued is how many instructions warps issued.
func (c *Counts) Issued() int64 {
	n := c.Off
	for _, v := range c.By {
		n += v
	}
	return n
}

// Global is all traffic with global memory.
func (c *Counts) Global() Traffic {
	return total(c.Load, c.Store, c.Copied, c.Atomic, c.BulkLoad, c.BulkStore)
}

// Cached is the part of it that goes by way of the first-level cache.
func (c *Counts) Cached() Traffic { return total(c.Load, c.Store, c.Copied, c.Atomic) }

// Moved is how many sectors blocks exchange with the L2 cache, if a block reads nothing twice but by bulk copies.
func (c *Counts) Moved() int64 {
	return c.Fresh + c.Store.Sectors + c.Atomic.Sectors + c.BulkLoad.Sectors + c.BulkStore.Sectors
}

func total(all ...Traffic) (t Traffic) {
	for _, o := range all {
		t.Requests += o.Requests
		t.Bytes += o.Bytes
		t.Sectors += o.Sectors
	}
	return t
}

// Shared is all that was asked of shared memory.
func (c *Counts) Shared() Banks {
	l, s := c.SharedLoad, c.SharedStore
	return Banks{l.Requests + s.Requests, l.Wavefronts + s.Wavefronts, l.Conflicts + s.Conflicts}
}

// Count asks a launch to count, and holds what it counted.
type Count struct {
	// Traced are the numbers of the blocks whose instructions are kept one by one.
	Traced []uint32

	Sum    Counts
	Blocks map[uint32]*Counts // of each block, by its number x + X·(y + Y·z)
	Traces map[uint32]*Trace  // of the blocks of Traced that ran
}

// Trace is what the warps of a block did.
type Trace struct {
	Warps [][]Step
	// Events are the barriers that warps waited at and the phases of mbarriers, each with how many steps it takes to happen.
	Events []int32
}

// Step is one instruction of a warp.
type Step struct {
	At         int32  // its place in Kernel.Meanings
	Wavefronts uint16 // of shared memory
	Sectors    uint16 // of global memory
	Fresh      uint16 // those of them that the block reads for the first time
	Off        bool   // no thread executed it
	// Event is one of Trace.Events, counted from 1: the one that a bulk copy or an arrival is needed for, and that a wait
	// waits for. 0: none.
	Event int32
}

// counter counts the blocks that run on one goroutine.
type counter struct {
	meanings []Meaning
	traced   []uint32
	blocks   map[uint32]*Counts
	traces   map[uint32]*Trace

	now   *Counts           // of the block that runs
	trace *Trace            // of the same, or nil
	read  map[uint64]uint64 // the sectors that it has read: bit b of element a is sector 64a + b
	banks banks

	readAt, readBits uint64 // an element of read that is newer than what read has

	events map[event]int32 // of the trace
	bars   [16]uint32      // how often each barrier has let warps go
}

func newCounter(l *Launch) *counter {
	return &counter{meanings: l.Kernel.Meanings(), traced: l.Count.Traced, blocks: map[uint32]*Counts{}, traces: map[uint32]*Trace{},
		read: map[uint64]uint64{}, events: map[event]int32{}}
}

// begin starts to count a block.
func (c *counter) begin(at uint32, warps int) {
	c.now, c.trace = &Counts{Blocks: 1, Warps: int64(warps)}, nil
	c.blocks[at] = c.now
	clear(c.read)
	c.readBits = 0
	clear(c.events)
	c.bars = [16]uint32{}
	if slices.Contains(c.traced, at) {
		c.trace = &Trace{Warps: make([][]Step, warps)}
		c.traces[at] = c.trace
	}
}

// into adds what the counter has counted.
func (c *counter) into(to *Count) {
	if to.Blocks == nil {
		to.Blocks, to.Traces = map[uint32]*Counts{}, map[uint32]*Trace{}
	}
	for at, n := range c.blocks {
		to.Sum.Add(n, 1)
		to.Blocks[at] = n
	}
	for at, t := range c.traces {
		to.Traces[at] = t
	}
}

// note counts an instruction that is about to be executed by the threads of mask, of those of
// all that are at it.
func (c *counter) note(w *warp, pc int32, in *inst, mask, all uint32) {
	n, class := c.now, c.meanings[pc].Class
	s := Step{At: pc, Off: mask == 0 && class != ClassBranch}
	if s.Off {
		n.Off++
	} else {
		n.By[class]++
		n.Lanes += int64(bits.OnesCount32(mask))
		switch in.fam {
		case famLoad, famStore, famAtomic:
			c.access(w, in, mask, &s)
		case famCopy:
			if in.op == opCopyStart {
				c.copied(w, in, mask, &s)
			}
		case famMatrix:
			c.matrix(w, in, &s)
		case famGroup:
			if in.op == opProduct {
				c.product(w, in, &s)
			}
		case famControl:
			c.branch(w, in, mask, all)
		}
	}
	if c.trace != nil {
		c.trace.Warps[w.index] = append(c.trace.Warps[w.index], s)
	}
}

// branch counts a branch at which threads part.
func (c *counter) branch(w *warp, in *inst, mask, all uint32) {
	parts := mask != 0 && mask != all && in.op != opExit
	if in.op == opBrx {
		first := w.r32[in.a][bits.TrailingZeros32(mask|1<<31)]
		eachLane(mask, func(i int) { parts = parts || w.r32[in.a][i] != first })
	}
	if parts {
		c.now.Divergent++
	}
}

func (c *counter) matrix(w *warp, in *inst, s *Step) {
	switch in.op {
	case opMMA16:
		c.now.Products += 16 * 8 * 16
	case opMMA8:
		c.now.Products += 16 * 8 * 8
	case opLdmatrix:
		rows := full >> (32 - 8*uint32(in.n))
		w.offsets(in, rows)
		c.sharedBanks(&c.now.SharedLoad, &w.addr, rows, 16, s)
	}
}
