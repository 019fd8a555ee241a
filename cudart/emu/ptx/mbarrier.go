package ptx

import (
	"fmt"
	"math/bits"
	"strings"
)

// The operations (inst.op) of famMbar, which executes mbarrier instructions (barriers in shared
// memory) and setmaxnreg.
const (
	opMbarInit op = iota
	opMbarInval
	opMbarArrive
	opMbarExpect
	opMbarWait
	opRegisters // setmaxnreg
)

// Flags of famMbar.
const (
	flagExpect = 1 << iota // arrive.expect_tx: inst.c is the byte count
	flagCount              // arrive: inst.c is the arrival count
	flagParity             // the wait is for a parity; otherwise for a state
	flagMore               // setmaxnreg.inc
)

// mbarrier is a barrier in shared memory (PTX mbarrier). It goes through phases. A phase ends when count arrivals
// have been made and all bytes that the phase expects from bulk copies have arrived.
type mbarrier struct {
	offset  uint32
	live    bool
	count   int // arrivals per phase
	pending int // arrivals that the current phase still needs
	bytes   int // bytes that the current phase still waits for; negative: copies landed before expect_tx announced them
	phase   uint32
	maker   int    // the warp that executed mbarrier.init
	made    uint32 // tick of mbarrier.init
	shown   uint32 // tick of the fence that makes the mbarrier visible to bulk copies; 0: no fence yet
	line    int32

	last   *bulkCopy // the last copy that landed
	lastOf uint32    // phase in which it landed

	arrived []uint32 // merged clocks of all arrivals
	ended   []uint32 // merged clocks of the arrivals of completed phases
}

// maxMbarCount is the largest count of an mbarrier. Source: PTX ISA, "mbarrier contents".
const maxMbarCount = 1<<20 - 1

// mbar decodes the instructions mbarrier.*.
func (b *builder) mbar(in *inst) {
	m := b.modifiers()
	in.fam = famMbar
	kind := m.take("init", "inval", "arrive", "expect_tx", "try_wait", "test_wait")
	expect := kind == "arrive" && m.has("expect_tx")
	parity := m.has("parity")
	m.take("release", "acquire", "relaxed")
	m.take("cta", "cluster")
	in.space = spaceGeneric
	if m.take("shared", "shared::cta", "shared::cluster") != "" {
		in.space = spaceShared
	}
	if t := m.take("b64"); t == "" && kind != "expect_tx" {
		b.unknown()
	}
	b.done(m)
	b.kernel.async = true
	in.d = -1
	switch kind {
	case "init":
		b.count(2)
		in.op, in.c = opMbarInit, b.in(b.arg(1), "u32")
		b.address(in, b.arg(0))
	case "inval":
		b.count(1)
		in.op = opMbarInval
		b.address(in, b.arg(0))
	case "expect_tx":
		b.count(2)
		in.op, in.c = opMbarExpect, b.in(b.arg(1), "u32")
		b.address(in, b.arg(0))
	case "arrive":
		b.mbarArrive(in, expect)
	case "try_wait", "test_wait":
		b.mbarWait(in, parity)
	default:
		b.unknown()
	}
}

func (b *builder) mbarArrive(in *inst, expect bool) {
	if len(b.st.args) != 3 || expect {
		b.count(pick(expect, 3, 2))
	}
	in.op, in.d = opMbarArrive, b.out(b.arg(0), in64)
	b.address(in, b.arg(1))
	var flags uint8
	if len(b.st.args) == 3 {
		in.c = b.in(b.arg(2), "u32")
		flags = pick(expect, uint8(flagExpect), flagCount)
	}
	in.size = flags
}

func (b *builder) mbarWait(in *inst, parity bool) {
	if len(b.st.args) != 4 { // the optional last argument limits the waiting time
		b.count(3)
	}
	in.op, in.d = opMbarWait, b.out(b.arg(0), inPreds)
	b.address(in, b.arg(1))
	if parity {
		in.size, in.c = flagParity, b.in(b.arg(2), "u32")
	} else {
		in.c = b.in(b.arg(2), "b64")
	}
}

// fences decodes fence.proxy.async and fence.mbarrier_init. Other fences do nothing in the
// emulator, where stores are visible at once.
func (b *builder) fences(in *inst) {
	b.nothing(in)
	words := strings.Join(b.st.words[1:], ".")
	switch {
	case words == "mbarrier_init.release.cluster":
		in.op = opFenceMbar
	case words == "proxy.async" || words == "proxy.async.shared::cta" || words == "proxy.async.shared::cluster":
		in.op = opFenceProxy
	}
}

// mbarOffset returns the offset in shared memory of the mbarrier that instruction in names for thread lane.
func (w *warp) mbarOffset(in *inst, lane int) uint32 {
	var at uint64
	if in.flags&flagNarrow != 0 {
		at = uint64(w.r32[in.a][lane] + uint32(in.imm))
	} else {
		at = w.r64[in.a][lane] + uint64(in.imm)
	}
	if in.space == spaceGeneric && at>>56<<56 == sharedWindow {
		at -= sharedWindow
	}
	size := uint64(len(w.block.shared))
	if at >= size || at+8 > size {
		w.fail(in, lane, "an mbarrier at offset %d of the block's %d bytes of shared memory", at, size)
	}
	if at&7 != 0 {
		w.fail(in, lane, "an mbarrier at offset %d, which is not a multiple of 8", at)
	}
	return uint32(at)
}

// mbarAt returns the mbarrier at offset off and its index in p.mbars. It fails if the mbarrier is
// not initialized, or if no barrier orders its initialization by another warp before this warp's
// access.
func (p *proxy) mbarAt(w *warp, in *inst, lane int, off uint32) (*mbarrier, int) {
	i, ok := p.at[off]
	if !ok || !p.mbars[i].live {
		w.fail(in, lane, "there is no mbarrier at offset %d: mbarrier.init is missing", off)
	}
	m := p.mbars[i]
	if m.maker != w.index && !p.block.ordered(m.maker, m.made, w.index) {
		w.fail(in, lane, "the mbarrier at offset %d is used without a barrier after warp %d made it", off, m.maker)
	}
	return m, i
}

// mbarrier executes an instruction of famMbar for the threads of mask. It returns true if the warp
// has to wait, and then the instruction is executed again later.
func (w *warp) mbarrier(in *inst, mask uint32) bool {
	p := w.block.proxy
	if mask == 0 {
		return false
	}
	switch in.op {
	case opMbarWait:
		return w.mbarWait(in, mask)
	case opRegisters:
		return w.setRegisters(in, mask)
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.mbarOffset(in, lane)
		if in.op == opMbarInit {
			p.make(w, in, lane, off)
			continue
		}
		b, i := p.mbarAt(w, in, lane, off)
		switch in.op {
		case opMbarInval:
			p.idle(w, in, lane, i)
			b.live = false
			p.rows[off>>4].barrier &^= 1 << (off >> 3 & 1)
			p.forget(off)
		case opMbarExpect:
			b.expect(w, in, lane, int(w.r32[in.c][lane]))
		case opMbarArrive:
			w.mbarArrive(in, lane, b, i)
		}
	}
	return false
}

// make executes mbarrier.init for one thread: it creates the mbarrier at offset off.
func (p *proxy) make(w *warp, in *inst, lane int, off uint32) {
	count := int(w.r32[in.c][lane])
	if count < 1 || count > maxMbarCount {
		w.fail(in, lane, "an mbarrier for %d arrivals, of which there can be 1 to %d", count, maxMbarCount)
	}
	w.addr[lane] = uint64(off)
	i, known := p.at[off]
	if known && p.mbars[i].live {
		w.fail(in, lane, "the mbarrier at offset %d is made again, and is still there since line %d: mbarrier.inval is missing", off, p.mbars[i].line)
	}
	stored := w.stored
	p.block.writeShared(w, in, 1<<lane, 8) // checks like a store that nothing else accesses the bytes
	w.stored = stored
	if !known {
		if i = len(p.mbars); i == maxMbars {
			w.fail(in, lane, "more than %d mbarriers, which the emulator does not follow", maxMbars)
		}
		p.mbars, p.at[off] = append(p.mbars, &mbarrier{arrived: make([]uint32, clockProxy), ended: make([]uint32, clockProxy)}), i
	}
	m := p.mbars[i]
	phase := m.phase // phases count on, so that clock entries of earlier phases stay in the past
	if phase&1 != 0 {
		phase++
	}
	*m = mbarrier{offset: off, live: true, count: count, pending: count, phase: phase, maker: w.index, made: p.block.tick, line: in.line,
		arrived: m.arrived, ended: m.ended}
	for v := range p.block.seen {
		p.block.seen[v][clockMbars+i] = phase
	}
	clear(m.arrived)
	clear(m.ended)
	p.rows[off>>4].barrier |= 1 << (off >> 3 & 1)
}

// idle fails if a pending bulk copy will report its bytes to the mbarrier with index mbar. It is
// called before that mbarrier is initialized again or invalidated.
func (p *proxy) idle(w *warp, in *inst, lane, mbar int) {
	for _, c := range p.loads {
		if c.mbar == mbar {
			w.fail(in, lane, "the bulk copy of line %d to the mbarrier at offset %d is under way", c.in.line, p.mbars[mbar].offset)
		}
	}
}

// forget executes mbarrier.inval: the bytes of the mbarrier count as ordinary memory that no thread
// has written.
func (p *proxy) forget(off uint32) {
	p.block.cells[off>>2].info &^= 15
	p.block.cells[off>>2+1].info &^= 15
}

// publish is the effect of fence.mbarrier_init and fence.proxy.async on mbarriers: bulk copies may from now on use
// the mbarriers that this warp has initialized. It suffices that one thread of the warp executes the fence.
func (p *proxy) publish(w *warp, mask uint32) {
	if mask == 0 {
		return
	}
	p.block.tick++
	for _, m := range p.mbars {
		if m.live && m.maker == w.index && m.shown == 0 {
			m.shown = p.block.tick
		}
	}
}

// expect adds bytes to the number of bytes that the current phase waits for.
func (m *mbarrier) expect(w *warp, in *inst, lane, bytes int) {
	if m.bytes += bytes; m.bytes > maxMbarCount || bytes < 0 {
		w.fail(in, lane, "the mbarrier at offset %d expects %d bytes, at most %d", m.offset, m.bytes, maxMbarCount)
	}
}

func (w *warp) mbarArrive(in *inst, lane int, m *mbarrier, i int) {
	count := 1
	switch in.size {
	case flagExpect:
		m.expect(w, in, lane, int(w.r32[in.c][lane]))
	case flagCount:
		count = int(w.r32[in.c][lane])
	}
	w.r64[in.d][lane] = uint64(m.phase)
	if count < 1 || count > m.pending {
		w.fail(in, lane, "%d arrivals at the mbarrier at offset %d, whose phase %d waits for %d more of %d, and for %d bytes", count, m.offset, m.phase,
			m.pending, m.count, m.bytes)
	}
	m.pending -= count
	b := w.block
	b.count.needed(w, event{i, m.phase})
	b.proxy.news++
	join(m.arrived, b.seen[w.index])
	b.tick++
	m.arrived[w.index] = b.tick
	b.proxy.settle(i, func(format string, args ...any) { w.fail(in, lane, format, args...) })
}

// settle ends the current phase of mbarrier i if all arrivals and bytes have come. It calls fail if
// all arrivals have come and more bytes than expected.
func (p *proxy) settle(i int, fail func(format string, args ...any)) {
	m := p.mbars[i]
	if m.pending == 0 && m.bytes < 0 {
		fail("%d bytes more than expected have come to the mbarrier at offset %d, whose phase %d has all arrivals and so cannot end", -m.bytes, m.offset, m.phase)
	}
	if m.pending != 0 || m.bytes != 0 {
		return
	}
	for _, c := range p.loads {
		if c.mbar == i {
			fail("phase %d of the mbarrier at offset %d ends while the bulk copy of line %d to it is under way: its bytes were not expected", m.phase, m.offset, c.in.line)
		}
	}
	m.phase++
	m.pending = m.count
	copy(m.ended, m.arrived)
	m.ended[clockMbars+i] = m.phase
	p.news++
}

// mbarDone reports whether the phase for which the instruction in waits, in thread lane, is over.
func (w *warp) mbarDone(in *inst, lane int) bool {
	p := w.block.proxy
	m, i := p.mbarAt(w, in, lane, w.mbarOffset(in, lane))
	if in.size != flagParity {
		return uint64(m.phase) > w.r64[in.c][lane]
	}
	parity := w.r32[in.c][lane]
	if parity > 1 {
		w.fail(in, lane, "parity %d", parity)
	}
	known := w.block.seen[w.index][clockMbars+i]
	if parity == known&1 && m.phase >= known+2 {
		w.fail(in, lane, "the wait for phase %d of the mbarrier at offset %d comes too late: that phase and the next one are over, so its parity means another phase",
			known, m.offset)
	}
	return m.phase&1 != parity
}

// mbarWait executes try_wait and test_wait. It returns true if the warp must wait, because no
// thread's phase is over. Otherwise it sets each thread's result predicate. If no warp of the block
// can make progress, it may set false before the phase is over (giveUp), as PTX allows.
func (w *warp) mbarWait(in *inst, mask uint32) bool {
	done := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if lane := bits.TrailingZeros32(m) & 31; w.mbarDone(in, lane) {
			done |= 1 << lane
		}
	}
	if done == 0 && !w.giveUp {
		w.poll, w.polled = in, mask
		return true
	}
	w.poll, w.giveUp = nil, false
	for m := done; m != 0; m &= m - 1 {
		b, i := w.block.proxy.mbarAt(w, in, 0, w.mbarOffset(in, bits.TrailingZeros32(m)&31))
		join(w.block.seen[w.index], b.ended)
		w.block.count.awaited(w, event{i, b.phase - 1})
	}
	w.preds[in.d] = w.preds[in.d]&^mask | done
	return false
}

// ready reports whether a warp that waits for an mbarrier or for registers (setmaxnreg) can
// continue.
func (w *warp) ready() bool {
	if w.giveUp {
		return true
	}
	if w.poll.op == opRegisters {
		return w.registersFree(w.poll)
	}
	for m := w.polled; m != 0; m &= m - 1 {
		if w.mbarDone(w.poll, bits.TrailingZeros32(m)&31) {
			return true
		}
	}
	return false
}

// waitsFor describes, for an error message, the mbarrier or the registers for which this warp
// waits.
func (w *warp) waitsFor() string {
	p := w.block.proxy
	lane := bits.TrailingZeros32(w.polled) & 31
	if w.poll.op == opRegisters {
		return fmt.Sprintf("warp %d at line %d waits for %d registers a thread, of which the block has %d for all", w.index, w.poll.line, w.poll.imm, p.pool)
	}
	m, _ := p.mbarAt(w, w.poll, lane, w.mbarOffset(w.poll, lane))
	return fmt.Sprintf("warp %d at line %d waits for the mbarrier at offset %d (phase %d lacks %d of %d arrivals and %d bytes)", w.index, w.poll.line, m.offset,
		m.phase, m.pending, m.count, m.bytes)
}

// deadlock is called when no warp can continue. It fails the launch if one of them waits for an
// mbarrier or for registers.
func (p *proxy) deadlock() {
	var at *warp
	var all []string
	for _, w := range p.block.warps {
		switch {
		case w.live == 0:
		case w.poll != nil:
			at = pick(at == nil, w, at)
			all = append(all, w.waitsFor())
		case w.wait != nil:
			all = append(all, fmt.Sprintf("warp %d at line %d waits at a barrier that %d of %d threads have reached", w.index, w.kernel.code[w.pc].line,
				w.wait.arrived, w.wait.want))
		}
	}
	if at != nil {
		at.fail(at.poll, bits.TrailingZeros32(at.polled), "the block is stuck: %s", strings.Join(all, "; "))
	}
}
