package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// gather reads a 32-bit word from a table for each lane. The address is p + disp + scale·i, where i is the integer in
// the lane of index.
func (v isa) gather(p reg.Register, index reg.VecVirtual, scale uint8, disp int) reg.VecVirtual {
	r := v.Zero() // a register other than the index
	m := Mem{Base: p, Index: index, Scale: scale, Disp: disp}
	if v.Wide() {
		k := K()
		KXNORW(k, k, k)
		VPGATHERDD(m, k, r)
		return r
	}
	mask := v.Reg()
	VPCMPEQD(mask, mask, mask)
	VPGATHERDD(mask, m, r)
	return r
}

// decode generates the decoder of 8-bit codes. A number is values[code]·scale.
func decode(v isa) {
	v.Begin("decode", "func(values *float32, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes; n is a multiple of the lanes.")
	values, codes, out := Arg("values"), Arg("codes"), Arg("out")
	scale := v.broadcast(At(Arg("scale"), 0))
	v.each(unroll, []stream{{codes, 1}, {out, 4}}, func(disp int) {
		c := v.Reg()
		VPMOVZXBD(At(codes, disp), c)
		x := v.gather(values, c, 4, 0)
		VMULPS(scale, x, x)
		VMOVUPS(x, At(out, 4*disp))
	})
	End()
}

// decode16 generates the decoder of 4-bit codes. A number is values[code]·scale. The table of 16 values is in
// registers.
func decode16(v isa) {
	v.Begin("decode16", "func(values *float32, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes, two a byte; n is a multiple of the lanes.")
	values, codes, out := Arg("values"), Arg("codes"), Arg("out")
	scale := v.broadcast(At(Arg("scale"), 0))
	lower := XMM()
	VMOVD(u32(0x0f0f0f0f), lower)
	VPBROADCASTD(lower, lower)
	first, upper := v.Reg(), v.Reg()
	VMOVUPS(At(values, 0), first)
	if !v.Wide() {
		VMOVUPS(At(values, 32), upper)
	}
	v.each(unroll, []stream{{codes, half}, {out, 4}}, func(disp int) {
		pairs, high := XMM(), XMM()
		if v.Wide() {
			VPMOVZXBW(At(codes, disp/2), pairs)
		} else {
			VMOVD(At(codes, disp/2), pairs)
			VPMOVZXBW(pairs, pairs)
		}
		VPSLLW(Imm(4), pairs, high)
		VPOR(high, pairs, pairs)
		VPAND(lower, pairs, pairs)
		c, x := v.Reg(), v.Reg()
		VPMOVZXBD(pairs, c)
		VPERMPS(first, c, x)
		if !v.Wide() {
			y := v.Reg()
			VPERMPS(upper, c, y)
			VPSLLD(Imm(28), c, c) // the highest bit of a code chooses
			VBLENDVPS(c, y, x, x)
		}
		VMULPS(scale, x, x)
		VMOVUPS(x, At(out, 4*disp))
	})
	End()
}

// These constants are for the encoder of quantized moments. It selects a table entry by a number's
// upper 16 bits, from bucketLow to bucketHigh for positive numbers: see the function place in
// host/optim/codes.go.
const (
	bucketShift = 16
	bucketLow   = 0x3400
	bucketHigh  = 0x3f80
	bucketSpan  = bucketHigh - bucketLow + 1
)

// encode16Wide generates the encoder of 4-bit codes for AVX-512. It finds codes in a table like
// encode, but this table is small enough for registers.
func encode16Wide(v isa) {
	v.Begin("encode16", "func(words *[2][32]uint32, least, offset, lowerBits uint32, x *float32, codes *byte, n int, scale *float32)",
		"sets codes to those of n numbers over the scale, two a byte; n is a multiple of the lanes.")
	words := Arg("words")
	var word [4]reg.VecVirtual
	for i := range word {
		word[i] = v.Reg()
		VMOVUPS(At(words, 64*i), word[i])
	}
	every := func(name string) reg.VecVirtual {
		r := v.Reg()
		VPBROADCASTD(Load(Param(name), GP32()), r)
		return r
	}
	least, offset, lowerBits := every("least"), every("offset"), every("lowerBits")
	x, codes := Arg("x"), Arg("codes")
	scale := v.broadcast(At(Arg("scale"), 0))
	abs, most, one := v.Splat(0x7fffffff), v.Splat(bucketHigh<<bucketShift-1), v.Splat(1)
	lower := v.Reg()
	VPSLLVD(lowerBits, one, lower)
	VPSUBD(one, lower, lower)
	v.each(unroll, []stream{{x, 4}, {codes, half}}, func(disp int) {
		y, c, side := v.Reg(), v.Reg(), v.Reg()
		above, below, beyond := K(), K(), K()
		VMOVUPS(At(x, 4*disp), y)
		VDIVPS(scale, y, y)
		VPMOVD2M(y, below)
		KNOTW(below, above)
		VPSRAD(Imm(31), y, side)
		VPORD(one, side, side)
		VPANDD(abs, y, y)
		VPMAXSD(least, y, y)
		VPMINSD(most, y, y)
		VPADDD(offset, y, y)
		VPSRLVD(lowerBits, y, c)
		VPERMI2D(word[1], word[0], above, c)
		VPERMI2D(word[3], word[2], below, c)
		VPANDD(lower, y, y)
		next := v.Reg()
		VPSRLD(Imm(8), c, next)
		VPCMPD(Imm(5), next, y, beyond) // y >= next
		VPADDD(side, c, beyond, c)
		v.storePairs(c, codes, disp)
	})
	End()
}

// storePairs writes 4-bit codes, two to a byte. The codes are in the lowest bytes of the 32-bit lanes of c. It needs
// AVX-512.
func (v isa) storePairs(c reg.VecVirtual, codes reg.Register, disp int) {
	pairs, high := XMM(), XMM()
	VPMOVDB(c, pairs)
	VPSRLW(Imm(4), pairs, high)
	VPOR(high, pairs, pairs)
	VPMOVWB(pairs, At(codes, disp/2))
}

// encode generates the encoder of codes of bits bits, 8 or 4. The upper bits of a number select a table entry. The
// lower bits decide between the entry's code and the next one.
func encode(v isa, bits int) {
	name, how := "encode", "a byte each"
	if bits == 4 {
		name, how = "encode16", "two a byte"
	}
	v.Begin(name, "func(table *uint32, x *float32, codes *byte, n int, scale *float32)",
		"sets codes to those of n numbers over the scale, "+how+"; n is a multiple of the lanes.")
	table, x, codes := Arg("table"), Arg("x"), Arg("codes")
	scale := v.broadcast(At(Arg("scale"), 0))
	abs, low, high, span, lower := v.Splat(0x7fffffff), v.Splat(bucketLow<<bucketShift), v.Splat(bucketHigh<<bucketShift), v.Splat(bucketSpan), v.Splat(1<<bucketShift-1)
	one := v.Splat(1)
	and, or := func(a, b, to Op) { VPAND(a, b, to) }, func(a, b, to Op) { VPOR(a, b, to) }
	if v.Wide() {
		and, or = func(a, b, to Op) { VPANDD(a, b, to) }, func(a, b, to Op) { VPORD(a, b, to) }
	}
	var byteMask reg.VecVirtual
	if !v.Wide() {
		byteMask = v.Splat(0xff)
	}
	byteOfPair := XMM()
	if bits == 4 && !v.Wide() {
		VMOVD(u32(0x00ff00ff), byteOfPair)
		VPBROADCASTD(byteOfPair, byteOfPair)
	}
	size := 1
	if bits == 4 {
		size = half
	}
	v.each(unroll, []stream{{x, 4}, {codes, size}}, func(disp int) {
		y, at, sign := v.Reg(), v.Reg(), v.Reg()
		VMOVUPS(At(x, 4*disp), y)
		VDIVPS(scale, y, y)
		VPSRAD(Imm(31), y, sign)
		and(abs, y, y)
		VPMAXSD(low, y, y)
		VPMINSD(high, y, y)
		VPSRLD(Imm(bucketShift), y, at)
		and(lower, y, y)
		side := v.Reg() // 1, or −1 for a negative number
		or(one, sign, side)
		and(span, sign, sign)
		VPADDD(sign, at, at)
		c := v.gather(table, at, 4, -4*bucketLow)
		VPSRLD(Imm(8), c, at) // where the neighbouring code begins
		if v.Wide() {
			k := K()
			VPCMPD(Imm(5), at, y, k) // y >= at
			VPADDD(side, c, k, c)
			VPMOVDB(c, At(codes, disp))
			return
		}
		VPCMPGTD(y, at, at)
		VPANDN(side, at, at)
		VPADDD(at, c, c)
		VPAND(byteMask, c, c)
		packCodes(bits, c, byteOfPair, codes, disp)
	})
	End()
}

// packCodes writes the codes in one AVX2 register, beginning with code number disp of the output. A byte gets one 8-bit
// code or two 4-bit codes, as bits says.
func packCodes(bits int, c, byteOfPair reg.VecVirtual, codes reg.Register, disp int) {
	upper := XMM()
	VEXTRACTI128(Imm(1), c, upper)
	VPACKUSDW(upper, c.AsX(), upper)
	VPACKUSWB(upper, upper, upper)
	if bits == 4 {
		high := XMM()
		VPSRLW(Imm(4), upper, high)
		VPOR(high, upper, upper)
		VPAND(byteOfPair, upper, upper)
		VPACKUSWB(upper, upper, upper)
		VMOVD(upper, At(codes, disp/2))
		return
	}
	VMOVQ(upper, At(codes, disp))
}

// greatest generates the search for the largest magnitude among n numbers.
func greatest(v isa) {
	v.Begin("greatest", "func(x *float32, n int, most *float32)",
		"sets most to the greatest magnitude of n numbers, of which a NaN is the greatest; n is a multiple of the lanes.")
	x := Arg("x")
	abs := v.Splat(0x7fffffff)
	most := v.Zero()
	v.each(1, []stream{{x, 4}}, func(disp int) {
		r := v.Reg()
		if v.Wide() {
			VPANDD(At(x, 4*disp), abs, r)
		} else {
			VPAND(At(x, 4*disp), abs, r)
		}
		VPMAXSD(r, most, most)
	})
	eight := most
	if v.Wide() {
		eight = YMM()
		VEXTRACTI64X4(Imm(1), most, eight)
		VPMAXSD(most.AsY(), eight, eight)
	}
	four, other := XMM(), XMM()
	VEXTRACTI128(Imm(1), eight.AsY(), four)
	VPMAXSD(eight.AsX(), four, four)
	for _, lanes := range []uint8{0x4e, 0xb1} { // swap 64-bit halves, then 32-bit neighbours
		VPSHUFD(Imm(uint64(lanes)), four, other)
		VPMAXSD(other, four, four)
	}
	VMOVD(four, At(Arg("most"), 0))
	End()
}

// u32 returns a fresh general register with a constant.
func u32(x uint32) reg.GPVirtual {
	r := GP32()
	MOVL(U32(x), r)
	return r
}
