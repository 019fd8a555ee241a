package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// strip generates a loop over rows of attention scores under a causal mask. The first row attends to n columns, and
// each further row to one more; the number is clamped to 0 … most. The other columns, up to width, are filled with
// zeros.
type strip struct {
	isa
	most, width reg.GPVirtual
}

func (v isa) newStrip() *strip {
	return &strip{isa: v, most: Arg("most"), width: Arg("width")}
}

// rows generates the loop over the rows. body generates the work for one row, given the number of columns that it
// attends to, and step the change of pointers to the next row.
func (s *strip) rows(label string, body func(seen reg.GPVirtual), step func()) {
	left, n, none := Arg("rows"), Arg("n"), GP64()
	XORQ(none, none)
	Label(label)
	seen := GP64()
	MOVQ(n, seen)
	TESTQ(seen, seen)
	CMOVQLT(none, seen)
	CMPQ(seen, s.most)
	CMOVQGT(s.most, seen)
	body(seen)
	step()
	INCQ(n)
	DECQ(left)
	JNE(LabelRef(label))
}

// over generates a loop over the n ≥ 0 columns of one row. body is called with the byte offset of a register of
// columns, and at the end with a mask for the rest. Afterwards offset is the end of the last whole register.
func (s *strip) over(label string, n, offset reg.GPVirtual, body func(at reg.GPVirtual, mask reg.Register)) {
	left := GP64()
	MOVQ(n, left)
	XORQ(offset, offset)
	Label(label)
	CMPQ(left, U32(uint32(s.Lanes)))
	JL(LabelRef(label + "Tail"))
	body(offset, nil)
	ADDQ(U32(uint32(s.Bytes())), offset)
	SUBQ(U32(uint32(s.Lanes)), left)
	JMP(LabelRef(label))
	Label(label + "Tail")
	TESTQ(left, left)
	JE(LabelRef(label + "Done"))
	body(offset, s.tailMask(left))
	ADDQ(U32(uint32(s.Bytes())), offset)
	Label(label + "Done")
}

// blank generates the filling of rows with zeros, from the byte offset on up to width columns. It
// writes whole registers, so up to one register beyond.
func (s *strip) blank(label string, offset reg.GPVirtual, zero reg.Register, rows ...reg.GPVirtual) {
	end := GP64()
	MOVQ(s.width, end)
	SHLQ(Imm(2), end)
	Label(label)
	CMPQ(offset, end)
	JGE(LabelRef(label + "Done"))
	for _, p := range rows {
		VMOVUPS(zero, Mem{Base: p, Index: offset, Scale: 1})
	}
	ADDQ(U32(uint32(s.Bytes())), offset)
	JMP(LabelRef(label))
	Label(label + "Done")
}

// softmaxStrip generates SoftmaxStrip of package vec, which turns scores into exponentials. It first computes the
// largest scores of all rows, so that no exponential has to wait for one. Constants stay in registers from row to row.
func softmaxStrip(v isa) {
	v.Begin("softmaxStrip", "func(x *float32, stride, rows, n, most, width int, factor float32, top, sum *float32)",
		"does a strip: see SoftmaxStrip.")
	s := v.newStrip()
	factor, stride := v.broadcast("factor"), Arg("stride")
	lowest, zero := v.Reg(), v.Zero()
	VMOVUPS(v.constant(float32(math.Inf(-1))), lowest)
	x, top := Arg("x"), Arg("top")
	s.rows("maxima", func(seen reg.GPVirtual) {
		m := v.Reg()
		VMOVAPS(lowest, m)
		s.over("max", seen, GP64(), func(o reg.GPVirtual, mask reg.Register) {
			y := v.load(Mem{Base: x, Index: o, Scale: 1}, mask)
			v.fill(y, lowest, mask)
			VMAXPS(y, m, m)
		})
		m = v.fold(m, VMAXPS)
		VMULSS(m.AsX(), factor.AsX(), m.AsX())
		VMAXSS(At(top, 0), m.AsX(), m.AsX())
		VMOVSS(m.AsX(), At(top, 0))
	}, func() {
		ADDQ(stride, x)
		ADDQ(Imm(4), top)
	})
	e := v.newExp2()
	x, top = Arg("x"), Arg("top")
	sums := Arg("sum")
	s.rows("exponentials", func(seen reg.GPVirtual) {
		shift, sum, offset := v.Reg(), v.Reg(), GP64()
		VBROADCASTSS(At(top, 0), shift)
		VMOVAPS(zero, sum)
		s.over("exp", seen, offset, func(o reg.GPVirtual, mask reg.Register) {
			y := v.load(Mem{Base: x, Index: o, Scale: 1}, mask)
			VFMSUB213PS(shift, factor, y)
			e.apply(y)
			v.clear(y, mask)
			VADDPS(y, sum, sum)
			VMOVUPS(y, Mem{Base: x, Index: o, Scale: 1})
		})
		s.blank("blank", offset, zero, x)
		v.fold(sum, VADDPS)
		VMOVSS(sum.AsX(), At(sums, 0))
	}, func() {
		ADDQ(stride, x)
		ADDQ(Imm(4), top)
		ADDQ(Imm(4), sums)
	})
	End()
}

// gradStrip generates GradStrip of package vec, which turns scores into probabilities, and gradients of probabilities
// into gradients of scores.
func gradStrip(v isa) {
	v.Begin("gradStrip", "func(x, dx *float32, stride, rows, n, most, width int, factor, scale float32, lse, delta *float32)",
		"does a strip: see GradStrip.")
	x, dx, stride := Arg("x"), Arg("dx"), Arg("stride")
	s := v.newStrip()
	factor, scale := v.broadcast("factor"), v.broadcast("scale")
	p := Args("lse", "delta")
	e := v.newExp2()
	zero := v.Zero()
	s.rows("row", func(seen reg.GPVirtual) {
		offset := GP64()
		lse, delta := v.Reg(), v.Reg()
		VBROADCASTSS(At(p[0], 0), lse)
		VBROADCASTSS(At(p[1], 0), delta)
		s.over("exp", seen, offset, func(o reg.GPVirtual, mask reg.Register) {
			y := v.load(Mem{Base: x, Index: o, Scale: 1}, mask)
			g := v.load(Mem{Base: dx, Index: o, Scale: 1}, mask)
			VFMSUB213PS(lse, factor, y)
			e.apply(y)
			v.clear(y, mask)
			VMOVUPS(y, Mem{Base: x, Index: o, Scale: 1})
			VSUBPS(delta, g, g)
			VMULPS(scale, y, y)
			VMULPS(y, g, g)
			v.clear(g, mask)
			VMOVUPS(g, Mem{Base: dx, Index: o, Scale: 1})
		})
		s.blank("blank", offset, zero, x, dx)
	}, func() {
		ADDQ(stride, x)
		ADDQ(stride, dx)
		ADDQ(Imm(4), p[0])
		ADDQ(Imm(4), p[1])
	})
	End()
}
