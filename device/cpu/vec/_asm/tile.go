package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const tileSignature = "func(k int, a *float32, astride int, b *float32, bpanel int, c *float32, cstride, panels int, acc bool)"

// tile writes h rows of c = a·b (or c += a·b). b comes in panels of k rows of
// 32 floats.
func tile(v isa, h int, cols bool) {
	layout := "Rows"
	if cols {
		layout = "Cols"
	}
	v.begin(fmt.Sprintf("tile%s%d", layout, h), tileSignature, fmt.Sprintf("multiplies %d rows: see tileFunc.", h))
	t := &tiler{isa: v, h: h, cols: cols, regs: 32 / v.lanes}
	if v.wide() {
		t.panelLoop("panel", 0)
	} else {
		t.regs = 2
		t.panelLoop("left", 0)
		t.panelLoop("right", 64)
	}
	VZEROUPPER()
	RET()
}

// tiler writes one function. A loop over the panels works on columns of regs
// registers.
type tiler struct {
	isa
	h    int
	cols bool
	regs int

	acc    [][]reg.VecVirtual
	a, b   reg.GPVirtual
	stride reg.GPVirtual
	rows   map[int]reg.GPVirtual // odd multiples of stride
}

// panelLoop goes over the panels, at byte column of each.
func (t *tiler) panelLoop(label string, column int) {
	t.stride = count("astride")
	t.multiples()
	bstart, c, panels := count("b"), count("c"), count("panels")
	if column != 0 {
		ADDQ(U32(uint32(column)), bstart)
		ADDQ(U32(uint32(column)), c)
	}
	Label(label)
	t.a, t.b = count("a"), GP64()
	MOVQ(bstart, t.b)
	k := count("k")
	t.acc = make([][]reg.VecVirtual, t.h)
	for r := range t.acc {
		for range t.regs {
			t.acc[r] = append(t.acc[r], t.zero())
		}
	}
	t.products(label, k)
	t.finish(label, c)
	bp := count("bpanel")
	ADDQ(bp, bstart)
	ADDQ(U32(128), c)
	DECQ(panels)
	JNE(LabelRef(label))
}

// multiples makes the registers that row addresses are built from.
func (t *tiler) multiples() {
	t.rows = map[int]reg.GPVirtual{1: t.stride}
	if t.cols {
		return
	}
	for r := 3; r < t.h; r += 2 {
		t.rows[r] = GP64()
		LEAQ(Mem{Base: t.rows[r-2], Index: t.stride, Scale: 2}, t.rows[r])
	}
}

// row is the address of element (r, 0) of a, disp bytes on.
func (t *tiler) row(r, disp int) Mem {
	if t.cols {
		return at(t.a, 4*r+disp)
	}
	if r == 0 {
		return at(t.a, disp)
	}
	odd, scale := r, 1
	for odd%2 == 0 {
		odd, scale = odd/2, scale*2
	}
	return Mem{Base: t.a, Index: t.rows[odd], Scale: uint8(scale), Disp: disp}
}

// products adds up over k, four at a time for rows, one at a time for columns
// and for the rest.
func (t *tiler) products(label string, k reg.GPVirtual) {
	const unroll = 4
	loop := func(name, next string, count int) {
		Label(name)
		CMPQ(k, U32(uint32(count)))
		JL(LabelRef(next))
		for i := range count {
			t.step(i)
			if t.cols {
				ADDQ(t.stride, t.a)
			}
		}
		if !t.cols {
			ADDQ(U32(uint32(4*count)), t.a)
		}
		ADDQ(U32(uint32(128*count)), t.b)
		SUBQ(U32(uint32(count)), k)
		JMP(LabelRef(name))
	}
	loop(label+"Many", label+"One", unroll)
	loop(label+"One", label+"Finish", 1)
	Label(label + "Finish")
}

// step adds the products of the i-th k from here.
func (t *tiler) step(i int) {
	var b []reg.VecVirtual
	for j := range t.regs {
		b = append(b, t.load(at(t.b, 128*i+j*t.bytes()), nil))
	}
	disp := 4 * i
	if t.cols {
		disp = 0
	}
	for r := range t.h {
		x := t.reg()
		VBROADCASTSS(t.row(r, disp), x)
		for j := range t.regs {
			VFMADD231PS(b[j], x, t.acc[r][j])
		}
	}
}

// finish adds what is in c, if acc is set, and stores.
func (t *tiler) finish(label string, c reg.GPVirtual) {
	stride, p := count("cstride"), GP64()
	flag := GP8()
	Load(Param("acc"), flag)
	TESTB(flag, flag)
	JE(LabelRef(label + "Store"))
	MOVQ(c, p)
	t.eachRow(p, stride, func(r, j int, m Mem) {
		VADDPS(m, t.acc[r][j], t.acc[r][j])
	})
	Label(label + "Store")
	MOVQ(c, p)
	t.eachRow(p, stride, func(r, j int, m Mem) {
		VMOVUPS(t.acc[r][j], m)
	})
}

func (t *tiler) eachRow(p, stride reg.GPVirtual, f func(r, j int, m Mem)) {
	for r := range t.h {
		for j := range t.regs {
			f(r, j, at(p, j*t.bytes()))
		}
		if r < t.h-1 {
			ADDQ(stride, p)
		}
	}
}

// transpose turns 16 rows of 16 floats into columns.
func transpose(v isa) {
	v.begin("transpose", "func(dst, src *float32, stride, blocks int)",
		"writes the columns of 16 rows of src, stride bytes apart, as rows of 16 floats, 32 floats apart; there are 16·blocks.")
	dst, src, stride, blocks := count("dst"), count("src"), count("stride"), count("blocks")
	s3, s4 := GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, s3)
	Label("block")
	p := GP64()
	MOVQ(src, p)
	in := make([]reg.VecPhysical, 16)
	a := make([]reg.VecPhysical, 16)
	for r := range in {
		in[r], a[r] = zmms[r], zmms[16+r]
	}
	LEAQ(Mem{Base: stride, Index: s3, Scale: 1}, s4)
	for r := 0; r < 16; r += 4 {
		VMOVUPS(at(p, 0), in[r])
		VMOVUPS(Mem{Base: p, Index: stride, Scale: 1}, in[r+1])
		VMOVUPS(Mem{Base: p, Index: stride, Scale: 2}, in[r+2])
		VMOVUPS(Mem{Base: p, Index: s3, Scale: 1}, in[r+3])
		ADDQ(s4, p)
	}
	for i := 0; i < 16; i += 2 { // pairs of rows
		VUNPCKLPS(in[i+1], in[i], a[i])
		VUNPCKHPS(in[i+1], in[i], a[i+1])
	}
	for i := 0; i < 16; i += 4 { // in[i+c]: column c of every group of four, of rows i … i+3
		VUNPCKLPD(a[i+2], a[i], in[i])
		VUNPCKHPD(a[i+2], a[i], in[i+1])
		VUNPCKLPD(a[i+3], a[i+1], in[i+2])
		VUNPCKHPD(a[i+3], a[i+1], in[i+3])
	}
	for c := range 4 { // columns c, c+8 and c+4, c+12 of rows 0–7 and of rows 8–15
		VSHUFF32X4(Imm(0x88), in[4+c], in[c], a[c])
		VSHUFF32X4(Imm(0xdd), in[4+c], in[c], a[4+c])
		VSHUFF32X4(Imm(0x88), in[12+c], in[8+c], a[8+c])
		VSHUFF32X4(Imm(0xdd), in[12+c], in[8+c], a[12+c])
	}
	for c := range 8 {
		VSHUFF32X4(Imm(0x88), a[8+c], a[c], in[c])
		VSHUFF32X4(Imm(0xdd), a[8+c], a[c], in[8+c])
	}
	for c := range 16 {
		VMOVUPS(in[c], at(dst, 128*c))
	}
	ADDQ(U32(16*128), dst)
	ADDQ(U32(64), src)
	DECQ(blocks)
	JNE(LabelRef("block"))
	VZEROUPPER()
	RET()
}

var zmms = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}
