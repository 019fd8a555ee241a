package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// dot512 generates dot products with four rows of B, which is stored (N,K) and not packed. Each dot product has two
// registers of partial sums.
func dot512(bf16 bool) {
	Begin("dot512"+suffix(bf16), "func(d, x *float32, w *"+element(bf16)+", offsets *[4]int, k int)",
		"writes to d the products of x with four rows of k elements, which begin at",
		"w plus offsets bytes.")
	d, x, w, offsets, k := Arg("d"), Arg("x"), Arg("w"), Arg("offsets"), Arg("k")
	row := rowPointers(w, offsets)
	acc := func(r, i int) reg.Register { return zmm(2*r + i) }
	for i := range 8 {
		VPXORQ(zmm(i), zmm(i), zmm(i))
	}
	xs := []reg.Register{zmm(8), zmm(9)}
	t := zmm(10)
	Label("pair")
	CMPQ(k, U32(32))
	JL(LabelRef("rest"))
	VMOVUPS(Mem{Base: x}, xs[0])
	VMOVUPS(Mem{Base: x, Disp: 64}, xs[1])
	for r := range row {
		PREFETCHT0(Mem{Base: row[r], Disp: dotAhead})
		if !bf16 {
			PREFETCHT0(Mem{Base: row[r], Disp: dotAhead + 64})
		}
		for i := range 2 {
			load512(bf16, Mem{Base: row[r], Disp: 16 * i * size(bf16)}, t, nil)
			VFMADD231PS(t, xs[i], acc(r, i))
		}
		ADDQ(U32(32*size(bf16)), row[r])
	}
	ADDQ(U32(128), x)
	SUBQ(U32(32), k)
	JMP(LabelRef("pair"))

	Label("rest")
	loop16(k, func(mask reg.Register) {
		load512(false, Mem{Base: x}, xs[0], mask)
		for r := range row {
			load512(bf16, Mem{Base: row[r]}, t, mask)
			VFMADD231PS(t, xs[0], acc(r, 0))
			ADDQ(U32(16*size(bf16)), row[r])
		}
		ADDQ(U32(64), x)
	})
	for r := range row {
		VADDPS(acc(r, 1), acc(r, 0), acc(r, 0))
	}
	sum512([4]reg.Register{zmm(0), zmm(2), zmm(4), zmm(6)}, d)
	End()
}

// sum512 adds up the elements of each of the four registers and stores the four sums at d.
func sum512(z [4]reg.Register, d reg.Register) {
	t := [4]reg.Register{zmm(16), zmm(17), zmm(18), zmm(19)}
	VUNPCKLPS(z[1], z[0], t[0])
	VUNPCKHPS(z[1], z[0], t[1])
	VUNPCKLPS(z[3], z[2], t[2])
	VUNPCKHPS(z[3], z[2], t[3])
	VADDPS(t[1], t[0], t[0]) // pairs of rows 0 and 1
	VADDPS(t[3], t[2], t[2]) // pairs of rows 2 and 3
	VUNPCKLPD(t[2], t[0], t[1])
	VUNPCKHPD(t[2], t[0], t[3])
	VADDPS(t[3], t[1], t[0]) // each quarter has a sum for every row
	VSHUFF32X4(Imm(0x4e), t[0], t[0], t[1])
	VADDPS(t[1], t[0], t[0])
	VSHUFF32X4(Imm(0xb1), t[0], t[0], t[1])
	VADDPS(t[1], t[0], t[0])
	VMOVUPS(reg.X16, Mem{Base: d})
}

// dotAhead is how many bytes before it reads B a dot product prefetches it.
const dotAhead = 1024

// rowPointers returns registers with the addresses of four rows: w plus each of the four offsets, which are in memory.
func rowPointers(w, offsets reg.Register) (row [4]reg.Register) {
	for r := range row {
		row[r] = GP64()
		MOVQ(Mem{Base: offsets, Disp: 8 * r}, row[r])
		ADDQ(w, row[r])
	}
	return row
}
