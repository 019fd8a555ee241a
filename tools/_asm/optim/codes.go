package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// gather reads the 32-bit words at p, scale times the index of each lane on.
func (v isa) gather(p reg.Register, index reg.VecVirtual, scale uint8) reg.VecVirtual {
	r := v.Zero() // so that it is another register than the index
	m := Mem{Base: p, Index: index, Scale: scale}
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

// decode writes what makes numbers of codes of a byte: values[code] times the scale.
func decode(v isa) {
	v.Begin("decode", "func(values *float32, codes *byte, out *float32, n int, scale *float32)",
		"sets out to n numbers with these codes; n is a multiple of the lanes.")
	values, codes, out := Arg("values"), Arg("codes"), Arg("out")
	scale := v.broadcast(At(Arg("scale"), 0))
	v.each(unroll, []stream{{codes, 1}, {out, 4}}, func(disp int) {
		c := v.Reg()
		VPMOVZXBD(At(codes, disp), c)
		x := v.gather(values, c, 4)
		VMULPS(scale, x, x)
		VMOVUPS(x, At(out, 4*disp))
	})
	VZEROUPPER()
	RET()
}

// The places in the table of codes by a number's upper bits: see bucket in host/optim/codes.go.
const (
	bucketLow  = 0x3400
	bucketHigh = 0x3f80
	bucketSpan = bucketHigh - bucketLow + 1
)

// encode writes what finds the codes of numbers: the least that the upper bits allow, or the next where
// the number is not below the first with that.
func encode(v isa) {
	v.Begin("encode", "func(least *byte, next, x *float32, codes *byte, n int, scale *float32)",
		"sets codes to those of n numbers over the scale; n is a multiple of the lanes.")
	least, next, x, codes := Arg("least"), Arg("next"), Arg("x"), Arg("codes")
	scale := v.broadcast(At(Arg("scale"), 0))
	abs, low, high, span, byteMask := v.Splat(0x7fffffff), v.Splat(bucketLow), v.Splat(bucketHigh), v.Splat(bucketSpan), v.Splat(0xff)
	one := v.Splat(1)
	and := func(a Op, r reg.VecVirtual) {
		if v.Wide() {
			VPANDD(a, r, r)
		} else {
			VPAND(a, r, r)
		}
	}
	v.each(unroll, []stream{{x, 4}, {codes, 1}}, func(disp int) {
		y, at, sign := v.Reg(), v.Reg(), v.Reg()
		VMOVUPS(At(x, 4*disp), y)
		VDIVPS(scale, y, y)
		VPSRAD(Imm(31), y, sign)
		and(span, sign)
		if v.Wide() {
			VPANDD(abs, y, at)
		} else {
			VPAND(abs, y, at)
		}
		VPSRLD(Imm(16), at, at)
		VPMAXSD(low, at, at)
		VPMINSD(high, at, at)
		VPSUBD(low, at, at)
		VPADDD(sign, at, at)
		c := v.gather(least, at, 1)
		and(byteMask, c)
		from := v.gather(next, c, 4)
		if v.Wide() {
			k := K()
			VCMPPS(Imm(0x1d), from, y, k) // y >= from, false for NaN
			VPADDD(one, c, k, c)
			VPMOVDB(c, At(codes, disp))
			return
		}
		VCMPPS(Imm(0x1d), from, y, from)
		VPSUBD(from, c, c)
		upper := XMM()
		VEXTRACTI128(Imm(1), c, upper)
		VPACKUSDW(upper, c.AsX(), upper)
		VPACKUSWB(upper, upper, upper)
		VMOVQ(upper, At(codes, disp))
	})
	VZEROUPPER()
	RET()
}

// greatest writes the search for the greatest magnitude.
func greatest(v isa) {
	v.Begin("greatest", "func(x *float32, n int, lanes *[16]uint32)",
		"sets lanes to the bits of the greatest magnitudes of every lane; n is a multiple of the lanes.")
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
	VMOVUPS(most, At(Arg("lanes"), 0))
	VZEROUPPER()
	RET()
}
