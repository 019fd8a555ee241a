package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// machinePairs describes kernels that multiply bf16 with the instruction VDPBF16PS, two elements of
// K (the dimension that is summed over) at a time. In both packed operands a pair of bf16 takes the
// place of an fp32 element. The first of a pair is in the upper half, because the instruction adds
// the product of the upper halves first.
var machinePairs = &machine{
	name:  "Pairs",
	regs:  ZMMs,
	width: 64, mr: 14, unroll: 16, element: "pairs of bf16",
	zero: func(r reg.Register) { VPXORQ(r, r, r) },
	add:  vdpbf16ps,
}

// vdpbf16ps adds to each element of acc the products of the two bf16 in the same element of x and of y. Go's assembler
// does not know the instruction: EVEX.512.F3.0F38.W0 52 /r (Intel SDM, volume 2).
func vdpbf16ps(y, x, acc reg.Register) {
	number := func(r reg.Register) (low, bit3, bit4 uint32) {
		n := uint32(r.(reg.Physical).PhysicalIndex())
		return n & 7, n >> 3 & 1, n >> 4 & 1
	}
	d, d3, d4 := number(acc)
	s, s3, s4 := number(y)
	v, v3, v4 := number(x)
	p0 := (1-d3)<<7 | (1-s4)<<6 | (1-s3)<<5 | (1-d4)<<4 | 2
	p1 := (15-(v|v3<<3))<<3 | 4 | 2
	p2 := uint32(2)<<5 | (1-v4)<<3
	Comment(fmt.Sprintf("VDPBF16PS Z%d, Z%d, Z%d", s|s3<<3|s4<<4, v|v3<<3|v4<<4, d|d3<<3|d4<<4))
	Instruction(&ir.Instruction{Opcode: "LONG", Operands: []Op{U32(0x62 | p0<<8 | p1<<16 | p2<<24)}})
	Instruction(&ir.Instruction{Opcode: "WORD", Operands: []Op{U16(0x52 | (0xc0|d<<3|s)<<8)}})
}

// loadPairs reads up to 32 consecutive bf16 at m into z and swaps each two, which makes them pairs.
// Elements outside mask become 0; a nil mask reads all elements.
func loadPairs(m Mem, z, mask reg.Register) {
	if mask != nil {
		VMOVDQU16_Z(m, mask, z)
	} else {
		VMOVDQU16(m, z)
	}
	VPROLD(Imm(16), z, z)
}

// joinPairs combines the 16 bf16 at first with the 16 at second into 16 pairs in z. Elements outside mask become 0; a
// nil mask reads all elements. It overwrites t.
func joinPairs(first, second Mem, z, t, mask reg.Register) {
	load512(true, first, z, mask)
	if mask != nil {
		VPMOVZXWD_Z(second, mask, t)
	} else {
		VPMOVZXWD(second, t)
	}
	VPORD(t, z, z)
}

// loop32 generates a loop over n elements. It runs body without a mask for every 32 elements, then once with the mask
// K1 for the rest. It changes n.
func loop32(n reg.Register, body func(mask reg.Register)) {
	Label("block")
	CMPQ(n, U32(32))
	JL(LabelRef("tail"))
	body(nil)
	SUBQ(U32(32), n)
	JMP(LabelRef("block"))
	Label("tail")
	TESTQ(n, n)
	JE(LabelRef("done"))
	m := GP32()
	MOVL(U32(0xffffffff), m)
	BZHIL(n.(reg.GP).As32(), m, m)
	KMOVD(m, reg.K1)
	body(reg.K1)
	Label("done")
}

// packRowPairs512 generates the packing of a row of A into pairs of bf16.
func packRowPairs512() {
	Begin("packRowPairs512", "func(dst *float32, src *uint16, n int)",
		"writes n bf16 as pairs, whole groups of 16; what is missing is 0.")
	dst, src, n := Arg("dst"), Arg("src"), Arg("n")
	z := ZMM()
	loop32(n, func(mask reg.Register) {
		loadPairs(Mem{Base: src}, z, mask)
		VMOVUPS(z, Mem{Base: dst})
		ADDQ(U32(64), src)
		ADDQ(U32(64), dst)
	})
	End()
}

// packPairs512 generates the packing of a B that is stored (K,N). It joins two rows of B at a time into a row of pairs,
// in panels of 32 columns.
func packPairs512() {
	Begin("packPairs512",
		"func(dst *float32, stride int, src *uint16, ld, panels, pairs int, mask uint32)",
		"copies pairs of rows of src, ld apart, into panels of 32 columns,",
		"stride apart; the last panel reads the columns in mask and gets 0 elsewhere.")
	dst, stride, src, ld, panels, pairs := Arg("dst"), Arg("stride"), Arg("src"), Arg("ld"), Arg("panels"), Arg("pairs")
	mask := Load(Param("mask"), GP32())
	KMOVW(mask, reg.K1)
	SHRL(Imm(16), mask)
	KMOVW(mask, reg.K2)
	SHLQ(Imm(2), stride)
	SHLQ(Imm(1), ld)
	DECQ(panels)

	s, d, n := GP64(), GP64(), GP64()
	z, t := ZMM(), ZMM()
	panel := func(low, high reg.Register) {
		for half, mask := range []reg.Register{low, high} {
			joinPairs(Mem{Base: s, Disp: 32 * half}, Mem{Base: s, Index: ld, Scale: 1, Disp: 32 * half}, z, t, mask)
			VMOVUPS(z, Mem{Base: d, Disp: 64 * half})
		}
	}
	Label("pair")
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(panels, n)
	TESTQ(n, n)
	JE(LabelRef("last"))
	Label("panel")
	panel(nil, nil)
	ADDQ(U32(64), s)
	ADDQ(stride, d)
	DECQ(n)
	JNE(LabelRef("panel"))
	Label("last")
	panel(reg.K1, reg.K2)
	LEAQ(Mem{Base: src, Index: ld, Scale: 2}, src)
	ADDQ(U32(128), dst)
	DECQ(pairs)
	JNE(LabelRef("pair"))
	End()
}

// transposePairs512 generates the packing of a B that is stored (N,K) into pairs of bf16.
func transposePairs512() {
	Begin("transposePairs512",
		"func(dst *float32, stride int, src *uint16, offsets *[16]int, n int)",
		"writes the transpose of 16 rows of n elements, which begin at src plus",
		"offsets bytes, as pairs, to rows of 16 pairs, stride apart. It writes whole blocks of 16 rows;",
		"what is missing is 0. It prefetches the 16 rows that follow.")
	dst, stride, src, offsets, n := Arg("dst"), Arg("stride"), Arg("src"), Arg("offsets"), Arg("n")
	next := rowsAfter(src, offsets)
	SHLQ(Imm(2), stride)
	off := GP64()
	loop32(n, func(mask reg.Register) {
		transposeBlock512(dst, stride, func(r int, z, _ reg.Register) {
			MOVQ(Mem{Base: offsets, Disp: 8 * r}, off)
			loadPairs(Mem{Base: src, Index: off, Scale: 1}, z, mask)
			PREFETCHT0(Mem{Base: next, Index: off, Scale: 1})
		})
		ADDQ(U32(64), src)
		ADDQ(U32(64), next)
	})
	End()
}

// transposeRowPairs512 generates the packing of an A that is stored (K,M) into pairs of bf16.
func transposeRowPairs512() {
	Begin("transposeRowPairs512",
		"func(dst *float32, stride int, src *uint16, offsets *[32]int, n int)",
		"writes the transpose of 16 pairs of rows of n elements, which begin",
		"at src plus offsets bytes, to rows of 16 pairs, stride apart. It writes whole blocks of 16 rows:",
		"those from n on are 0.")
	dst, stride, src, offsets, n := Arg("dst"), Arg("stride"), Arg("src"), Arg("offsets"), Arg("n")
	SHLQ(Imm(2), stride)
	first, second := GP64(), GP64()
	loop16(n, func(mask reg.Register) {
		transposeBlock512(dst, stride, func(r int, z, free reg.Register) {
			MOVQ(Mem{Base: offsets, Disp: 16 * r}, first)
			MOVQ(Mem{Base: offsets, Disp: 16*r + 8}, second)
			joinPairs(Mem{Base: src, Index: first, Scale: 1}, Mem{Base: src, Index: second, Scale: 1}, z, free, mask)
		})
		ADDQ(U32(32), src)
	})
	End()
}

// maker generates the function with which package gemm finds the processor's manufacturer.
func maker() {
	TEXT("maker", NOSPLIT, "func() (ebx, ecx, edx uint32)")
	Doc("maker returns the name of the processor's maker, as CPUID has it.")
	XORL(reg.EAX, reg.EAX)
	CPUID()
	Store(reg.EBX, Return("ebx"))
	Store(reg.ECX, Return("ecx"))
	Store(reg.EDX, Return("edx"))
	RET()
}
