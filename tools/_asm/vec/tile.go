package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

const tileSignature = "func(k int, a *float32, astride int, b *float32, bpanel int, c *float32, cstride, panels int, acc bool)"

// tile generates c = a·b (or c += a·b) for h rows of a, which is stored by rows or, with cols, by columns. b is
// stored in panels of k rows of 32 floats.
func tile(v isa, h int, cols bool) {
	layout := "Rows"
	if cols {
		layout = "Cols"
	}
	v.Begin(fmt.Sprintf("tile%s%d", layout, h), tileSignature, fmt.Sprintf("multiplies %d rows: see tileFunc.", h))
	t := &tiler{isa: v, h: h, cols: cols, regs: 32 / v.Lanes}
	if v.Wide() {
		t.panelLoop("panel", 0)
	} else {
		t.regs = 2
		t.panelLoop("left", 0)
		t.panelLoop("right", 64)
	}
	End()
}

// tiler generates one of the functions of tile. Its loop over panels computes columns that fill regs registers at a
// time.
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

// panelLoop generates the loop over panels. It computes the columns that begin column bytes after the start of each
// panel.
func (t *tiler) panelLoop(label string, column int) {
	t.stride = Arg("astride")
	t.multiples()
	bstart, c, panels := Arg("b"), Arg("c"), Arg("panels")
	if column != 0 {
		ADDQ(U32(uint32(column)), bstart)
		ADDQ(U32(uint32(column)), c)
	}
	Label(label)
	t.a, t.b = Arg("a"), GP64()
	MOVQ(bstart, t.b)
	k := Arg("k")
	t.acc = make([][]reg.VecVirtual, t.h)
	for r := range t.acc {
		for range t.regs {
			t.acc[r] = append(t.acc[r], t.Zero())
		}
	}
	t.products(label, k)
	t.finish(label, c)
	bp := Arg("bpanel")
	ADDQ(bp, bstart)
	ADDQ(U32(128), c)
	DECQ(panels)
	JNE(LabelRef(label))
}

// multiples computes registers with multiples of the distance between rows, from which row addresses are built.
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

// row returns the address of the first element of row r of a, plus disp bytes.
func (t *tiler) row(r, disp int) Mem {
	if t.cols {
		return At(t.a, 4*r+disp)
	}
	if r == 0 {
		return At(t.a, disp)
	}
	odd, scale := r, 1
	for odd%2 == 0 {
		odd, scale = odd/2, scale*2
	}
	return Mem{Base: t.a, Index: t.rows[odd], Scale: uint8(scale), Disp: disp}
}

// products generates the sums over k (the dimension that is summed over). If a is stored by rows,
// the loop takes four elements of k at a time, then one at a time. If a is stored by columns, it
// takes one at a time.
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

// step generates the products for one element of k (the dimension summed over), the i-th from where
// the pointers are, and adds them to the sums.
func (t *tiler) step(i int) {
	var b []reg.VecVirtual
	for j := range t.regs {
		b = append(b, t.load(At(t.b, 128*i+j*t.Bytes()), nil))
	}
	disp := 4 * i
	if t.cols {
		disp = 0
	}
	for r := range t.h {
		x := t.Reg()
		VBROADCASTSS(t.row(r, disp), x)
		for j := range t.regs {
			VFMADD231PS(b[j], x, t.acc[r][j])
		}
	}
}

// finish adds the values at c to the sums if the generated function's argument acc is set. It then
// stores the sums at c.
func (t *tiler) finish(label string, c reg.GPVirtual) {
	stride, p := Arg("cstride"), GP64()
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
			f(r, j, At(p, j*t.Bytes()))
		}
		if r < t.h-1 {
			ADDQ(stride, p)
		}
	}
}

// transpose generates the transposition of 16 rows of 16 floats.
func transpose(v isa) {
	v.Begin("transpose", "func(dst, src *float32, stride, blocks int)",
		"writes the columns of 16 rows of src, stride bytes apart, as rows of 16 floats, 32 floats apart; there are 16·blocks.")
	dst, src, stride, blocks := Arg("dst"), Arg("src"), Arg("stride"), Arg("blocks")
	s3, s4 := GP64(), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, s3)
	LEAQ(Mem{Base: stride, Index: s3, Scale: 1}, s4)
	load := func(p reg.Register, disp int, in []reg.VecPhysical) {
		for r := 0; r < len(in); r += 4 {
			VMOVUPS(At(p, disp), in[r])
			VMOVUPS(Mem{Base: p, Index: stride, Scale: 1, Disp: disp}, in[r+1])
			VMOVUPS(Mem{Base: p, Index: stride, Scale: 2, Disp: disp}, in[r+2])
			VMOVUPS(Mem{Base: p, Index: s3, Scale: 1, Disp: disp}, in[r+3])
			ADDQ(s4, p)
		}
	}
	Label("block")
	p := GP64()
	if v.Wide() {
		MOVQ(src, p)
		in, a := ZMMs[:16], ZMMs[16:]
		load(p, 0, in)
		Transpose(in, a)
		for c := range 16 {
			VMOVUPS(in[c], At(dst, 128*c))
		}
	} else {
		in, a := YMMs[:8], YMMs[8:]
		for column := 0; column < 16; column += 8 {
			MOVQ(src, p)
			for row := 0; row < 16; row += 8 { // load advances p by 8 rows
				load(p, 4*column, in)
				Transpose8(in, a)
				for c := range 8 {
					VMOVUPS(a[c], At(dst, 128*(column+c)+4*row))
				}
			}
		}
	}
	ADDQ(U32(16*128), dst)
	ADDQ(U32(64), src)
	DECQ(blocks)
	JNE(LabelRef("block"))
	End()
}
