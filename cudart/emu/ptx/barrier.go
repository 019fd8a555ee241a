package ptx

import "math/bits"

// barrier is the state of one of a block's sixteen barriers (PTX bar.sync and bar.arrive).
type barrier struct {
	want    int // threads that must arrive
	arrived int
	waiting uint32 // mask of the warps that wait
	joined  uint32 // mask of the warps that have arrived, waiting or not
	line    int32  // PTX line of the first arrival
}

// The operations (inst.op) of famBarrier, the family of barriers between the warps of a block.
const (
	opBarSync op = iota
	opBarArrive
	opBarWarp
)

// bar decodes bar.sync, bar.arrive, barrier.sync and bar.warp.sync.
func (b *builder) bar(in *inst) {
	m := b.modifiers()
	m.take("cta")
	warp := m.has("warp")
	kind := m.take("sync", "arrive")
	m.take("aligned")
	b.done(m)
	in.fam = famBarrier
	switch {
	case warp && kind == "sync":
		b.count(1)
		in.op, in.a = opBarWarp, b.in(b.arg(0), "b32")
		return
	case kind == "sync":
		in.op = opBarSync
	case kind == "arrive":
		in.op = opBarArrive
		b.count(2)
	default:
		b.unknown()
	}
	in.a, in.b = b.in(b.arg(0), "u32"), -1
	if len(b.st.args) > 1 {
		in.b = b.in(b.arg(1), "u32")
		b.count(2)
	}
}

// arrive executes a barrier instruction for the threads of mask. It returns true if the warp must
// wait for other warps.
func (w *warp) arrive(in *inst, mask uint32) bool {
	if mask == 0 {
		return false
	}
	if in.op == opBarWarp {
		w.members(in, mask, w.r32[in.a][bits.TrailingZeros32(mask)], "bar.warp.sync")
		return false
	}
	b := w.block
	if mask != w.live {
		w.fail(in, bits.TrailingZeros32(w.live&^mask), "%d of the warp's %d threads are not at this barrier, which the others have reached",
			bits.OnesCount32(w.live&^mask), bits.OnesCount32(w.live))
	}
	lane := bits.TrailingZeros32(mask)
	id := w.r32[in.a][lane]
	if id > 15 {
		w.fail(in, lane, "barrier %d: there are 16", id)
	}
	want := b.threads
	if in.b >= 0 {
		want = int(w.r32[in.b][lane])
		if want%32 != 0 || want == 0 {
			w.fail(in, lane, "a barrier for %d threads, which are not whole warps", want)
		}
	}
	bar := &b.bars[id]
	if bar.joined == 0 {
		bar.want, bar.line = want, in.line
	}
	if bar.want != want {
		w.fail(in, lane, "barrier %d is for %d threads here and for %d at line %d", id, want, bar.want, bar.line)
	}
	if bar.joined>>w.index&1 != 0 {
		w.fail(in, lane, "the warp arrives twice at barrier %d", id)
	}
	bar.joined |= 1 << w.index
	if b.count != nil {
		b.count.needed(w, event{-1 - int(id), b.count.bars[id]})
	}
	bar.arrived += bits.OnesCount32(mask)
	if in.b >= 0 {
		bar.arrived += 32 - bits.OnesCount32(mask) // threads are counted in whole warps
	}
	if in.op == opBarSync {
		bar.waiting |= 1 << w.index
		w.wait = bar
	}
	if bar.arrived >= bar.want {
		if b.count != nil {
			b.count.bars[id]++
		}
		b.release(bar)
		return false
	}
	return w.wait != nil
}

// release is called when all expected threads have arrived at a barrier: the warps that wait there
// continue. For the race checks, everything that a warp did before it arrived is then ordered
// before the next instruction of each waiting warp.
func (b *block) release(bar *barrier) {
	b.tick++
	whole := bar.joined == full>>(32-len(b.warps)) && bar.waiting == bar.joined
	if whole {
		b.full = b.tick
	}
	if !whole || b.proxy != nil {
		var room [clockProxy]uint32
		most := room[:len(b.seen[0])]
		for m := bar.joined; m != 0; m &= m - 1 {
			w := bits.TrailingZeros32(m)
			join(most, b.seen[w])
			most[w] = b.tick
		}
		for m := bar.waiting; m != 0; m &= m - 1 {
			join(b.seen[bits.TrailingZeros32(m)], most)
		}
	}
	if b.proxy != nil {
		b.proxy.news++
	}
	for m := bar.waiting; m != 0; m &= m - 1 {
		b.warps[bits.TrailingZeros32(m)].wait = nil
	}
	*bar = barrier{}
}

// stuck is called when every warp with threads that have not exited waits, so that none can
// continue. It fails the launch with an error that names the barriers.
func (b *block) stuck() {
	if b.proxy != nil {
		b.proxy.deadlock()
	}
	for _, w := range b.warps {
		if w.live == 0 || w.wait == nil {
			continue
		}
		in := &w.kernel.code[w.pc]
		w.fail(in, bits.TrailingZeros32(w.live), "the block is stuck: %d of %d threads have reached the barrier, the others have exited or wait elsewhere",
			w.wait.arrived, w.wait.want)
	}
}

// members checks the members operand of an instruction such as bar.warp.sync. The threads that
// execute the instruction (mask) must be exactly the members that have not exited; otherwise the
// launch fails. The error calls the instruction what.
func (w *warp) members(in *inst, mask, members uint32, what string) {
	missing := members & w.live &^ mask
	if missing != 0 {
		w.fail(in, bits.TrailingZeros32(missing), "%s waits for a thread that is not there (mask %#08x, present %#08x)", what, members, mask)
	}
	if extra := mask &^ members; extra != 0 {
		w.fail(in, bits.TrailingZeros32(extra), "%s executed by a thread that is not in its mask %#08x", what, members)
	}
}
