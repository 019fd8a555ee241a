package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "mt/tools/asm/isa"
)

// packRowsAhead is how many rows of B packB256 prefetches before it copies them, and packTilesAhead how many of A
// packTiles256. Rows are far apart, and the processor fetches nothing ahead by itself.
const packRowsAhead, packTilesAhead = 4, 8

// packB256 generates the packing of k rows of B (K,N) into panels of 16 columns. It reads one source row at a time, in
// memory order.
func packB256(bf16 bool) {
	Begin("packB256"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", ld, panels, k int)",
		"copies k rows of src, ld apart, into panels of 16 columns, stride apart.")
	dst, stride, src, ld, panels, k := Arg("dst"), Arg("stride"), Arg("src"), Arg("ld"), Arg("panels"), Arg("k")
	SHLQ(Imm(2), stride)
	scale(bf16, ld)

	s, d, n := GP64(), GP64(), GP64()
	y0, y1 := YMM(), YMM()
	Label("row")
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(panels, n)
	Label("panel")
	PREFETCHT0(Mem{Base: s, Index: ld, Scale: packRowsAhead})
	load256(bf16, Mem{Base: s}, y0)
	load256(bf16, Mem{Base: s, Disp: 8 * size(bf16)}, y1)
	VMOVUPS(y0, Mem{Base: d})
	VMOVUPS(y1, Mem{Base: d, Disp: 32})
	ADDQ(U32(16*size(bf16)), s)
	ADDQ(stride, d)
	DECQ(n)
	JNE(LabelRef("panel"))
	ADDQ(ld, src)
	ADDQ(U32(64), dst)
	DECQ(k)
	JNE(LabelRef("row"))
	End()
}

// packTiles256 generates the packing of k rows of an A that is stored (K,M) into tiles of 6 columns. It reads one source
// row at a time, in memory order.
func packTiles256(bf16 bool) {
	Begin("packTiles256"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", ld, tiles, k int)",
		"copies k rows of src, ld apart, into tiles of 6 columns, stride apart.")
	dst, stride, src, ld, tiles, k := Arg("dst"), Arg("stride"), Arg("src"), Arg("ld"), Arg("tiles"), Arg("k")
	SHLQ(Imm(2), stride)
	scale(bf16, ld)
	s, d, n, four, two := GP64(), GP64(), GP64(), XMM(), XMM()
	Label("row")
	MOVQ(src, s)
	MOVQ(dst, d)
	MOVQ(tiles, n)
	Label("tile")
	PREFETCHT0(Mem{Base: s, Index: ld, Scale: packTilesAhead})
	if bf16 {
		LoadBF16(Mem{Base: s}, four, nil)
		VMOVD(Mem{Base: s, Disp: 8}, two)
		VPMOVZXWD(two, two)
		VPSLLD(Imm(16), two, two)
	} else {
		VMOVUPS(Mem{Base: s}, four)
		VMOVSD(Mem{Base: s, Disp: 16}, two)
	}
	VMOVUPS(four, Mem{Base: d})
	VMOVSD(two, Mem{Base: d, Disp: 16})
	ADDQ(U32(6*size(bf16)), s)
	ADDQ(stride, d)
	DECQ(n)
	JNE(LabelRef("tile"))
	ADDQ(ld, src)
	ADDQ(U32(24), dst)
	DECQ(k)
	JNE(LabelRef("row"))
	End()
}

// transpose256 generates the transposition with which an A that is stored (K,M), or a B that is stored (N,K), is
// packed.
func transpose256(bf16 bool) {
	Begin("transpose256"+suffix(bf16),
		"func(dst *float32, stride int, src *"+element(bf16)+", offsets *[8]int, n int, ahead uintptr)",
		"writes the transpose of 8 rows of n elements, which begin at src plus offsets",
		"bytes, to rows of 8 floats, stride apart; n is a multiple of 8. It prefetches what",
		"lies ahead bytes after each element.")
	dst, stride, src, offsets, n := Arg("dst"), Arg("stride"), Arg("src"), Arg("offsets"), Arg("n")
	ahead := Arg("ahead")
	SHLQ(Imm(2), stride)
	ADDQ(src, ahead)
	off, in, a := GP64(), YMMs[:8], YMMs[8:]
	loop8(n, func() {
		for r := range in {
			MOVQ(Mem{Base: offsets, Disp: 8 * r}, off)
			PREFETCHT0(Mem{Base: ahead, Index: off, Scale: 1})
			load256(bf16, Mem{Base: src, Index: off, Scale: 1}, in[r])
		}
		Transpose8(in, a)
		for c := range 8 {
			VMOVUPS(a[c], Mem{Base: dst})
			ADDQ(stride, dst)
		}
		ADDQ(U32(8*size(bf16)), src)
		ADDQ(U32(8*size(bf16)), ahead)
	})
	End()
}
