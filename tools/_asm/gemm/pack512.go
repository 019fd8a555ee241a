package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// packB512 generates the packing of k rows of B (K,N) into panels of 32 columns. It reads one source row at a time,
// in memory order.
func packB512(bf16 bool) {
	Begin("packB512"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", ld, panels, k int, mask uint32)",
		"copies k rows of src, ld apart, into panels of 32 columns,",
		"stride apart; the last panel reads the columns in mask and gets 0 elsewhere.")
	dst, stride, src, ld, panels, k := Arg("dst"), Arg("stride"), Arg("src"), Arg("ld"), Arg("panels"), Arg("k")
	mask := Load(Param("mask"), GP32())
	KMOVW(mask, reg.K1)
	SHRL(Imm(16), mask)
	KMOVW(mask, reg.K2)
	SHLQ(Imm(2), stride)
	scale(bf16, ld)
	DECQ(panels)

	s, d, n := GP64(), GP64(), GP64()
	z0, z1 := ZMM(), ZMM()
	Label("row")
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(panels, n)
	TESTQ(n, n)
	JE(LabelRef("last"))
	Label("panel")
	load512(bf16, Mem{Base: s}, z0, nil)
	load512(bf16, Mem{Base: s, Disp: 16 * size(bf16)}, z1, nil)
	VMOVUPS(z0, Mem{Base: d})
	VMOVUPS(z1, Mem{Base: d, Disp: 64})
	ADDQ(U32(32*size(bf16)), s)
	ADDQ(stride, d)
	DECQ(n)
	JNE(LabelRef("panel"))
	Label("last")
	load512(bf16, Mem{Base: s}, z0, reg.K1)
	load512(bf16, Mem{Base: s, Disp: 16 * size(bf16)}, z1, reg.K2)
	VMOVUPS(z0, Mem{Base: d})
	VMOVUPS(z1, Mem{Base: d, Disp: 64})
	ADDQ(ld, src)
	ADDQ(U32(128), dst)
	DECQ(k)
	JNE(LabelRef("row"))
	End()
}

// transpose512 generates the transposition with which an A that is stored (K,M), or a B that is stored (N,K), is
// packed.
func transpose512(bf16 bool) {
	Begin("transpose512"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", offsets *[16]int, n int)",
		"writes the transpose of 16 rows of n elements, which begin at src plus",
		"offsets bytes, to rows of 16 floats, stride apart. It writes whole blocks of 16 rows:",
		"those from n on are 0. It prefetches the 16 rows that follow.")
	dst, stride, src, offsets, n := Arg("dst"), Arg("stride"), Arg("src"), Arg("offsets"), Arg("n")
	next := rowsAfter(src, offsets)
	SHLQ(Imm(2), stride)
	off := GP64()
	loop16(n, func(mask reg.Register) {
		transposeBlock512(dst, stride, func(r int, z, _ reg.Register) {
			MOVQ(Mem{Base: offsets, Disp: 8 * r}, off)
			load512(bf16, Mem{Base: src, Index: off, Scale: 1}, z, mask)
			PREFETCHT0(Mem{Base: next, Index: off, Scale: 1})
		})
		ADDQ(U32(16*size(bf16)), src)
		ADDQ(U32(16*size(bf16)), next)
	})
	End()
}

// rowsAfter returns the address of the row that follows the last of 16 rows. Row i of the 16 is at
// src plus the i-th of the offsets.
func rowsAfter(src, offsets reg.Register) reg.Register {
	next := GP64()
	MOVQ(Mem{Base: offsets, Disp: 8 * 15}, next)
	ADDQ(Mem{Base: offsets, Disp: 8}, next)
	ADDQ(src, next)
	return next
}

// transposeBlock512 transposes 16 by 16 elements, writes them to dst in rows that are stride bytes apart, and moves dst
// behind them. load must read row r into z, and may overwrite the register free.
func transposeBlock512(dst, stride reg.Register, load func(r int, z, free reg.Register)) {
	in, a := ZMMs[:16], ZMMs[16:]
	for r := range in {
		load(r, in[r], a[r])
	}
	Transpose(in, a)
	for c := range 16 {
		VMOVUPS(in[c], Mem{Base: dst})
		ADDQ(stride, dst)
	}
}

// widen512 generates the conversion of bf16 to fp32 for AVX-512. Package gemm packs a bf16 row of A
// with it.
func widen512() {
	Begin("widen512", "func(dst *float32, src *uint16, n int)",
		"writes n bf16 as fp32.")
	dst, src, n := Arg("dst"), Arg("src"), Arg("n")
	z := ZMM()
	loop16(n, func(mask reg.Register) {
		load512(true, Mem{Base: src}, z, mask)
		AVX512.Store(z, Mem{Base: dst}, mask)
		ADDQ(U32(32), src)
		ADDQ(U32(64), dst)
	})
	End()
}

// narrow512 generates the conversion of fp32 to bf16, rounded to nearest even; NaNs become quiet NaNs.
func narrow512() {
	Begin("narrow512", "func(dst *uint16, src *float32, n int)",
		"writes n fp32 as bf16, rounded to nearest even.")
	dst, src, n := Arg("dst"), Arg("src"), Arg("n")
	constant := func(v uint32) reg.VecVirtual {
		r, z := GP32(), ZMM()
		MOVL(U32(v), r)
		VPBROADCASTD(r, z)
		return z
	}
	one, half, quiet := constant(1), constant(0x7fff), constant(0x400000)
	x, y := ZMM(), ZMM()
	loop16(n, func(mask reg.Register) {
		load512(false, Mem{Base: src}, x, mask)
		Round(x, y, reg.K2, one, half, quiet)
		StoreLow(y, Mem{Base: dst}, mask)
		ADDQ(U32(64), src)
		ADDQ(U32(32), dst)
	})
	End()
}

// loop16 generates a loop over n elements. It runs body without a mask for every 16 elements, then once with the mask
// K1 for the rest. It changes n.
func loop16(n reg.Register, body func(mask reg.Register)) {
	Label("block")
	CMPQ(n, U32(16))
	JL(LabelRef("tail"))
	body(nil)
	SUBQ(U32(16), n)
	JMP(LabelRef("block"))
	Label("tail")
	TESTQ(n, n)
	JE(LabelRef("done"))
	TailMask(n, reg.K1)
	body(reg.K1)
	Label("done")
}

// element returns the Go type of the elements: uint16 for bf16, or float32.
func element(bf16 bool) string {
	if bf16 {
		return "uint16"
	}
	return "float32"
}

// scale multiplies the register r, a number of elements, by the bytes of an element.
func scale(bf16 bool, r reg.Register) {
	if bf16 {
		SHLQ(Imm(1), r)
	} else {
		SHLQ(Imm(2), r)
	}
}
