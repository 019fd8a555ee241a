package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packB512 copies k rows of B (K,N) into panels of 32 columns: one source row
// at a time, so that it is read as it lies.
func packB512(bf16 bool) {
	TEXT("packB512"+suffix(bf16), NOSPLIT,
		"func(dst *float32, stride int, src *"+element(bf16)+", ld, panels, k int, mask uint32)")
	Pragma("noescape")
	Doc("packB512"+suffix(bf16)+" copies k rows of src, ld apart, into panels of 32 columns,",
		"stride apart; the last panel reads the columns in mask and gets 0 elsewhere.")
	dst := Load(Param("dst"), GP64())
	stride := Load(Param("stride"), GP64())
	src := Load(Param("src"), GP64())
	ld := Load(Param("ld"), GP64())
	panels := Load(Param("panels"), GP64())
	k := Load(Param("k"), GP64())
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
	VZEROUPPER()
	RET()
}

// transpose512 serves A (K,M) as well as B (N,K).
func transpose512(bf16 bool) {
	TEXT("transpose512"+suffix(bf16), NOSPLIT,
		"func(dst *float32, stride int, src *"+element(bf16)+", offsets *[16]int, n int)")
	Pragma("noescape")
	Doc("transpose512"+suffix(bf16)+" writes the transpose of 16 rows of n elements, which begin at src plus",
		"offsets bytes, to rows of 16 floats, stride apart. It writes whole blocks of 16 rows:",
		"those from n on are 0. It prefetches the 16 rows that follow.")
	dst := Load(Param("dst"), GP64())
	stride := Load(Param("stride"), GP64())
	src := Load(Param("src"), GP64())
	offsets := Load(Param("offsets"), GP64())
	n := Load(Param("n"), GP64())
	next := GP64()
	MOVQ(Mem{Base: offsets, Disp: 8 * 15}, next)
	ADDQ(Mem{Base: offsets, Disp: 8}, next)
	ADDQ(src, next)
	SHLQ(Imm(2), stride)
	loop16(n, func(mask reg.Register) {
		transposeBlock512(bf16, src, next, offsets, dst, stride, mask)
		ADDQ(U32(16*size(bf16)), src)
		ADDQ(U32(16*size(bf16)), next)
	})
	VZEROUPPER()
	RET()
}

// transposeBlock512 transposes 16 by 16 elements and moves dst past them.
func transposeBlock512(bf16 bool, src, next, offsets, dst, stride, mask reg.Register) {
	off := GP64()
	in := make([]reg.Register, 16)
	for r := range in {
		in[r] = zmm(r)
		MOVQ(Mem{Base: offsets, Disp: 8 * r}, off)
		load512(bf16, Mem{Base: src, Index: off, Scale: 1}, in[r], mask)
		PREFETCHT0(Mem{Base: next, Index: off, Scale: 1})
	}
	a := make([]reg.Register, 16)
	for r := range a {
		a[r] = zmm(16 + r)
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
		VMOVUPS(in[c], Mem{Base: dst})
		ADDQ(stride, dst)
	}
}

// widen512 is the packing of a row of A in bf16.
func widen512() {
	TEXT("widen512", NOSPLIT, "func(dst *float32, src *uint16, n int)")
	Pragma("noescape")
	Doc("widen512 writes n bf16 as fp32.")
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	n := Load(Param("n"), GP64())
	z := ZMM()
	loop16(n, func(mask reg.Register) {
		load512(true, Mem{Base: src}, z, mask)
		store512(z, Mem{Base: dst}, mask)
		ADDQ(U32(32), src)
		ADDQ(U32(64), dst)
	})
	VZEROUPPER()
	RET()
}

// narrow512 rounds to nearest even and keeps NaNs as quiet NaNs.
func narrow512() {
	TEXT("narrow512", NOSPLIT, "func(dst *uint16, src *float32, n int)")
	Pragma("noescape")
	Doc("narrow512 writes n fp32 as bf16, rounded to nearest even.")
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	n := Load(Param("n"), GP64())
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
		VPSRLD(Imm(16), x, y)
		VPANDD(one, y, y)
		VPADDD(half, y, y)
		VPADDD(x, y, y)
		VCMPPS(Imm(3), x, x, reg.K2) // unordered
		VPORD(quiet, x, reg.K2, y)
		VPSRLD(Imm(16), y, y)
		if mask == nil {
			VPMOVDW(y, Mem{Base: dst})
		} else {
			VPMOVDW(y, mask, Mem{Base: dst})
		}
		ADDQ(U32(64), src)
		ADDQ(U32(32), dst)
	})
	VZEROUPPER()
	RET()
}

// loop16 runs body for every 16 of n, without a mask, then once under K1 for
// the rest. n is used up.
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
	mask := GP32()
	MOVL(U32(0xffff), mask)
	BZHIL(n.(reg.GP).As32(), mask, mask)
	KMOVW(mask, reg.K1)
	body(reg.K1)
	Label("done")
}

func store512(z reg.Register, m Mem, mask reg.Register) {
	if mask == nil {
		VMOVUPS(z, m)
	} else {
		VMOVUPS(z, mask, m)
	}
}

// element is the Go type of an element.
func element(bf16 bool) string {
	if bf16 {
		return "uint16"
	}
	return "float32"
}

// scale turns a number of elements into bytes.
func scale(bf16 bool, r reg.Register) {
	if bf16 {
		SHLQ(Imm(1), r)
	} else {
		SHLQ(Imm(2), r)
	}
}
