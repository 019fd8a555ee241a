package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "mt/tools/asm/isa"
)

// transpose256 generates the transposition with which an A that is stored (K,M), or a B that is stored (N,K), is
// packed.
func transpose256(bf16 bool) {
	Begin("transpose256"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", offsets *[8]int, n int)",
		"writes the transpose of 8 rows of n elements, which begin at src plus offsets",
		"bytes, to rows of 8 floats, stride apart; n is a multiple of 8.")
	dst, stride, src, offsets, n := Arg("dst"), Arg("stride"), Arg("src"), Arg("offsets"), Arg("n")
	SHLQ(Imm(2), stride)
	off, in, a := GP64(), YMMs[:8], YMMs[8:]
	loop8(n, func() {
		for r := range in {
			MOVQ(Mem{Base: offsets, Disp: 8 * r}, off)
			load256(bf16, Mem{Base: src, Index: off, Scale: 1}, in[r])
		}
		for i := 0; i < 8; i += 2 { // pairs of rows
			VUNPCKLPS(in[i+1], in[i], a[i])
			VUNPCKHPS(in[i+1], in[i], a[i+1])
		}
		for i := 0; i < 8; i += 4 { // in[i+c]: columns c and c+4 of rows i … i+3
			VUNPCKLPD(a[i+2], a[i], in[i])
			VUNPCKHPD(a[i+2], a[i], in[i+1])
			VUNPCKLPD(a[i+3], a[i+1], in[i+2])
			VUNPCKHPD(a[i+3], a[i+1], in[i+3])
		}
		for c := range 8 {
			VPERM2F128(Imm(uint64(0x20+0x11*(c/4))), in[4+c%4], in[c%4], a[c])
			VMOVUPS(a[c], Mem{Base: dst})
			ADDQ(stride, dst)
		}
		ADDQ(U32(8*size(bf16)), src)
	})
	End()
}
