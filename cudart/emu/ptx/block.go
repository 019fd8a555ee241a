package ptx

import (
	"fmt"
	"math/bits"
)

// block executes thread blocks of a launch, one after the other, on one goroutine. Later launches
// of the kernel reuse its memory.
type block struct {
	kernel  *Kernel
	launch  *Launch
	shape   shape // dimensions of the launch that filled the special registers
	ctaid   [3]uint32
	threads int
	warps   []*warp // warps of the current launch
	spare   []*warp
	shared  []byte
	cells   []cell // access history of shared memory, by word
	rows    []row
	params  []byte
	slots   []slot
	touched []Access
	consts  Buffer
	global  *globalCheck
	count   *counter // nil: the launch is not counted
	proxy   *proxy   // nil: the kernel has no asynchronous work

	pages      map[pageOf]*page // access history of global memory, to find races between warps; nil: not checked
	sparePages []*page
	page       *page // page at pageAt
	pageAt     pageOf

	running     bool
	seed, round uint64 // seed of the order in which warps run, and number of the current round

	began uint32     // tick at which the block started
	full  uint32     // tick after the last barrier that all warps of the block joined
	tick  uint32     // current tick
	seen  [][]uint32 // [warp][other]: accesses of warp other before this tick are ordered before warp's next instruction; with a proxy, longer, see clockFences
	bars  [16]barrier
}

// shape holds the dimensions of a launch. The values of special registers such as %tid follow from
// them, and need not be computed again if the next launch has the same shape.
type shape struct {
	grid, block [3]uint32
	shared      int
}

// prepare sets b up for launch l, with memory and warps for one thread block.
func (b *block) prepare(l *Launch) {
	k := l.Kernel
	b.kernel, b.launch, b.params, b.touched = k, l, l.Params, nil
	b.threads = int(l.Block[0]) * int(l.Block[1]) * int(l.Block[2])
	if k.async && b.proxy == nil {
		b.proxy = newProxy(b)
	}
	if b.slots == nil {
		b.slots = make([]slot, k.slots)
	}
	for i := range b.slots {
		b.slots[i].reset()
	}
	b.consts = Buffer{Base: constWindow, Data: k.module.consts, Name: "the module's constants"}
	size := k.StaticShared
	if l.Shared > 0 {
		size = k.dynamic + l.Shared
	}
	if words := (size + 3) / 4; words > len(b.cells) {
		b.cells, b.rows = make([]cell, words), make([]row, (words+3)/4)
		b.shared = make([]byte, 4*words, 4*words+16)
	}
	b.shared = b.shared[:cap(b.shared)][:size]
	for len(b.spare) < (b.threads+31)/32 {
		b.spare = append(b.spare, b.newWarp(len(b.spare)))
	}
	b.warps = b.spare[:(b.threads+31)/32]
	for len(b.seen) < len(b.warps) {
		b.seen = append(b.seen, make([]uint32, pick(k.async, clockProxy, 32)))
	}
	if b.tick > 1<<31 {
		b.sparePages = nil
		clear(b.cells)
		clear(b.rows)
		b.tick = 0
	}
	if s := (shape{l.Grid, l.Block, l.Shared}); b.shape != s {
		b.shape = s
		for _, w := range b.warps {
			w.fillSpecials(l)
		}
	}
}

func (b *block) newWarp(index int) *warp {
	k := b.kernel
	w := &warp{block: b, kernel: k, index: index}
	w.r32, w.r64 = make([]lanes32, max(k.regs32, 1)), make([]lanes64, max(k.regs64, 1))
	w.preds = make([]uint32, max(k.preds, 1))
	for _, c := range k.consts32 {
		for i := range 32 {
			w.r32[c.reg][i] = c.value
		}
	}
	for _, c := range k.consts64 {
		for i := range 32 {
			w.r64[c.reg][i] = c.value
		}
	}
	for _, p := range k.always {
		w.preds[p] = full
	}
	w.local = make([]byte, 32*k.local)
	w.guards = make([]guardedRegister, len(k.guardNames))
	return w
}

// begin sets b up for the next thread block of the launch j. If no block is left, it sets b.running
// to false.
func (b *block) begin(j *job) {
	at, seed, ok := j.number()
	if b.running = ok; !ok {
		return
	}
	b.seed, b.round = seed, 0
	g := b.launch.Grid
	b.ctaid = [3]uint32{at % g[0], at / g[0] % g[1], at / g[0] / g[1]}
	if b.count != nil {
		b.count.begin(at, len(b.warps))
	}
	b.tick++
	b.began, b.full = b.tick, b.tick
	for i := range b.bars {
		b.bars[i] = barrier{}
	}
	for i, w := range b.warps {
		w.fillBlock()
		mask := full
		if rest := b.threads - 32*i; rest < 32 {
			mask = full >> (32 - rest)
		}
		w.start(mask)
		clear(b.seen[i])
	}
	if b.proxy != nil {
		b.proxy.begin(seed)
	}
}

// turn runs each warp once, in an order that follows from the seed. A warp runs until it waits or
// ends, until its time slice is over, or until it has read memory that another block may write.
// When all warps have ended, turn returns false.
func (b *block) turn() bool {
	n := uint64(len(b.warps))
	from, step := permutation(n, mix(b.seed+b.round))
	b.round++
	left, ran := 0, false
	for i := range n {
		w := b.warps[(from+i*step)%n]
		if w.live == 0 {
			continue
		}
		left++
		if w.wait != nil || w.poll != nil && !w.ready() {
			continue
		}
		ran = true
		if w.run() == stateDone {
			w.live = 0
			left--
		}
		if b.proxy != nil {
			b.proxy.turn()
		}
	}
	if left == 0 {
		if b.proxy != nil {
			b.proxy.end()
		}
		return false
	}
	if !ran && (b.proxy == nil || !b.proxy.unblock()) {
		b.stuck()
	}
	return true
}

// fail ends the launch with an error about instruction in, executed by thread lane of the warp. It panics;
// Launch.Run recovers the panic.
func (w *warp) fail(in *inst, lane int, format string, args ...any) {
	panic(&Error{Kernel: w.kernel.Name, File: w.kernel.file, Line: int(in.line), Block: w.block.ctaid, Thread: w.block.thread(32*w.index + lane),
		What: fmt.Sprintf(format, args...)})
}

// thread returns the (x, y, z) index of the n-th thread of the block.
func (b *block) thread(n int) [3]uint32 {
	d, i := b.launch.Block, uint32(n)
	return [3]uint32{i % d[0], i / d[0] % d[1], i / d[0] / d[1]}
}

// Error describes an incorrect access or instruction of a kernel, and where it happened.
type Error struct {
	Kernel, File  string
	Line          int // in the PTX file
	Block, Thread [3]uint32
	What          string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %s, block %d,%d,%d, thread %d,%d,%d: %s", e.File, e.Line, e.Kernel, e.Block[0], e.Block[1], e.Block[2],
		e.Thread[0], e.Thread[1], e.Thread[2], e.What)
}

// find returns the buffer that holds an address; nil if there is none.
func (b *block) find(addr uint64) *Buffer {
	if addr >= constWindow {
		return &b.consts
	}
	if b.launch.Memory == nil {
		return nil
	}
	return b.launch.Memory.Find(addr)
}

// near describes, for an error message, an address that lies in no buffer: a null pointer, or how
// far after the end of a buffer. It returns "" if no buffer ends shortly before the address.
func (b *block) near(addr uint64) string {
	if addr < 1<<16 {
		return ": a null pointer"
	}
	for back := uint64(1); back <= 1<<16; back <<= 4 {
		if f := b.find(addr - back); f != nil && addr >= f.Base {
			return fmt.Sprintf(", %d bytes after the end of %s, which has %d", addr-f.Base-uint64(len(f.Data)), f.Name, len(f.Data))
		}
	}
	return ""
}

// keep adds the accesses that a slot has recorded to the block's list, and resets the slot. A slot
// records the range of one buffer that a memory instruction has accessed.
func (b *block) keep(s *slot) {
	if s.buffer != nil && s.buffer != &b.consts {
		b.touched = merge(b.touched, s.access())
	}
	s.reset()
}

func (s *slot) access() Access {
	a := Access{Buffer: s.buffer}
	if s.readFrom < s.readTo {
		a.ReadFrom, a.ReadTo = int64(s.readFrom), int64(s.readTo)
	}
	if s.writeFrom < s.writeTo {
		a.WriteFrom, a.WriteTo = int64(s.writeFrom), int64(s.writeTo)
	}
	return a
}

// merge joins access a to the entry of its buffer in list, or appends it. list has one entry per buffer.
func merge(list []Access, a Access) []Access {
	for i := range list {
		l := &list[i]
		if l.Buffer == a.Buffer {
			l.Join(a)
			return list
		}
	}
	return append(list, a)
}

// mix returns a hash of x: the last step of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// permutation returns numbers from and step such that (from + i·step) mod n visits each of n items
// once, in a pseudo-random order. hash selects the order.
func permutation(n, hash uint64) (from, step uint64) {
	from, step = hash%n, hash>>bits.Len64(n)%n
	for gcd(max(step, 1), n) != 1 {
		step++
	}
	return from, max(step, 1)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
