package ptx

import (
	"math/bits"
	"slices"
	"strings"
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

// event is what steps of a trace may wait for: a phase of an mbarrier, by its place in proxy.mbars, or one use of a barrier
// of the block.
type event struct {
	place int // of barriers -1 and below
	phase uint32
}

// last is the step that a warp executes; nil where the block is not traced.
func (c *counter) last(w *warp) *Step {
	if c == nil || c.trace == nil {
		return nil
	}
	steps := c.trace.Warps[w.index]
	return &steps[len(steps)-1]
}

// needed notes that an event happens after the step that the warp executes.
func (c *counter) needed(w *warp, e event) {
	s := c.last(w)
	if s == nil || s.Event != 0 { // other threads of the warp have arrived
		return
	}
	if c.events[e] == 0 {
		c.trace.Events = append(c.trace.Events, 0)
		c.events[e] = int32(len(c.trace.Events))
	}
	s.Event = c.events[e]
	c.trace.Events[s.Event-1]++
}

// awaited notes that the step which the warp executes has waited for an event. One that needed no step is none.
func (c *counter) awaited(w *warp, e event) {
	if s := c.last(w); s != nil {
		s.Event = c.events[e]
	}
}

// product counts a wgmma: of each warp what it multiplies, and for the warpgroup, with its first warp, what is read of shared memory.
// Pieces of operands lie so that banks do not conflict.
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

// bulk counts a bulk copy.
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

// access counts a load, a store or an atomic instruction. It looks at the addresses, since those
// of an instruction without a state space may be anywhere.
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

// copied counts a cp.async: what it reads, and where it writes.
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

// sectorBytes is the least that caches move.
const sectorBytes = 32

// globalTraffic counts a request of the threads of mask for so many bytes each. An access lies
// within one sector, as it is aligned and not longer than half of one. What a strong load reads is fresh each time, since other
// blocks may have written it.
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

// fresh notes that the block reads a sector, and says whether it does so for the first time.
func (c *counter) fresh(sector uint64) bool {
	if at := sector / 64; at != c.readAt {
		c.read[c.readAt] = c.readBits
		c.readAt, c.readBits = at, c.read[at]
	}
	was := c.readBits
	c.readBits |= 1 << (sector % 64)
	return c.readBits != was
}

// banks are the words that a part of a warp asks each bank for.
type banks struct {
	words [32][32]uint64
	n     [32]uint8
}

// sharedBanks counts a request for so many bytes of each thread of mask. All threads are answered at
// a time where they ask for 4 bytes or fewer, half a warp where they ask for 8, a quarter where they
// ask for 16. Threads that ask for the same word are answered together. Source: CUDA C
// Programming Guide, "Shared Memory"; its sections on compute capability 2.x and 3.x have the
// rule for wide accesses.
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

// turns is how often the bank that is asked for most words must answer. Only first words are looked at: as accesses
// are aligned and equally long, the others meet where these do.
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

// apart says whether every bank is asked once, where neighbours that ask for the same word count as one. Threads that
// share a word with one that is no neighbour make it false too.
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

// ask is for how many words the bank of a word has been asked, that word among them.
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

// Class is a kind of instruction, as far as the units of a multiprocessor tell instructions
// apart.
type Class uint8

const (
	ClassInteger    Class = iota // 32 bits and narrower: add, shift, logic, min and max
	ClassInteger64               // the same of 64 bits, which ptxas makes of 32-bit instructions
	ClassMultiply                // integer mul, mad
	ClassMultiply64              // mul.lo and mad.lo of 64 bits
	ClassBits                    // popc, clz
	ClassDivide                  // what ptxas expands: integer div and rem, div.rn, rcp.rn, sqrt.rn
	ClassFloat                   // fp32 add, mul, fma
	ClassDouble                  // fp64
	ClassSpecial                 // ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, approximately
	ClassConvert                 // between integers and floats, and to narrower floats one by one
	ClassPack                    // cvt of two floats to a pair
	ClassCompare                 // setp, selp, logic of predicates, min and max of floats
	ClassMove                    // mov, cvta, neg and abs of floats, cvt between integers: mostly no instruction of the GPU
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
	ClassLoadLocal // of a thread's own array, or of what was spilled
	ClassStoreLocal
	ClassAtomic
	ClassCopy       // cp.async that copies
	ClassCopyWait   // cp.async that closes a group or waits for one
	ClassBarrier    // of the block
	ClassWarpSync   // bar.warp.sync
	ClassFence      // membar, fence and other instructions that compute nothing
	ClassWGMMA      // wgmma.mma_async
	ClassWGMMAOrder // wgmma.fence, commit_group and wait_group
	ClassBulk       // cp.async.bulk that copies
	ClassBulkWait   // cp.async.bulk that closes a group or waits for one
	ClassMbar       // mbarriers: what does not wait
	ClassMbarWait   // mbarrier.try_wait and test_wait
	Classes         // how many there are
)

var classNames = [Classes]string{"integer", "integer64", "multiply", "multiply64", "bits", "divide", "float", "double", "special", "convert", "pack",
	"compare", "move", "parameter", "branch", "shuffle", "vote", "mma_m16n8k16", "mma_m16n8k8", "ldmatrix", "load_global", "store_global",
	"load_shared", "store_shared", "load_local", "store_local", "atomic", "copy", "copy_wait", "barrier", "warp_sync", "fence", "wgmma", "wgmma_order", "bulk_copy",
	"bulk_wait", "mbarrier", "mbarrier_wait"}

func (c Class) String() string { return classNames[c] }

// fixedClass are the classes that the mnemonic alone decides.
var fixedClass = map[string]Class{
	"selp": ClassCompare, "setp": ClassCompare,
	"cvta": ClassMove, "bra": ClassBranch, "brx": ClassBranch, "ret": ClassBranch, "exit": ClassBranch, "trap": ClassBranch,
	"shfl": ClassShuffle, "vote": ClassVote, "match": ClassVote, "redux": ClassVote,
	"ldmatrix": ClassLdmatrix, "atom": ClassAtomic, "red": ClassAtomic,
	"membar": ClassFence, "fence": ClassFence, "nanosleep": ClassFence, "setmaxnreg": ClassFence,
	"popc": ClassBits, "clz": ClassBits, "ex2": ClassSpecial, "lg2": ClassSpecial, "rsqrt": ClassSpecial,
}

// classOf is the class of an instruction, given its words. A load or store without a state
// space counts as one of global memory.
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

// bySpace picks the class of a load or a store.
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

// arithmeticClass is the class of an instruction that computes.
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

// Meaning is what a model of a GPU must know of an instruction, beside what it did when it ran.
type Meaning struct {
	Class Class
	// Reads and Writes are the registers, predicates among them, each a number of its own.
	Reads, Writes []int32
	// Groups, of ClassCopyWait, ClassBulkWait and ClassWGMMAOrder, is how many groups of copies or products may be under
	// way after it, Closes where it closes a group, Fences where it does neither.
	Groups int
	// ReadOnly is set where a ClassBulkWait waits only until shared memory has been read, Arrives where a ClassBarrier does not wait.
	ReadOnly, Arrives bool
	Columns           int // of a ClassWGMMA: N
	Line              int // of the PTX file
}

// Values of Meaning.Groups that are no numbers of groups.
const (
	Closes = -1
	Fences = -2
)

// Meanings has the meaning of every instruction of the kernel; Step.At is an index into it.
func (k *Kernel) Meanings() []Meaning {
	k.understand.Do(func() {
		k.meanings = make([]Meaning, len(k.code))
		for i := range k.statements {
			k.meanings[i] = k.statements[i].meaning()
		}
		last := len(k.code) - 1 // the exit that ends every kernel
		k.meanings[last] = Meaning{Class: ClassBranch, Line: int(k.code[last].line)}
	})
	return k.meanings
}

// meaning finds the registers by their places among the arguments: the first argument is
// written, unless the instruction has no result.
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
		n, _ := parseInteger(st.args[0].name) // decoding has seen that it is a number
		m.Groups, m.ReadOnly = int(n), wordIn(st.words, "read")
	case wordIn(st.words, "fence"):
		m.Groups = Fences
	}
	m.Reads = st.registers(m.Reads, operand{name: st.guard})
	for i, o := range st.args {
		if i == 0 && !o.mem && !slices.Contains(withoutResult, st.words[0]) {
			m.Writes = st.registers(m.Writes, o)
		}
		if i > 0 || len(m.Writes) == 0 || m.Class == ClassWGMMA { // sums are read too
			m.Reads = st.registers(m.Reads, o)
		}
	}
	return m
}

// withoutResult are the instructions that write no register.
var withoutResult = []string{"st", "red", "bra", "brx", "bar", "barrier", "cp", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu",
	"nanosleep", "discard", "griddepcontrol", "setmaxnreg"}

// registers appends the registers that an operand names.
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
