package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// This file generates functions for quantized moments whose codebooks (tables from code to number) fit in registers:
// see host/optim/registers.go.
//
// Four registers of fp32 numbers become one register of 8-bit codes. Pack and unpack instructions work within 128 bits,
// so packed codes have the order 0–3, 16–19, 32–35, 48–51, 4–7, … Moving groups of four codes converts this order to
// memory order. The same permutation converts back.

// vbmi is AVX-512 on processors that also have AVX512_VBMI. fours makes loops go by four of its registers at a time.
var (
	vbmi  = isa{ISA{Name: "VBMI", Lanes: 16}}
	fours = isa{ISA{Name: "VBMI", Lanes: 4 * 16}}
)

// inFours returns a register with the permutation that puts groups of four codes in memory order (see the top of the
// file).
func inFours() reg.VecVirtual {
	x, gp, r := XMM(), GP64(), ZMM()
	MOVQ(U64(0x0d0905010c080400), gp)
	VMOVQ(gp, x)
	MOVQ(U64(0x0f0b07030e0a0602), gp)
	VPINSRQ(Imm(1), gp, x, x)
	VPMOVZXBD(x, r)
	return r
}

// byteBook is a table of 256 fp32 numbers, stored by bytes: first byte 0 of all numbers, then byte 1, and so on. p is
// its address. Registers hold the first half of each group of 128 bytes; the other half is read from memory.
type byteBook struct {
	p    reg.Register
	held [4][2]reg.VecVirtual
}

// newByteBook loads the part of the table at p that registers hold.
func newByteBook(p reg.Register) *byteBook {
	b := &byteBook{p: p}
	for i := range b.held {
		for j := range b.held[i] {
			b.held[i][j] = ZMM()
			VMOVUPS(At(p, 256*i+128*j), b.held[i][j])
		}
	}
	return b
}

// find looks up the numbers of the 64 codes in a register. It returns them in four registers, in the order of the
// codes.
func (b *byteBook) find(codes reg.VecVirtual) [4]reg.VecVirtual {
	upper := K() // codes ≥ 128
	VPMOVB2M(codes, upper)
	var bytes [4]reg.VecVirtual
	for i := range bytes {
		lower, other := ZMM(), ZMM()
		VMOVDQA64(codes, lower)
		VPERMI2B(At(b.p, 256*i+64), b.held[i][0], lower)
		VMOVDQA64(codes, other)
		VPERMI2B(At(b.p, 256*i+192), b.held[i][1], other)
		VMOVDQU8(other, upper, lower)
		bytes[i] = lower
	}
	low, high := interleave(VPUNPCKLBW, VPUNPCKHBW, bytes[0], bytes[1]) // the lower halves of the numbers, for two registers each
	low2, high2 := interleave(VPUNPCKLBW, VPUNPCKHBW, bytes[2], bytes[3])
	first, second := interleave(VPUNPCKLWD, VPUNPCKHWD, low, low2)
	third, fourth := interleave(VPUNPCKLWD, VPUNPCKHWD, high, high2)
	return [4]reg.VecVirtual{first, second, third, fourth}
}

// interleave interleaves the elements of a and b within each 128 bits. lower and upper are the instructions for the
// lower and the upper halves, whose results are low and high. It overwrites a.
func interleave(lower, upper func(...Op), a, b reg.VecVirtual) (low, high reg.VecVirtual) {
	low = ZMM()
	lower(b, a, low)
	upper(b, a, a)
	return low, a
}

// decodeVBMI generates the decoder of 8-bit codes for processors with AVX512_VBMI, with the table in registers.
func decodeVBMI() {
	vbmi.Begin("decode", "func(values *[4][256]byte, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes; n is a multiple of 64.")
	values := newByteBook(Arg("values"))
	codes, out := Arg("codes"), Arg("out")
	scale, order := vbmi.broadcast(At(Arg("scale"), 0)), inFours()
	fours.each(1, []stream{{codes, 1}, {out, 4}}, func(disp int) {
		c := ZMM()
		VPERMD(At(codes, disp), order, c)
		for i, x := range values.find(c) {
			VMULPS(scale, x, x)
			VMOVUPS(x, At(out, 4*(disp+16*i)))
		}
	})
	End()
}

// encodeVBMI generates the encoder of 8-bit codes for processors with AVX512_VBMI. It guesses a code by a linear
// function of the number's magnitude. Then it compares the number with the border between this code and the next, and
// corrects the guess.
func encodeVBMI() {
	v := vbmi
	v.Begin("encode", "func(borders *[4][256]byte, lines *[3][32]float32, zero uint64, x *float32, codes *byte, n int, scale *float32)",
		"sets codes to those of n numbers over the scale, a byte each; n is a multiple of 64.")
	borders := newByteBook(Arg("borders"))
	lines := Arg("lines")
	var held [3]reg.VecVirtual // the first halves of the tables
	for i := range held {
		held[i] = ZMM()
		VMOVUPS(At(lines, 128*i), held[i])
	}
	line := func(i int, at reg.VecVirtual) reg.VecVirtual {
		r := ZMM()
		VMOVDQA64(at, r)
		VPERMI2PS(At(lines, 128*i+64), held[i], r)
		return r
	}
	zero, zeroWord := ZMM(), ZMM()
	z := Arg("zero").As32()
	VPBROADCASTB(z, zero)
	VPBROADCASTW(z, zeroWord)
	x, codes := Arg("x"), Arg("codes")
	scale, order := v.broadcast(At(Arg("scale"), 0)), inFours()
	abs, low, high, minusOne := v.Splat(0x7fffffff), v.Splat(bucketLow<<bucketShift), v.Splat(bucketHigh<<bucketShift), v.Splat(1<<32-1)
	fours.each(1, []stream{{x, 4}, {codes, 1}}, func(disp int) {
		var magnitudes, guesses [4]reg.VecVirtual
		for i := range guesses {
			y, m, at, beyond := ZMM(), ZMM(), ZMM(), K()
			VMOVUPS(At(x, 4*(disp+16*i)), y)
			VDIVPS(scale, y, y)
			VPANDD(abs, y, m)
			VPMAXSD(low, m, m)
			VPMINSD(high, m, m)
			VPSRLD(Imm(23), m, at)
			VPCMPD(Imm(5), line(0, at), m, beyond) // m >= the breakpoint
			VPSUBD(minusOne, at, beyond, at)
			slope, guess := line(2, at), line(1, at)
			VFMADD231PS(m, slope, guess)
			VPTERNLOGD(Imm(0xe4), abs, y, guess) // copies the sign of y
			VCVTPS2DQ(guess, guess)
			magnitudes[i], guesses[i] = m, guess
		}
		c, upper := ZMM(), ZMM()
		VPACKSSDW(guesses[1], guesses[0], c)
		VPACKSSDW(guesses[3], guesses[2], upper)
		VPADDW(zeroWord, c, c)
		VPADDW(zeroWord, upper, upper)
		VPACKUSWB(upper, c, c)
		over := borders.find(c)
		for i, m := range magnitudes {
			VPSUBD(over[i], m, over[i])
		}
		VPACKSSDW(over[1], over[0], over[0])
		VPACKSSDW(over[3], over[2], over[2])
		VPACKSSWB(over[2], over[0], over[0])
		below, up, down := K(), K(), K()
		VPMOVB2M(over[0], below)
		VPCMPUB(Imm(1), zero, c, below, up) // c < zero
		KANDNQ(below, up, down)
		VPSUBB(minusOne, c, up, c)
		VPADDB(minusOne, c, down, c)
		VPERMD(c, order, c)
		VMOVUPS(c, At(codes, disp))
	})
	End()
}
