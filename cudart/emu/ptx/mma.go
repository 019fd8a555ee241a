package ptx

import (
	"math/bits"
	"strings"
)

// The operations (inst.op) of famMatrix, which executes matrix instructions of one warp.
const (
	opMMA16 op = iota // m16n8k16, bf16
	opMMA8            // m16n8k8, bf16
	opLdmatrix
)

// matrices holds the operands of one matrix product as whole matrices. mma spreads them over the
// registers of a warp's threads (fragments); here they are put together. The arrays sums and a are
// row-major, with two values in a word. The array b is row-major, and its rows are numbered by k.
type matrices struct {
	sums [64]uint64
	a    [128]uint64
	b    [16][8]float32
}

// mmaSync decodes mma.sync d, a, b, c for bf16 with f32 accumulators.
func (b *builder) mmaSync(in *inst) {
	in.fam = famMatrix
	na, nb := 4, 2
	switch strings.Join(b.st.words, ".") {
	case "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
		in.op = opMMA16
	case "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32":
		in.op, na, nb = opMMA8, 2, 1
	default:
		b.unknown()
	}
	b.count(4)
	var regs [14]int32 // d, c, a, b
	for i, n := range []int{4, na, nb, 4} {
		list := b.arg(i).list
		if !b.arg(i).vec {
			list = []operand{b.arg(i)}
		}
		if len(list) != n {
			b.fail("argument %d has %d registers, wants %d", i+1, len(list), n)
		}
		for j, o := range list {
			switch i {
			case 0:
				regs[j] = b.out(o, in32)
			case 1:
				regs[8+j] = b.in(o, "b32")
			case 2:
				regs[12+j] = b.in(o, "b32")
			case 3:
				regs[4+j] = b.in(o, "f32")
			}
		}
	}
	in.x = &extra{regs: regs[:]}
}

// ldmatrix decodes ldmatrix.sync.aligned.m8n8.x1|x2|x4[.trans].shared.b16.
func (b *builder) ldmatrix(in *inst) {
	m := b.modifiers()
	t := m.last()
	n := map[string]uint8{"x1": 1, "x2": 2, "x4": 4}[m.take("x1", "x2", "x4")]
	if !m.has("sync") || !m.has("aligned") || !m.has("m8n8") || t != "b16" || n == 0 {
		b.unknown()
	}
	if m.has("trans") {
		in.flags |= flagTrans
	}
	in.space = b.spaceWord(&m)
	b.done(m)
	b.count(2)
	in.fam, in.op, in.n = famMatrix, opLdmatrix, n
	to := b.arg(0)
	list := to.list
	if !to.vec {
		list = []operand{to}
	}
	if len(list) != int(n) {
		b.fail("%d registers where %d should be", len(list), n)
	}
	for i, o := range list {
		in.v[i] = b.out(o, in32)
	}
	b.address(in, b.arg(1))
}

// matrix executes an instruction of famMatrix (mma, ldmatrix). All threads of the warp must execute it.
func (w *warp) matrix(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	if mask != full {
		w.fail(in, bits.TrailingZeros32(^mask), "the thread does not take part, and all of the warp must (mask %#08x)", mask)
	}
	switch in.op {
	case opLdmatrix:
		w.loadMatrix(in)
	default:
		w.multiply(in)
	}
}

func (w *warp) loadMatrix(in *inst) {
	rows := full >> (32 - 8*uint32(in.n))
	lo, hi, or := w.offsets(in, rows)
	if or&15 != 0 {
		w.misaligned(in, rows, 16)
	}
	where, _, hi := w.spaceOf(in, lo, hi)
	if where != spaceShared {
		w.fail(in, 0, "ldmatrix of memory that is not shared")
	}
	w.sharedBounds(in, rows, hi, 16)
	w.block.readShared(w, in, rows, 16)
	p := start(w.block.shared)
	for j := range in.n {
		d, at := &w.r32[in.v[j&3]], w.addr[8*(j&3):][:8]
		for i := range d {
			if in.flags&flagTrans == 0 {
				d[i] = load32(p, at[i>>2]+uint64(i&3)*4)
			} else {
				k := i & 3 * 2
				d[i] = load16(p, at[k]+uint64(i>>2)*2) | load16(p, at[k+1]+uint64(i>>2)*2)<<16
			}
		}
	}
}

// multiply executes mma: d = a·b + c. Thread g·4 + t holds rows g and g + 8 of a and c, and column g of b, two values
// per register. Accumulators are f32; products are added in the order of k.
func (w *warp) multiply(in *inst) {
	r, m := in.x.regs[:14], &w.mma
	depth := 16
	if in.op == opMMA8 {
		depth = 8
	}
	for h := range depth / 8 { // k in steps of 8
		lo, hi, col := &w.r32[r[8+2*h]], &w.r32[r[9+2*h]], &w.r32[r[12+h]]
		left, right := m.a[4*h:], m.a[64+4*h:]
		for i := range lo {
			at := i>>2*8 + i&3
			left[at] = two(lo[i]<<16, lo[i]&0xffff0000)
			right[at] = two(hi[i]<<16, hi[i]&0xffff0000)
			k := (i&3*2 + 8*h) & 14
			m.b[k][i>>2] = f32(col[i] << 16)
			m.b[k+1][i>>2] = f32(col[i] & 0xffff0000)
		}
	}
	for h := range 2 { // rows 0 to 7, then 8 to 15
		c0, c1, s := &w.r32[r[4+2*h]], &w.r32[r[5+2*h]], (*lanes64)(m.sums[32*h:])
		for i := range c0 {
			s[i] = two(c0[i], c1[i])
		}
	}
	product(&m.sums, &m.a, &m.b, depth)
	for h := range 2 {
		d0, d1, s := &w.r32[r[2*h]], &w.r32[r[2*h+1]], (*lanes64)(m.sums[32*h:])
		for i := range d0 {
			d0[i], d1[i] = uint32(s[i]), uint32(s[i]>>32)
		}
	}
}
