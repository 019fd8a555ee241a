package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// machine describes one instruction set, and generates the matrix product kernels for it.
type machine struct {
	name  string
	regs  []reg.VecPhysical
	width int // bytes of a register; a panel is two registers wide
	// mr is the largest number of rows of a kernel. With it the kernel uses all registers: two sums
	// for each row, two for B, and two for elements of A that are broadcast to all lanes.
	mr int
	// unroll is how many elements of K, the dimension that a matrix product sums over, one iteration of a kernel's loop
	// processes: 16 or 8. While both threads of a Zen 3 core compute, the longer loop is some percent slower.
	unroll  int
	packed  bool   // a is a packed tile: mr elements for each element of K, one after the other
	element string // type of the 4-byte elements of a and b
	zero    func(reg.Register)
	add     func(b, x, acc reg.Register) // adds the products of b and x to acc
	finish  func(h int, d, ldd reg.Register)
}

var machine512 = &machine{
	name:  "512",
	regs:  ZMMs,
	width: 64, mr: 14, unroll: 16, element: "floats",
	zero: func(r reg.Register) { VPXORQ(r, r, r) },
	add:  func(b, x, acc reg.Register) { VFMADD231PS(b, x, acc) },
}

var machine256 = &machine{
	name:  "256",
	regs:  YMMs,
	width: 32, mr: 6, unroll: 8, packed: true, element: "floats",
	zero: func(r reg.Register) { VPXOR(r, r, r) },
	add:  func(b, x, acc reg.Register) { VFMADD231PS(b, x, acc) },
}

func init() {
	machine512.finish = finish512
	machine256.finish = finish256
	machinePairs.finish = finish512
}

// kernels generates a kernel for each number of rows from 1 to mr.
func (m *machine) kernels() {
	for h := 1; h <= m.mr; h++ {
		m.kernel(h)
	}
}

// kernel generates the product d = a·b + c for h rows and one panel of b (the columns that fill two
// registers).
func (m *machine) kernel(h int) {
	Begin(fmt.Sprintf("kernel%sx%d", m.name, h),
		"func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32, panel, block, across, down uintptr)",
		fmt.Sprintf("computes %d rows of %d columns of %s: see kernelFunc.", h, m.width/2, m.element))
	ldd := m.products(h)
	m.finish(h, Arg("d"), ldd)
	End()
}

// column256 generates the products of a panel of b with several tiles of a, one below the other, all of the largest
// height. It does what as many calls of a kernel with a full mask do, and saves what a call costs. It keeps count in its
// parameters.
func column256() {
	m := machine256
	Begin("column256",
		"func(tiles, k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, panel, block, across, down, step uintptr)",
		fmt.Sprintf("computes tiles of %d rows of %d columns: see layout.column.", m.mr, m.width/2))
	Label("tile")
	ldd := m.products(m.mr)
	c, ldc := Arg("c"), Arg("ldc")
	SHLQ(Imm(2), ldc)
	finishRows256(m.mr, "store", c, ldc, Arg("d"), ldd,
		func(m Mem, x reg.Register, _ int) { VMOVUPS(m, x) },
		func(x reg.Register, m Mem, _ int) { VMOVUPS(x, m) })

	Comment("The next tile.")
	k, step := Arg("k"), Arg("step")
	SHLQ(Imm(3), k)
	ADDQ(k, param("panel"))
	ADDQ(step, param("block"))
	for _, to := range []struct {
		p, ld string
		rows  int
	}{{"a", "lda", 1}, {"d", "ldd", m.mr}, {"c", "ldc", m.mr}} {
		if to.p == "c" {
			c := Arg("c")
			TESTQ(c, c)
			JE(LabelRef("counted"))
		}
		ld := Arg(to.ld)
		IMUL3Q(U32(4*to.rows), ld, ld)
		ADDQ(ld, param(to.p))
	}
	Label("counted")
	DECQ(param("tiles"))
	JNE(LabelRef("tile"))
	End()
}

// param is the memory of a parameter.
func param(name string) Op {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// products generates the sums of h rows over all of K. It returns the register with the bytes between rows of d.
func (m *machine) products(h int) reg.Register {
	k := Arg("k")
	a := m.loadRows(h)
	b, ldd, panel, block, across, down := Arg("b"), Arg("ldd"), Arg("panel"), Arg("block"), Arg("across"), Arg("down")
	row := Arg("d")
	SHLQ(Imm(2), ldd)
	if m.unroll == 8 {
		SHRQ(Imm(1), down)
	}
	for i := range 2 * h {
		m.zero(m.regs[i])
	}

	Comment("Blocks of k. The rows of d are prefetched one by one, so that they do not get in the way.")
	SUBQ(U32(m.unroll), k)
	JLT(LabelRef("tail"))
	Label("block")
	for i := range m.unroll {
		switch {
		case i == 0:
			PREFETCHT1(Mem{Base: panel})
		case i == 2:
			PREFETCHT0(Mem{Base: row})
		case i == 4:
			PREFETCHT1(Mem{Base: block})
		case i == 6 && m.unroll == 16:
			PREFETCHT0(Mem{Base: row, Disp: 64})
		case i == 8:
			PREFETCHT1(Mem{Base: panel, Disp: 64})
		case i == 12:
			PREFETCHT1(Mem{Base: block, Index: across, Scale: 1})
		}
		m.step(h, a, b, i)
	}
	a.move(m.unroll)
	ADDQ(U32(m.unroll*2*m.width), b)
	ADDQ(U32(8*m.unroll), panel)
	ADDQ(down, block)
	ADDQ(ldd, row)
	SUBQ(U32(m.unroll), k)
	JGE(LabelRef("block"))

	Comment("The rest of k, one at a time.")
	Label("tail")
	ADDQ(U32(m.unroll), k)
	JE(LabelRef("finish"))
	Label("single")
	m.step(h, a, b, 0)
	a.move(1)
	ADDQ(U32(2*m.width), b)
	DECQ(k)
	JNE(LabelRef("single"))

	Label("finish")
	return ldd
}

// rows gives access to the rows of a part of A, which are ld bytes apart. An x86 address can be a
// pointer plus 1, 2, 4 or 8 times ld, so a few pointers reach all rows. A packed tile needs one pointer.
type rows struct {
	pointers map[int]reg.Register // by the row they point to
	ld       reg.Register
	packed   int // elements of a packed tile for each element of K; 0: a is not packed
}

// reach says for each row how to address it: the pointer to row `from`, plus `after` times the
// distance between rows.
var reach = [...]struct{ from, after int }{
	{0, 0}, {0, 1}, {0, 2}, {3, 0}, {0, 4}, {3, 2}, {5, 1}, {3, 4}, {0, 8}, {5, 4}, {10, 0}, {3, 8}, {10, 2}, {5, 8},
}

// loadRows computes the pointers that h rows need, from the arguments a and lda of the generated function.
func (m *machine) loadRows(h int) *rows {
	first := Arg("a")
	if m.packed {
		return &rows{map[int]reg.Register{0: first}, nil, m.mr}
	}
	ld := Arg("lda")
	SHLQ(Imm(2), ld)
	a := &rows{map[int]reg.Register{0: first}, ld, 0}
	for _, to := range reach[:h] {
		if a.pointers[to.from] != nil {
			continue
		}
		p := GP64()
		switch to.from {
		case 3:
			LEAQ(Mem{Base: ld, Index: ld, Scale: 2}, p)
			ADDQ(first, p)
		case 5:
			LEAQ(Mem{Base: ld, Index: ld, Scale: 4}, p)
			ADDQ(first, p)
		case 10:
			LEAQ(Mem{Base: ld, Index: ld, Scale: 4}, p)
			ADDQ(a.pointers[5], p)
		}
		a.pointers[to.from] = p
	}
	return a
}

// at returns the address of the i-th element of row r, counted from where the pointers are now.
func (a *rows) at(r, i int) Mem {
	if a.packed > 0 {
		return Mem{Base: a.pointers[0], Disp: 4 * (i*a.packed + r)}
	}
	m := Mem{Base: a.pointers[reach[r].from], Disp: 4 * i}
	if after := reach[r].after; after > 0 {
		m.Index, m.Scale = a.ld, uint8(after)
	}
	return m
}

// move advances all pointers to rows of A by n elements.
func (a *rows) move(n int) {
	for r := range reach {
		if p := a.pointers[r]; p != nil {
			ADDQ(U32(4*n*max(1, a.packed)), p)
		}
	}
}

// step generates the products for one element of K (the dimension summed over), for h rows, and
// adds them to the sums. The element is the i-th from where the pointers a and b are.
func (m *machine) step(h int, a *rows, b reg.Register, i int) {
	b0, b1 := m.regs[2*m.mr], m.regs[2*m.mr+1]
	VMOVUPS(Mem{Base: b, Disp: 2 * m.width * i}, b0)
	VMOVUPS(Mem{Base: b, Disp: 2*m.width*i + m.width}, b1)
	for r := range h {
		x := m.regs[2*m.mr+2+r%2]
		VBROADCASTSS(a.at(r, i), x)
		m.add(b0, x, m.regs[2*r])
		m.add(b1, x, m.regs[2*r+1])
	}
}

// finish512 ends a kernel of h rows: it adds c to the sums, unless c is nil, and stores the result to d.
func finish512(h int, d, ldd reg.Register) {
	mask := Load(Param("mask"), GP32())
	KMOVW(mask, reg.K1)
	SHRL(Imm(16), mask)
	KMOVW(mask, reg.K2)
	c := Arg("c")
	TESTQ(c, c)
	JE(LabelRef("store"))
	ldc := Arg("ldc")
	SHLQ(Imm(2), ldc)
	for r := range h {
		VMOVUPS_Z(Mem{Base: c}, reg.K1, reg.Z28)
		VMOVUPS_Z(Mem{Base: c, Disp: 64}, reg.K2, reg.Z29)
		VADDPS(reg.Z28, zmm(2*r), zmm(2*r))
		VADDPS(reg.Z29, zmm(2*r+1), zmm(2*r+1))
		if r < h-1 {
			ADDQ(ldc, c)
		}
	}
	Label("store")
	for r := range h {
		VMOVUPS(zmm(2*r), reg.K1, Mem{Base: d})
		VMOVUPS(zmm(2*r+1), reg.K2, Mem{Base: d, Disp: 64})
		if r < h-1 {
			ADDQ(ldd, d)
		}
	}
}

// zmm is the i-th 512-bit register.
func zmm(i int) reg.VecPhysical { return ZMMs[i] }

// ymm is the i-th 256-bit register.
func ymm(i int) reg.VecPhysical { return YMMs[i] }

// finish256 ends a kernel of h rows: it adds c to the sums, unless c is nil, and stores the result to d. Whole panels
// take a path without masks, because masked stores are slow on some processors.
func finish256(h int, d, ldd reg.Register) {
	c, ldc := Arg("c"), Arg("ldc")
	mask := Load(Param("mask"), GP32())
	SHLQ(Imm(2), ldc)
	CMPL(mask, U32(0xffff))
	JNE(LabelRef("masked"))
	finishRows256(h, "store", c, ldc, d, ldd,
		func(m Mem, x reg.Register, _ int) { VMOVUPS(m, x) },
		func(x reg.Register, m Mem, _ int) { VMOVUPS(x, m) })
	End()

	Label("masked")
	lanes := [2]reg.Register{ymm(14), ymm(15)}
	expandMask256(mask, lanes[0], lanes[1])
	finishRows256(h, "storeMasked", c, ldc, d, ldd,
		func(m Mem, x reg.Register, half int) { VMASKMOVPS(m, lanes[half], x) },
		func(x reg.Register, m Mem, half int) { VMASKMOVPS(x, lanes[half], m) })
}

// finishRows256 is one path of finish256: it adds c, unless c is nil, and stores d, with load and save as the functions
// that access memory. store is the name of a label.
func finishRows256(h int, store string, c, ldc, d, ldd reg.Register,
	load func(Mem, reg.Register, int), save func(reg.Register, Mem, int)) {
	TESTQ(c, c)
	JE(LabelRef(store))
	for r := range h {
		for half := range 2 {
			load(Mem{Base: c, Disp: 32 * half}, ymm(12+half), half)
			VADDPS(ymm(12+half), ymm(2*r+half), ymm(2*r+half))
		}
		if r < h-1 {
			ADDQ(ldc, c)
		}
	}
	Label(store)
	for r := range h {
		for half := range 2 {
			save(ymm(2*r+half), Mem{Base: d, Disp: 32 * half}, half)
		}
		if r < h-1 {
			ADDQ(ldd, d)
		}
	}
}

// expandMask256 generates the masks for two registers of columns from the bits of mask. Bits 0–7
// become the sign bits of low's lanes, and bits 8–15 the sign bits of high's. AVX2's masked moves
// test the sign bits. It changes ymm(12) and mask.
func expandMask256(mask, low, high reg.Register) {
	counts := GP64()
	MOVQ(U64(0x18191a1b1c1d1e1f), counts) // the byte of lane i is 31 - i
	VMOVQ(counts, reg.X12)
	VPMOVZXBD(reg.X12, reg.Y12)
	for _, lanes := range []reg.Register{low, high} {
		x := lanes.(reg.Vec).AsX()
		VMOVD(mask, x)
		VPBROADCASTD(x, lanes)
		VPSLLVD(reg.Y12, lanes, lanes)
		SHRL(Imm(8), mask)
	}
}
