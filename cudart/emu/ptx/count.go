package ptx

import (
	"math/bits"
	"slices"
	"strings"
)

// Counts says how much work some blocks of a kernel do. A warp instruction, executed by up to 32
// threads, counts once. The counts do not depend on the order in which blocks and warps run.
type Counts struct {
	Blocks int64
	Warps  int64
	By     [Classes]int64 // instructions that at least one thread executed
	Off    int64          // instructions that no thread executed because of their guards
	Lanes  int64          // instructions counted by thread: up to 32 for each warp instruction
	// Divergent is the number of branches at which threads of a warp went to different instructions.
	Divergent int64
	// Fresh is the number of distinct 32-byte sectors that each block reads, summed over blocks.
	// With an L1 cache of unlimited size, blocks would request this many from the L2 cache.
	Fresh int64
	// Products is the number of multiply-adds of mma and wgmma; Grouped is the number of wgmma
	// alone.
	Products, Grouped int64

	Load, Store, Copied, Atomic Traffic // global memory; Copied is the reads of cp.async
	BulkLoad, BulkStore         Traffic // global memory accessed by cp.async.bulk, which bypasses the L1 cache
	// Shared memory. ldmatrix counts as a load, cp.async as a store. A wgmma reads its operands once per warpgroup. A
	// bulk copy moves 128 bytes per wavefront.
	SharedLoad, SharedStore Banks
}

// Traffic is the accesses of warps to global memory.
type Traffic struct {
	Requests int64 // warp instructions that access global memory
	Bytes    int64 // bytes that threads request
	Sectors  int64 // 32-byte sectors that hold these bytes, each counted once per request
}

// Banks is the accesses of warps to shared memory, which has 32 banks of 4 bytes.
type Banks struct {
	Requests   int64
	Wavefronts int64 // cycles in which the banks are busy
	// Conflicts is the part of Wavefronts that bank conflicts cause. Without conflicts a warp needs one wavefront for
	// 4 bytes per thread, two for 8 bytes and four for 16.
	Conflicts int64
}

// fields returns pointers to all numbers of c, always in the same order.
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

// Add adds each number of o, multiplied by times, to the number of c.
func (c *Counts) Add(o *Counts, times int64) {
	of := o.fields()
	for i, f := range c.fields() {
		*f += times * *of[i]
	}
}

// Halve halves every number, rounding down.
func (c *Counts) Halve() {
	for _, f := range c.fields() {
		*f /= 2
	}
}

// Issued returns the number of instructions that warps issued, including those that no thread executed.
func (c *Counts) Issued() int64 {
	n := c.Off
	for _, v := range c.By {
		n += v
	}
	return n
}

// Global returns the sum of all traffic of global memory.
func (c *Counts) Global() Traffic {
	return total(c.Load, c.Store, c.Copied, c.Atomic, c.BulkLoad, c.BulkStore)
}

// Cached returns the global traffic that passes the L1 cache.
func (c *Counts) Cached() Traffic { return total(c.Load, c.Store, c.Copied, c.Atomic) }

// Moved returns the number of sectors that blocks exchange with the L2 cache. It assumes that the L1 cache serves
// repeated reads of a block, except reads of bulk copies.
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

// Shared returns the sum of loads from and stores to shared memory.
func (c *Counts) Shared() Banks {
	l, s := c.SharedLoad, c.SharedStore
	return Banks{l.Requests + s.Requests, l.Wavefronts + s.Wavefronts, l.Conflicts + s.Conflicts}
}

// Count makes a launch count its work (Launch.Count), and receives the results.
type Count struct {
	// Traced lists the numbers of the blocks whose instructions are recorded one by one.
	Traced []uint32

	Sum    Counts
	Blocks map[uint32]*Counts // per block, by block number x + X·(y + Y·z)
	Traces map[uint32]*Trace  // of the traced blocks that ran
}

// Trace lists the executed instructions of each warp of one block.
type Trace struct {
	Warps [][]Step
	// Events holds, for each barrier release and mbarrier phase, the number of steps that must complete before it.
	Events []int32
}

// Step is one executed warp instruction of a trace.
type Step struct {
	At         int32  // index into Kernel.Meanings
	Wavefronts uint16 // of shared memory
	Sectors    uint16 // of global memory
	Fresh      uint16 // sectors that the block reads for the first time
	Off        bool   // no thread executed the instruction
	// Event is the 1-based index into Trace.Events of the event that a bulk copy or arrival contributes to, or that a
	// wait waits for. 0: none.
	Event int32
}

// counter counts the work of the blocks that one goroutine runs.
type counter struct {
	meanings []Meaning
	traced   []uint32
	blocks   map[uint32]*Counts
	traces   map[uint32]*Trace

	now   *Counts           // counts of the current block
	trace *Trace            // trace of the current block; nil: not traced
	read  map[uint64]uint64 // sectors that the block has read: bit b of element a is sector 64a + b
	banks banks

	readAt, readBits uint64 // cached element of read; newer than the map's copy

	events map[event]int32 // index of each event of the trace
	bars   [16]uint32      // number of releases of each barrier
}

func newCounter(l *Launch) *counter {
	return &counter{meanings: l.Kernel.Meanings(), traced: l.Count.Traced, blocks: map[uint32]*Counts{}, traces: map[uint32]*Trace{},
		read: map[uint64]uint64{}, events: map[event]int32{}}
}

// begin starts counting the block with number `at`, which has the given number of warps.
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

// into adds the counter's results to those in to, after the goroutine has run its last block.
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

// note counts the instruction in, with index pc, before it executes. The threads of mask execute
// it. The set all also has the threads whose guard predicate is false.
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

// branch counts a branch if the threads of the warp go different ways there. The threads of mask
// take the branch. The set all also has the threads whose guard predicate is false.
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

// event is something that steps of a trace may wait for: the end of a phase of an mbarrier, or the n-th release of
// a barrier.
type event struct {
	place int // mbarriers: index into proxy.mbars; barriers: -1 and below
	phase uint32
}

// last returns the traced step of the instruction that warp w now executes; nil if the block is not traced.
func (c *counter) last(w *warp) *Step {
	if c == nil || c.trace == nil {
		return nil
	}
	steps := c.trace.Warps[w.index]
	return &steps[len(steps)-1]
}

// needed is called for a step, such as an arrival at a barrier, that must complete before the event
// e can happen. It records that in the trace.
func (c *counter) needed(w *warp, e event) {
	s := c.last(w)
	if s == nil || s.Event != 0 { // another thread of the warp has recorded it
		return
	}
	if c.events[e] == 0 {
		c.trace.Events = append(c.trace.Events, 0)
		c.events[e] = int32(len(c.trace.Events))
	}
	s.Event = c.events[e]
	c.trace.Events[s.Event-1]++
}

// awaited is called when the warp's current step has waited for event e, and records that in the
// trace. If no step contributes to the event, the step's Event is 0.
func (c *counter) awaited(w *warp, e event) {
	if s := c.last(w); s != nil {
		s.Event = c.events[e]
	}
}

// product counts a wgmma. Its multiply-adds count for each warp. Its reads of shared memory count once per
// warpgroup, with the first warp. The layout of operands causes no bank conflicts.
func (c *counter) product(w *warp, in *inst, s *Step) {
	c.now.Products += 16 * 16 * in.imm
	c.now.Grouped += 16 * 16 * in.imm
	n := 2 * 16 * in.imm
	if in.a >= 0 {
		n += 2 * 16 * 64
	}
	s.Wavefronts = uint16((n + 127) / 128)
	if w.index%4 == 0 {
		c.now.SharedLoad.Requests++
		c.now.SharedLoad.Wavefronts += int64(s.Wavefronts)
	}
}

// bulk counts the accesses of a bulk copy (cp.async.bulk) to global and shared memory.
func (c *counter) bulk(w *warp, b *bulkCopy) {
	if c == nil {
		return
	}
	global, shared := &c.now.BulkLoad, &c.now.SharedStore
	if b.in.op == opBulkStore {
		global, shared = &c.now.BulkStore, &c.now.SharedLoad
	}
	sectors, last := int64(0), ^uint64(0)
	for i := range b.pieces {
		q := &b.pieces[i]
		if q.from >= q.to {
			continue
		}
		global.Bytes += int64(q.to - q.from)
		if sector := (q.global + uint64(q.from)) / sectorBytes; sector != last {
			last = sector
			sectors++
		}
	}
	wavefronts := int64(b.bytes+127) / 128
	global.Requests++
	global.Sectors += sectors
	shared.Requests++
	shared.Wavefronts += wavefronts
	if s := c.last(w); s != nil {
		s.Sectors += uint16(sectors)
		s.Wavefronts += uint16(wavefronts)
	}
}

// access counts a load, store or atomic instruction. It inspects the addresses, because a generic instruction may
// address any space.
func (c *counter) access(w *warp, in *inst, mask uint32, s *Step) {
	if in.space == spaceParam || in.space == spaceLocal {
		return
	}
	w.offsets(in, mask)
	global, shared := mask, uint32(0)
	switch in.space {
	case spaceShared:
		global, shared = 0, mask
	case spaceGeneric:
		eachLane(mask, func(i int) {
			switch w.addr[i] >> 56 << 56 {
			case sharedWindow:
				global, shared = global&^(1<<i), shared|1<<i
			case localWindow:
				global &^= 1 << i
			}
		})
	}
	bytes := uint64(in.size) * uint64(in.n)
	if shared != 0 {
		to := &c.now.SharedLoad
		if in.fam != famLoad {
			to = &c.now.SharedStore
		}
		c.sharedBanks(to, &w.addr, shared, bytes, s)
	}
	if global != 0 {
		to := &c.now.Load
		switch in.fam {
		case famStore:
			to = &c.now.Store
		case famAtomic:
			to = &c.now.Atomic
		}
		c.globalTraffic(to, &w.addr, global, bytes, in.flags&flagStrong != 0, s)
	}
}

// copied counts the global reads and the shared writes of a cp.async.
func (c *counter) copied(w *warp, in *inst, mask uint32, s *Step) {
	w.offsets(in, mask)
	c.sharedBanks(&c.now.SharedStore, &w.addr, mask, uint64(in.size), s)
	from, n, reads := &w.r64[in.b], &w.r32[in.c], uint32(0)
	offset := uint64(int64(int32(in.imm32)))
	eachLane(mask, func(i int) {
		w.addr[i] = from[i] + offset
		if n[i] > 0 {
			reads |= 1 << i
		}
	})
	if reads != 0 {
		c.globalTraffic(&c.now.Copied, &w.addr, reads, uint64(in.size), false, s)
	}
}

// sectorBytes is the size of a sector, the smallest unit of memory that caches move.
const sectorBytes = 32

// globalTraffic counts one request to global memory: each thread of mask accesses bytes bytes at its address in
// addr. An access lies within one sector, because it is aligned and at most half a sector long. The sectors of a
// strong load always count as fresh, since other blocks may have written them.
func (c *counter) globalTraffic(to *Traffic, addr *lanes64, mask uint32, bytes uint64, strong bool, s *Step) {
	reads := to == &c.now.Load || to == &c.now.Copied
	var known [32]uint64
	n := 0
next:
	for m := mask; m != 0; m &= m - 1 {
		sector := addr[bits.TrailingZeros32(m)&31] / sectorBytes
		for i := n - 1; i >= 0; i-- {
			if known[i] == sector {
				continue next
			}
		}
		known[n] = sector
		n++
		if reads && (c.fresh(sector) || strong) {
			c.now.Fresh++
			s.Fresh++
		}
	}
	to.Requests++
	to.Bytes += int64(bits.OnesCount32(mask)) * int64(bytes)
	to.Sectors += int64(n)
	s.Sectors += uint16(n)
}

// fresh records that the block reads a sector. It returns true if the block has not read it before.
func (c *counter) fresh(sector uint64) bool {
	if at := sector / 64; at != c.readAt {
		c.read[c.readAt] = c.readBits
		c.readAt, c.readBits = at, c.read[at]
	}
	was := c.readBits
	c.readBits |= 1 << (sector % 64)
	return c.readBits != was
}

// banks collects, for each bank of shared memory, the distinct 4-byte words that a part of a warp requests. n is
// the number of words per bank.
type banks struct {
	words [32][32]uint64
	n     [32]uint8
}

// sharedBanks counts a request of the threads of mask to shared memory, for bytes bytes each. Up to 4 bytes per
// thread, one wavefront can serve the whole warp; for 8 bytes it serves half a warp, for 16 a quarter. Threads that
// request the same word share one access.
//
// Source: CUDA C Programming Guide, "Shared Memory"; its sections on compute capability 2.x and 3.x state the rule
// for wide accesses.
func (c *counter) sharedBanks(to *Banks, addr *lanes64, mask uint32, bytes uint64, s *Step) {
	width := 32
	if bytes > 4 {
		width = int(128 / bytes)
	}
	to.Requests++
	for first := 0; first < 32; first += width {
		part := mask >> first << first & (full >> (32 - width) << first)
		if part == 0 {
			continue
		}
		n := c.banks.turns(addr, part)
		to.Wavefronts += int64(n)
		to.Conflicts += int64(n - 1)
		s.Wavefronts += uint16(n)
	}
}

// turns returns how many wavefronts the requests of the threads of mask need: the largest number of
// distinct words requested from one bank. It examines only the first word of each thread, since
// accesses are aligned and equally long, so that further words conflict in the same way.
func (b *banks) turns(addr *lanes64, mask uint32) int {
	if b.apart(addr, mask) {
		return 1
	}
	most := 0
	b.n = [32]uint8{}
	for m := mask; m != 0; m &= m - 1 {
		most = max(most, b.ask(addr[bits.TrailingZeros32(m)&31]/4))
	}
	return most
}

// apart is a quick check for the usual case: it returns true if each bank is asked for at most one
// word. It recognizes equal words only if the threads are neighbours; for others it may return
// false although there is no conflict.
func (b *banks) apart(addr *lanes64, mask uint32) bool {
	asked, n, last := uint32(0), 0, ^uint64(0)
	if mask == full {
		for _, a := range addr {
			word := a / 4
			if word != last {
				n++
			}
			asked, last = asked|1<<(word%32), word
		}
		return bits.OnesCount32(asked) == n
	}
	for m := mask; m != 0; m &= m - 1 {
		word := addr[bits.TrailingZeros32(m)&31] / 4
		if word != last {
			n++
		}
		asked, last = asked|1<<(word%32), word
	}
	return bits.OnesCount32(asked) == n
}

// ask adds a word to the requests of its bank unless it is there already. It returns the number of distinct words
// now requested from the bank.
func (b *banks) ask(word uint64) int {
	bank := word % 32
	n := int(b.n[bank])
	for i := range n {
		if b.words[bank][i] == word {
			return n
		}
	}
	b.words[bank][n] = word
	b.n[bank]++
	return n + 1
}

// Class is a kind of instruction. Instructions of a class are executed by the same unit of a multiprocessor.
type Class uint8

const (
	ClassInteger    Class = iota // 32 bits and narrower: add, shift, logic, min and max
	ClassInteger64               // 64-bit variants of these, which ptxas expands to 32-bit instructions
	ClassMultiply                // integer mul, mad
	ClassMultiply64              // 64-bit mul.lo and mad.lo
	ClassBits                    // popc, clz
	ClassDivide                  // instructions that ptxas expands: integer div and rem, div.rn, rcp.rn, sqrt.rn
	ClassFloat                   // fp32 add, mul, fma
	ClassDouble                  // fp64
	ClassSpecial                 // approximate ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh
	ClassConvert                 // cvt between integers and floats, and of a float to a narrower float
	ClassPack                    // cvt of two floats to a packed pair
	ClassCompare                 // setp, selp, predicate logic, min and max of floats
	ClassMove                    // mov, cvta, neg and abs of floats, cvt between integers: mostly free on a GPU
	ClassParameter               // ld.param: an operand in the constant bank
	ClassBranch                  // bra, brx, exit
	ClassShuffle                 // shfl
	ClassVote                    // vote, match, redux
	ClassMMA16                   // mma.sync m16n8k16 of bf16 with fp32 sums
	ClassMMA8                    // mma.sync m16n8k8
	ClassLdmatrix                // ldmatrix
	ClassLoadGlobal
	ClassStoreGlobal
	ClassLoadShared
	ClassStoreShared
	ClassLoadLocal // of local arrays and spilled registers
	ClassStoreLocal
	ClassAtomic
	ClassCopy       // cp.async
	ClassCopyWait   // cp.async.commit_group and wait_group
	ClassBarrier    // barriers of the block
	ClassWarpSync   // bar.warp.sync
	ClassFence      // membar, fence and other instructions that compute nothing
	ClassWGMMA      // wgmma.mma_async
	ClassWGMMAOrder // wgmma.fence, commit_group and wait_group
	ClassBulk       // cp.async.bulk
	ClassBulkWait   // cp.async.bulk.commit_group and wait_group
	ClassMbar       // mbarrier instructions that do not wait
	ClassMbarWait   // mbarrier.try_wait and test_wait
	Classes         // number of classes
)

var classNames = [Classes]string{"integer", "integer64", "multiply", "multiply64", "bits", "divide", "float", "double", "special", "convert", "pack",
	"compare", "move", "parameter", "branch", "shuffle", "vote", "mma_m16n8k16", "mma_m16n8k8", "ldmatrix", "load_global", "store_global",
	"load_shared", "store_shared", "load_local", "store_local", "atomic", "copy", "copy_wait", "barrier", "warp_sync", "fence", "wgmma", "wgmma_order", "bulk_copy",
	"bulk_wait", "mbarrier", "mbarrier_wait"}

func (c Class) String() string { return classNames[c] }

// fixedClass maps mnemonics to classes, for instructions whose mnemonic alone decides the class.
var fixedClass = map[string]Class{
	"selp": ClassCompare, "setp": ClassCompare,
	"cvta": ClassMove, "bra": ClassBranch, "brx": ClassBranch, "ret": ClassBranch, "exit": ClassBranch, "trap": ClassBranch,
	"shfl": ClassShuffle, "vote": ClassVote, "match": ClassVote, "redux": ClassVote,
	"ldmatrix": ClassLdmatrix, "atom": ClassAtomic, "red": ClassAtomic,
	"membar": ClassFence, "fence": ClassFence, "nanosleep": ClassFence, "setmaxnreg": ClassFence,
	"popc": ClassBits, "clz": ClassBits, "ex2": ClassSpecial, "lg2": ClassSpecial, "rsqrt": ClassSpecial,
}

// classOf returns the class of an instruction from its words: the mnemonic and its modifiers. A load or store
// without a state space counts as global.
func classOf(words []string) Class {
	name, last := words[0], words[len(words)-1]
	has := func(word string) bool { return wordIn(words, word) }
	if last == "pred" && name != "vote" {
		return ClassCompare
	}
	if c, ok := fixedClass[name]; ok {
		return c
	}
	switch name {
	case "mov":
		return ClassMove
	case "cvt":
		return conversionClass(last, words[len(words)-2])
	case "ld":
		return bySpace(words, ClassLoadGlobal, ClassLoadShared, ClassLoadLocal)
	case "st":
		return bySpace(words, ClassStoreGlobal, ClassStoreShared, ClassStoreLocal)
	case "cp":
		if has("bulk") {
			return pick(has("commit_group") || has("wait_group"), ClassBulkWait, ClassBulk)
		}
		return pick(has("commit_group") || has("wait_group") || has("wait_all"), ClassCopyWait, ClassCopy)
	case "wgmma":
		return pick(has("mma_async"), ClassWGMMA, ClassWGMMAOrder)
	case "mbarrier":
		return pick(has("try_wait") || has("test_wait"), ClassMbarWait, ClassMbar)
	case "mma":
		return pick(has("m16n8k8"), ClassMMA8, ClassMMA16)
	case "bar", "barrier":
		return pick(has("warp"), ClassWarpSync, ClassBarrier)
	case "rem":
		return ClassDivide
	case "div", "rcp", "sqrt":
		return pick(has("approx") || has("full"), ClassSpecial, ClassDivide)
	}
	return arithmeticClass(name, last, has("wide"))
}

func wordIn(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// bySpace returns the class of a load or store: one of global, shared and local, or ClassParameter, according to
// its state space.
func bySpace(words []string, global, shared, local Class) Class {
	switch {
	case wordIn(words, "param"):
		return ClassParameter
	case wordIn(words, "shared") || wordIn(words, "shared::cta"):
		return shared
	case wordIn(words, "local"):
		return local
	}
	return global
}

func conversionClass(from, to string) Class {
	switch {
	case strings.HasSuffix(to, "x2"):
		return ClassPack
	case strings.Contains(from, "f") || strings.Contains(to, "f"):
		return ClassConvert
	}
	return ClassMove
}

// arithmeticClass returns the class of an arithmetic instruction.
func arithmeticClass(name, t string, wide bool) Class {
	multiplies := name == "mul" || name == "mad"
	switch {
	case t == "f64":
		return ClassDouble
	case strings.Contains(t, "f") && (name == "neg" || name == "abs"):
		return ClassMove
	case strings.Contains(t, "f"):
		return pick(name == "min" || name == "max", ClassCompare, ClassFloat)
	case multiplies && wide:
		return ClassMultiply
	case multiplies:
		return pick(typeBytes(t) == 8, ClassMultiply64, ClassMultiply)
	}
	return pick(typeBytes(t) == 8, ClassInteger64, ClassInteger)
}

// Meaning describes an instruction for a timing model, as far as it is known before the instruction
// runs.
type Meaning struct {
	Class Class
	// Reads and Writes are register numbers. Registers of all files, predicates too, have distinct numbers.
	Reads, Writes []int32
	// Groups depends on the class. For a wait_group (ClassCopyWait, ClassBulkWait, ClassWGMMAOrder) it is the number
	// of groups that may stay pending. Two instructions that do not wait have a negative constant instead of a number:
	// commit_group has the constant Closes, and wgmma.fence has the constant Fences.
	Groups int
	// ReadOnly: a ClassBulkWait waits only until shared memory has been read. Arrives: a ClassBarrier does not wait.
	ReadOnly, Arrives bool
	Columns           int // N of a ClassWGMMA
	Line              int // in the PTX file
}

// Values of Meaning.Groups for instructions that do not wait: Closes closes a group, Fences is a wgmma.fence.
const (
	Closes = -1
	Fences = -2
)

// Meanings returns the meaning of every instruction of the kernel, indexed by Step.At.
func (k *Kernel) Meanings() []Meaning {
	k.understand.Do(func() {
		k.meanings = make([]Meaning, len(k.code))
		for i := range k.statements {
			k.meanings[i] = k.statements[i].meaning()
		}
		last := len(k.code) - 1 // the implicit exit at the end of every kernel
		k.meanings[last] = Meaning{Class: ClassBranch, Line: int(k.code[last].line)}
	})
	return k.meanings
}

// meaning returns the statement's class and the registers that it reads and writes. The first argument is written,
// unless the instruction has no result; the others are read.
func (st *statement) meaning() Meaning {
	m := Meaning{Class: classOf(st.words), Line: st.line}
	switch {
	case m.Class == ClassWGMMA:
		m.Columns = 2 * len(st.args[0].list)
	case m.Class == ClassBarrier:
		m.Arrives = wordIn(st.words, "arrive")
	case m.Class != ClassCopyWait && m.Class != ClassBulkWait && m.Class != ClassWGMMAOrder:
	case wordIn(st.words, "commit_group"):
		m.Groups = Closes
	case wordIn(st.words, "wait_group"):
		n, _ := parseInteger(st.args[0].name) // decoding has checked that it is a number
		m.Groups, m.ReadOnly = int(n), wordIn(st.words, "read")
	case wordIn(st.words, "fence"):
		m.Groups = Fences
	}
	m.Reads = st.registers(m.Reads, operand{name: st.guard})
	for i, o := range st.args {
		if i == 0 && !o.mem && !slices.Contains(withoutResult, st.words[0]) {
			m.Writes = st.registers(m.Writes, o)
		}
		if i > 0 || len(m.Writes) == 0 || m.Class == ClassWGMMA { // accumulators are read too
			m.Reads = st.registers(m.Reads, o)
		}
	}
	return m
}

// withoutResult are the instructions that write no register.
var withoutResult = []string{"st", "red", "bra", "brx", "bar", "barrier", "cp", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu",
	"nanosleep", "discard", "griddepcontrol", "setmaxnreg"}

// registers appends the register numbers (see Meaning) of all registers in operand o to the list `to`.
func (st *statement) registers(to []int32, o operand) []int32 {
	for _, e := range o.list {
		to = st.registers(to, e)
	}
	for _, name := range []string{o.name, o.pair} {
		if r, ok := st.scope.reg(name); ok {
			to = append(to, 3*r.index+int32(r.file))
		}
	}
	return to
}
