package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// load256 generates the load of 8 elements at m into y, converted to fp32 if they are bf16.
func load256(bf16 bool, m Mem, y reg.Register) {
	if bf16 {
		LoadBF16(m, y, nil)
	} else {
		AVX2.Load(m, y, nil)
	}
}

// loop8 generates a loop that runs body n/8 times. It changes n.
func loop8(n reg.Register, body func()) {
	SHRQ(Imm(3), n)
	JE(LabelRef("done"))
	Label("block")
	body()
	DECQ(n)
	JNE(LabelRef("block"))
	Label("done")
}

// widen256 generates the conversion of bf16 to fp32 for AVX2. Package gemm packs a bf16 row of A
// with it.
func widen256() {
	Begin("widen256", "func(dst *float32, src *uint16, n int)",
		"writes n bf16 as fp32; n is a multiple of 8.")
	dst, src, n := Arg("dst"), Arg("src"), Arg("n")
	y := YMM()
	loop8(n, func() {
		load256(true, Mem{Base: src}, y)
		VMOVUPS(y, Mem{Base: dst})
		ADDQ(U32(16), src)
		ADDQ(U32(32), dst)
	})
	End()
}

// narrow256 generates the conversion of fp32 to bf16, rounded to nearest even; NaNs become quiet NaNs.
func narrow256() {
	Begin("narrow256", "func(dst *uint16, src *float32, n int)",
		"writes n fp32 as bf16, rounded to nearest even; n is a multiple of 8.")
	dst, src, n := Arg("dst"), Arg("src"), Arg("n")
	one, half, quiet := AVX2.Splat(1), AVX2.Splat(0x7fff), AVX2.Splat(0x400000)
	x, y, nan := YMM(), YMM(), YMM()
	loop8(n, func() {
		load256(false, Mem{Base: src}, x)
		VPSRLD(Imm(16), x, y)
		VPAND(one, y, y)
		VPADDD(half, y, y)
		VPADDD(x, y, y)
		VCMPPS(Imm(3), x, x, nan) // unordered
		VPOR(quiet, x, x)
		VBLENDVPS(nan, x, y, y)
		VPSRLD(Imm(16), y, y)
		VEXTRACTI128(Imm(1), y, x.AsX())
		VPACKUSDW(x.AsX(), y.AsX(), y.AsX())
		VMOVUPS(y.AsX(), Mem{Base: dst})
		ADDQ(U32(32), src)
		ADDQ(U32(16), dst)
	})
	End()
}

// dot256 generates dot products with four rows of B, which is stored (N,K) and not packed. Each dot product has two
// registers of partial sums.
func dot256(bf16 bool) {
	Begin("dot256"+suffix(bf16), "func(d, x *float32, w *"+element(bf16)+", offsets *[4]int, k int)",
		"writes to d the products of x with four rows of k elements, which begin at",
		"w plus offsets bytes; k is a multiple of 16.")
	d, x, w, offsets, k := Arg("d"), Arg("x"), Arg("w"), Arg("offsets"), Arg("k")
	row := rowPointers(w, offsets)
	for i := range 8 {
		VPXOR(ymm(i), ymm(i), ymm(i))
	}
	SHRQ(Imm(4), k)
	JE(LabelRef("sum"))
	Label("block")
	VMOVUPS(Mem{Base: x}, ymm(8))
	VMOVUPS(Mem{Base: x, Disp: 32}, ymm(9))
	for r := range row {
		PREFETCHT0(Mem{Base: row[r], Disp: dotAhead})
		for i := range 2 {
			load256(bf16, Mem{Base: row[r], Disp: 8 * i * size(bf16)}, ymm(10+i))
			VFMADD231PS(ymm(10+i), ymm(8+i), ymm(2*r+i))
		}
		ADDQ(U32(16*size(bf16)), row[r])
	}
	ADDQ(U32(64), x)
	DECQ(k)
	JNE(LabelRef("block"))
	Label("sum")
	for r := range row {
		VADDPS(ymm(2*r+1), ymm(2*r), ymm(2*r))
	}
	VHADDPS(ymm(2), ymm(0), ymm(0))
	VHADDPS(ymm(6), ymm(4), ymm(4))
	VHADDPS(ymm(4), ymm(0), ymm(0)) // each half has a sum for every row
	VEXTRACTF128(Imm(1), ymm(0), reg.X1)
	VADDPS(reg.X1, reg.X0, reg.X0)
	VMOVUPS(reg.X0, Mem{Base: d})
	End()
}
