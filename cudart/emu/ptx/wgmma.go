package ptx

import (
	"fmt"
	"math/bits"
	"strings"
)

// The operations (inst.op) of famGroup, which executes wgmma, matrix products of a warpgroup.
const (
	opProduct op = iota // wgmma.mma_async
	opProductFence
	opProductCommit
	opProductWait // waits for all groups except the imm newest
)

// Flags of wgmma.mma_async.
const (
	flagNegateA = 1 << iota
	flagNegateB
	flagAcrossA // A is MN-major: its rows are contiguous
	flagAcrossB
)

// products holds the pending wgmma.mma_async (asynchronous matrix products) of a warp. When the warp waits for a
// product, the emulator computes the warp's 16 of the 64 rows. Until then, no other instruction may touch the
// product's registers and operands.
type products struct {
	group   uint32 // number of the open group
	fenced  int64  // warp.steps at the last wgmma.fence; -1: none
	pending []asyncProduct
}

// asyncProduct is one pending wgmma.mma_async of a warp.
type asyncProduct struct {
	in    *inst
	group uint32
	add   bool     // add to the former sums (scale-d)
	rows  []uint32 // offsets in shared memory of the operands' 16-byte pieces: A, unless in registers, then B
}

// warpgroup records the wgmma instructions of four warps, to check that all four execute the same
// ones in the same order.
type warpgroup struct {
	steps []groupStep
	first int    // position of steps[0] among the warpgroup's wgmma instructions
	done  [4]int // number of instructions that each warp has executed
}

type groupStep struct {
	in   *inst
	a, b uint64
	add  bool
	warp int
}

// wgmma decodes wgmma.mma_async and the instructions that order it.
func (b *builder) wgmma(in *inst) {
	in.fam = famGroup
	b.kernel.async = true
	switch words := strings.Join(b.st.words[1:], "."); {
	case words == "fence.sync.aligned":
		b.count(0)
		in.op = opProductFence
	case words == "commit_group.sync.aligned":
		b.count(0)
		in.op = opProductCommit
	case words == "wait_group.sync.aligned":
		b.count(1)
		n, ok := parseInteger(b.arg(0).name)
		if !ok || n < 0 {
			b.fail("wait_group takes a number")
		}
		in.op, in.imm = opProductWait, n
	case strings.HasPrefix(words, "mma_async.sync.aligned.m64n") && strings.HasSuffix(words, "k16.f32.bf16.bf16"):
		n, ok := parseInteger(strings.TrimSuffix(strings.TrimPrefix(words, "mma_async.sync.aligned.m64n"), "k16.f32.bf16.bf16"))
		if !ok || n < 8 || n > 256 || n%8 != 0 {
			b.unknown()
		}
		b.product(in, int(n))
	default:
		b.unknown()
	}
}

// product decodes wgmma.mma_async d, a, b, scale-d, imm-scale-a, imm-scale-b[, imm-trans-a], imm-trans-b, with n
// columns. in.x.regs receives the accumulators and, if A is in registers, A's fragment.
func (b *builder) product(in *inst, n int) {
	in.op, in.imm, in.a, in.x = opProduct, int64(n), -1, &extra{}
	b.registerList(in, b.arg(0), n/2, true)
	at := 6
	if b.arg(1).vec {
		b.count(7)
		b.registerList(in, b.arg(1), 4, false)
	} else {
		b.count(8)
		in.a = b.in(b.arg(1), "b64")
		in.flags |= pick(b.bit(6), uint8(flagAcrossA), 0)
		at = 7
	}
	in.b, in.c = b.in(b.arg(2), "b64"), b.predIn(b.arg(3))
	in.flags |= pick(b.sign(4), uint8(flagNegateA), 0) | pick(b.sign(5), uint8(flagNegateB), 0) | pick(b.bit(at), uint8(flagAcrossB), 0)
}

func (b *builder) registerList(in *inst, o operand, n int, written bool) {
	if len(o.list) != n {
		b.fail("%d registers where %d should be", len(o.list), n)
	}
	for _, e := range o.list {
		if written {
			in.x.regs = append(in.x.regs, b.out(e, in32))
		} else {
			in.x.regs = append(in.x.regs, b.in(e, "b32"))
		}
	}
}

// bit reports whether argument i, which must be 0 or 1, is 1. sign reports whether argument i, which must be 1 or
// -1, is -1.
func (b *builder) bit(i int) bool  { return b.choice(i, 0, 1) }
func (b *builder) sign(i int) bool { return b.choice(i, 1, -1) }

func (b *builder) choice(i int, no, yes int64) bool {
	v, ok := parseInteger(b.arg(i).name)
	if !ok || v != no && v != yes {
		b.fail("argument %d is %d or %d", i+1, no, yes)
	}
	return v == yes
}

// groupwise executes an instruction of famGroup (wgmma) for the threads of mask.
func (w *warp) groupwise(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	w.wholeGroup(in, mask, "wgmma")
	q := &w.products
	step := groupStep{in: in, warp: w.index}
	switch in.op {
	case opProductFence:
		q.fenced = w.steps
	case opProductCommit:
		q.group++
	case opProductWait:
		w.finishProducts(int64(q.group) - in.imm)
	case opProduct:
		if in.a >= 0 {
			step.a = w.uniform(in, in.a)
		}
		step.b, step.add = w.uniform(in, in.b), w.preds[in.c] == full
		if p := w.preds[in.c]; p != 0 && p != full {
			w.fail(in, bits.TrailingZeros32(^p), "threads of the warp differ in scale-d")
		}
	}
	w.block.proxy.groups[w.index/4].same(w, step)
	if in.op == opProduct {
		w.startProduct(in, step)
	}
}

// wholeGroup fails unless all threads of the warp execute the instruction what and the warp belongs to a complete
// warpgroup of 128 threads.
func (w *warp) wholeGroup(in *inst, mask uint32, what string) {
	if mask != full {
		w.fail(in, bits.TrailingZeros32(^mask), "the thread does not take part in %s, and all of the warpgroup must (mask %#08x)", what, mask)
	}
	if n := w.block.threads - w.index/4*128; n < 128 {
		w.fail(in, 0, "%s by a warpgroup that has only %d threads", what, n)
	}
}

// uniform returns the value of a 64-bit register that must be the same in all threads of the warp. It fails
// otherwise.
func (w *warp) uniform(in *inst, reg int32) uint64 {
	r := &w.r64[reg]
	for i, v := range r {
		if v != r[0] {
			w.fail(in, i, "descriptor %#016x, and %#016x in thread 0 of the warp", v, r[0])
		}
	}
	return r[0]
}

// same records that warp w executes step s of its warpgroup. It fails if another warp of the warpgroup has executed
// a different instruction, or different operands, at the same position.
func (g *warpgroup) same(w *warp, s groupStep) {
	me := w.index % 4
	n := g.done[me]
	g.done[me]++
	if n-g.first == len(g.steps) {
		g.steps = append(g.steps, s)
		return
	}
	switch o := &g.steps[n-g.first]; {
	case o.in != s.in:
		w.fail(s.in, 0, "warp %d of the same warpgroup has executed the instruction of line %d in place of this one", o.warp, o.in.line)
	case o.a != s.a || o.b != s.b:
		w.fail(s.in, 0, "descriptors %#016x and %#016x, and warp %d of the same warpgroup has %#016x and %#016x", s.a, s.b, o.warp, o.a, o.b)
	case o.add != s.add:
		w.fail(s.in, 0, "scale-d differs from that of warp %d of the same warpgroup", o.warp)
	}
	if least := min(g.done[0], g.done[1], g.done[2], g.done[3]) - g.first; least >= 1024 {
		g.steps = append(g.steps[:0], g.steps[least:]...)
		g.first += least
	}
}

// endGroups checks, when a block ends, that all warps of a warpgroup have executed equally many wgmma instructions.
func (p *proxy) endGroups() {
	for i := range p.groups {
		g := &p.groups[i]
		for me, n := range g.done {
			if n-g.first < len(g.steps) {
				s := g.steps[n-g.first]
				p.block.warps[s.warp].fail(s.in, 0, "warp %d of the same warpgroup has ended without executing this", 4*i+me)
			}
		}
	}
}

// startProduct checks that a wgmma.mma_async may start, and adds it to the warp's pending products.
func (w *warp) startProduct(in *inst, s groupStep) {
	q := &w.products
	w.guardProduct(in)
	if len(q.pending) < cap(q.pending) {
		q.pending = q.pending[:len(q.pending)+1]
	} else {
		q.pending = append(q.pending, asyncProduct{})
	}
	r := &q.pending[len(q.pending)-1]
	r.in, r.group, r.add, r.rows = in, q.group, s.add, r.rows[:0]
	if in.a >= 0 {
		r.rows = w.operandPieces(in, r.rows, s.a, 64, in.flags&flagAcrossA != 0, "A")
	}
	r.rows = w.operandPieces(in, r.rows, s.b, uint32(in.imm), in.flags&flagAcrossB != 0, "B")
	for _, off := range r.rows {
		w.block.proxy.fetch(w, in, 0, off)
	}
}

func (w *warp) operandPieces(in *inst, to []uint32, d uint64, rows uint32, across bool, name string) []uint32 {
	t, err := tileOf(d)
	if err == nil {
		err = t.fits(rows, across)
	}
	if err != nil {
		w.fail(in, 0, "%s: %v", name, err)
	}
	first := len(to)
	to = t.pieces(to, rows, across)
	for _, off := range to[first:] {
		if int(off)+16 > len(w.block.shared) {
			w.fail(in, 0, "%s: descriptor %#016x reaches offset %d of the block's %d bytes of shared memory", name, d, off, len(w.block.shared))
		}
	}
	return to
}

// finishProducts computes the products of all groups with numbers below `before`, and removes them from the pending
// ones.
func (w *warp) finishProducts(before int64) {
	q := &w.products
	done := 0
	for done < len(q.pending) && int64(q.pending[done].group) < before {
		w.finishProduct(&q.pending[done])
		done++
	}
	if done == 0 {
		return
	}
	// Finished products move behind the pending ones. Later products then reuse the memory of their rows.
	n := len(q.pending) - done
	for i := range n {
		q.pending[i], q.pending[done+i] = q.pending[done+i], q.pending[i]
	}
	q.pending = q.pending[:n]
}

// finishProduct computes the warp's 16 rows of a product, eight columns at a time. For each element, products are
// added in the order of k. Fragments of D, and of A in registers, have the same layout as in mma.sync. Source: PTX
// ISA, "Register fragments and shared memory matrix layouts".
func (w *warp) finishProduct(q *asyncProduct) {
	in, m := q.in, &w.mma
	n := uint32(in.imm)
	b := q.rows
	if in.a >= 0 {
		w.sharedA(q)
		b = b[128:]
	} else {
		w.registersA(in)
	}
	for eight := range n / 8 {
		w.operandB(in, b, eight)
		sums := in.x.regs[4*eight:][:4]
		for h := range 2 {
			c0, c1, s := &w.r32[sums[2*h]], &w.r32[sums[2*h+1]], (*lanes64)(m.sums[32*h:])
			for i := range c0 {
				s[i] = two(c0[i], c1[i])
			}
		}
		if !q.add {
			clear(m.sums[:])
		}
		product(&m.sums, &m.a, &m.b, 16)
		for h := range 2 {
			d0, d1, s := &w.r32[sums[2*h]], &w.r32[sums[2*h+1]], (*lanes64)(m.sums[32*h:])
			for i := range d0 {
				d0[i], d1[i] = uint32(s[i]), uint32(s[i]>>32)
			}
		}
	}
	for _, off := range q.rows {
		w.block.proxy.fetchEnd(w, off)
	}
	w.releaseProduct(in)
}

// registersA puts the warp's 16 rows of A together in w.mma. The threads' registers hold them as
// fragments.
func (w *warp) registersA(in *inst) {
	r, m, sign := in.x.regs[in.imm/2:], &w.mma, signOf(in, flagNegateA)
	for j := range 4 { // rows 0 to 7 and 8 to 15 of columns 0 to 7, then of columns 8 to 15
		for i, v := range w.r32[r[j]] {
			m.a[64*(j&1)+i>>2*8+i&3+j>>1*4] = two(v<<16^sign, v&0xffff0000^sign)
		}
	}
}

// sharedA copies the warp's 16 rows of A from shared memory to w.mma.
func (w *warp) sharedA(q *asyncProduct) {
	in, m, p, sign := q.in, &w.mma, start(w.block.shared), signOf(q.in, flagNegateA)
	first := w.index % 4 * 16
	for row := range 16 {
		for pair := range 8 {
			var lo, hi uint32
			if in.flags&flagAcrossA == 0 {
				v := load32(p, uint64(q.rows[2*(first+row)+pair>>2])+uint64(pair&3*4))
				lo, hi = v<<16, v&0xffff0000
			} else {
				at, k := uint64((first+row)&7*2), 2*pair
				lo = load16(p, uint64(q.rows[8*k+(first+row)>>3])+at) << 16
				hi = load16(p, uint64(q.rows[8*(k+1)+(first+row)>>3])+at) << 16
			}
			m.a[8*row+pair] = two(lo^sign, hi^sign)
		}
	}
}

// operandB copies columns 8·eight to 8·eight+7 of B from shared memory to w.mma. rows are the shared-memory offsets
// of B's 16-byte pieces.
func (w *warp) operandB(in *inst, rows []uint32, eight uint32) {
	m, p, sign := &w.mma, start(w.block.shared), signOf(in, flagNegateB)
	if in.flags&flagAcrossB != 0 {
		for k := range uint32(16) {
			at := uint64(rows[k*uint32(in.imm/8)+eight])
			for n := range uint64(8) {
				m.b[k][n] = f32(load16(p, at+2*n)<<16 ^ sign)
			}
		}
		return
	}
	for n := range uint32(8) {
		for half := range uint32(2) {
			at := uint64(rows[2*(8*eight+n)+half])
			for k := range uint64(8) {
				m.b[8*uint64(half)+k][n] = f32(load16(p, at+2*k)<<16 ^ sign)
			}
		}
	}
}

// signOf returns the mask to xor into an operand of a product: the sign bit if flag says that the operand is
// negated, otherwise 0.
func signOf(in *inst, flag uint8) uint32 {
	return pick(in.flags&flag != 0, uint32(1)<<31, 0)
}

// operandTile says where a matrix lies in shared memory, in bytes. It is decoded from the 64-bit
// matrix descriptor of wgmma. Source: PTX ISA 8.0, "Matrix descriptor format"; layouts as in
// make_gmma_desc of CUTLASS (include/cute/atom/mma_traits_sm90_gmma.hpp).
type operandTile struct {
	start, leading, stride uint32
	base                   uint32 // row of the swizzle pattern at which the matrix starts
	width                  uint32 // row size of the swizzle pattern; 16: no swizzle
}

const descriptorBits = 0xc00e_3fff_3fff_3fff

// widths maps the swizzle mode, bits 62 and 63 of a descriptor, to the row size of its pattern in bytes; 16: no
// swizzle.
var widths = [4]uint32{16, 128, 64, 32}

// tileOf decodes d, a wgmma descriptor of a matrix in shared memory. It returns an error for an invalid one.
func tileOf(d uint64) (operandTile, error) {
	t := operandTile{uint32(d&0x3fff) << 4, uint32(d>>16&0x3fff) << 4, uint32(d>>32&0x3fff) << 4, uint32(d >> 49 & 7), widths[d>>62]}
	pattern := 8 * t.width
	switch {
	case d&^uint64(descriptorBits) != 0:
		return t, fmt.Errorf("descriptor %#016x has bits that mean nothing: a part of it overflowed", d)
	case t.width == 16 && t.base != 0:
		return t, fmt.Errorf("descriptor %#016x has a base offset and no swizzle", d)
	case t.width != 16 && t.base == 0 && t.start%pattern >= t.width:
		return t, fmt.Errorf("descriptor %#016x begins at offset %d, which is in row %d of the swizzle's pattern of %d bytes and not in its first", d, t.start,
			t.start%pattern/t.width, pattern)
	case t.base != 0 && t.start>>7&7 != t.base:
		return t, fmt.Errorf("descriptor %#016x has base offset %d and begins at offset %d, where it is %d", d, t.base, t.start, t.start>>7&7)
	}
	return t, nil
}

// fits returns an error if the strides of the matrix do not fit its swizzle. The matrix has 16
// columns (of K) and the given number of rows (of M or N). across says that the rows are contiguous
// in memory (MN-major).
func (t operandTile) fits(rows uint32, across bool) error {
	if t.width == 16 {
		return nil
	}
	check := func(what string, n uint32) error {
		if n%(8*t.width) != 0 {
			return fmt.Errorf("the %s byte offset of %d is no multiple of the swizzle's pattern of %d bytes", what, n, 8*t.width)
		}
		return nil
	}
	if across && 2*rows > t.width {
		if err := check("leading", t.leading); err != nil {
			return err
		}
	}
	if across || rows > 8 {
		return check("stride", t.stride)
	}
	return nil
}

// along returns, for a K-major matrix, the offset of the 16 bytes with columns 8·half to 8·half+7 of a row.
func (t operandTile) along(row, half uint32) uint32 {
	step := uint32(16)
	if t.width == 16 {
		step = t.leading
	}
	return t.swizzled(t.start + row%8*t.width + row/8*t.stride + half*step)
}

// across returns, for an MN-major matrix, the offset of the 16 bytes with rows 8·eight to 8·eight+7 of a column.
func (t operandTile) across(column, eight uint32) uint32 {
	if t.width == 16 {
		return t.start + column%8*16 + column/8*t.leading + eight*t.stride
	}
	n := t.width / 16
	return t.swizzled(t.start + eight%n*16 + eight/n*t.leading + column%8*t.width + column/8*t.stride)
}

// swizzled returns the offset at which the swizzle stores the 16 bytes of offset at. It xors the address bits from
// 4 on with the bits from 7 on, as many bits (0 to 3) as the swizzle mode has.
func (t operandTile) swizzled(at uint32) uint32 {
	return at ^ (at>>7-t.base)&(t.width/16-1)<<4
}

// pieces appends the offsets of all of the matrix's 16-byte pieces to to. They are in the order of along (by row,
// then half), or of across (by column, then eight).
func (t operandTile) pieces(to []uint32, rows uint32, across bool) []uint32 {
	if across {
		for column := range uint32(16) {
			for eight := range rows / 8 {
				to = append(to, t.across(column, eight))
			}
		}
		return to
	}
	for row := range rows {
		to = append(to, t.along(row, 0), t.along(row, 1))
	}
	return to
}
