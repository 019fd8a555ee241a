package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// exponential generates e^x; its fields are the constants. With x = n·ln 2 + r, the result is
// e^r·2^n, where e^r = 1 + r + r²·q(r). The polynomial q of degree 4 minimizes the largest relative
// error over |r| ≤ ln 2 / 2. That error is 4e-9, so rounding dominates.
type exponential struct {
	isa
	low, high, log2e, magic, ln2hi, ln2lo, one Op
	q                                          [5]Op
	bias                                       Op // AVX2: exponent bias
}

func (v isa) newExp() exponential {
	e := exponential{isa: v,
		low:   v.constant(-104), // e^-104 rounds to 0 in fp32
		high:  v.constant(89),   // e^89 exceeds the largest fp32
		log2e: v.constant(math.Log2E),
		magic: v.constant(3 << 22), // adding it rounds to an integer
		ln2hi: v.constant(0.693145751953125),
		ln2lo: v.constant(1.428606765330187e-06),
		one:   v.constant(1),
	}
	for i, c := range []float32{0.4999999403953552, 0.1666652113199234, 0.04166838899254799,
		0.00836874544620514, 0.0013814540579915047} {
		e.q[i] = v.constant(c)
	}
	if !v.Wide() {
		e.bias = v.bits(127)
	}
	return e
}

// apply generates x = e^x for the lanes of a register. NaN stays NaN.
func (e exponential) apply(x reg.VecVirtual) {
	v := e.isa
	v.limit(VMAXPS, x, e.low)
	v.limit(VMINPS, x, e.high)
	n, r := v.Reg(), v.Reg()
	z := v.Reg()
	VMOVUPS(e.magic, z)
	VFMADD231PS(e.log2e, x, z)
	VSUBPS(e.magic, z, n)
	VFNMADD231PS(e.ln2hi, n, x)
	VFNMADD231PS(e.ln2lo, n, x)
	VMOVUPS(e.q[4], r)
	for _, c := range []Op{e.q[3], e.q[2], e.q[1], e.q[0], e.one, e.one} {
		VFMADD213PS(c, x, r)
	}
	if v.Wide() {
		VSCALEFPS(n, r, x)
		return
	}
	half := v.Reg()
	VPSUBD(e.magic, z, z)   // n as an integer
	VPSRAD(Imm(1), z, half) // 2^n as the product of two normal numbers
	VPSUBD(half, z, z)
	for _, k := range []reg.VecVirtual{z, half} {
		VPADDD(e.bias, k, k)
		VPSLLD(Imm(23), k, k)
		VMULPS(k, r, r)
	}
	VMOVAPS(r, x)
}

// exponential2 generates 2^x; its fields are the constants. With an integer n and |r| ≤ ½, x = n + r, and the result is
// 2^r·2^n. The polynomial of degree 6 for 2^r minimizes the largest relative error, 3e-9.
type exponential2 struct {
	isa
	low, high, magic, one Op
	c                     [6]Op
}

func (v isa) newExp2() exponential2 {
	low := float32(-127)
	if v.Wide() {
		low = -151 // 2^-151 rounds to 0 in fp32
	}
	e := exponential2{isa: v,
		low:   v.constant(low),
		high:  v.constant(128),
		magic: v.constant(3 << 22), // adding it rounds to an integer
		one:   v.constant(1),
	}
	for i, c := range []float32{0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142,
		0.0013390806270763278, 0.0001532646274426952} {
		e.c[i] = v.constant(c)
	}
	return e
}

// apply generates x = 2^x for the lanes of a register: +Inf from 2^128 on, or with AVX2 from 2^127.5
// on, and 0 below 2^-150, or with AVX2 below 2^-126.5. NaN stays NaN.
func (e exponential2) apply(x reg.VecVirtual) {
	v := e.isa
	v.limit(VMAXPS, x, e.low)
	v.limit(VMINPS, x, e.high)
	n, r, z := v.Reg(), v.Reg(), v.Reg()
	VADDPS(e.magic, x, z)
	VSUBPS(e.magic, z, n)
	VSUBPS(n, x, x)
	VMOVUPS(e.c[5], r)
	for _, c := range []Op{e.c[4], e.c[3], e.c[2], e.c[1], e.c[0], e.one} {
		VFMADD213PS(c, x, r)
	}
	if v.Wide() {
		VSCALEFPS(n, r, x)
		return
	}
	VPSLLD(Imm(23), z, z) // n, in the place of an exponent
	VPADDD(e.one, z, z)
	VMULPS(z, r, x)
}

// limit generates op(x, c) for the lanes of a register. VMAXPS and VMINPS return their second source if an operand is
// NaN: NaN stays NaN.
func (v isa) limit(op func(...Op), x reg.VecVirtual, c Op) {
	t := v.Reg()
	VMOVUPS(c, t)
	op(x, t, x)
}

func maxOf(v isa) {
	v.Begin("max", "func(x *float32, n int) float32", "is the largest of x, −Inf for none; a NaN may be passed over.")
	p := Args("x")
	n := Arg("n")
	lowest := v.Reg()
	VMOVUPS(v.constant(float32(math.Inf(-1))), lowest)
	var acc [4]reg.VecVirtual
	for i := range acc {
		acc[i] = v.Reg()
		VMOVAPS(lowest, acc[i])
	}
	v.each(n, 4, p, func(i, d int, mask reg.Register) {
		x := v.load(At(p[0], d), mask)
		v.fill(x, lowest, mask)
		VMAXPS(x, acc[i], acc[i])
	})
	VMAXPS(acc[1], acc[0], acc[0])
	VMAXPS(acc[3], acc[2], acc[2])
	VMAXPS(acc[2], acc[0], acc[0])
	v.result(v.fold(acc[0], VMAXPS))
}

func expSum(v isa, stores bool) {
	if stores {
		v.Begin("expSum", "func(dst, x *float32, n int, scale, shift float32) float32",
			"is dst = exp(scale·x − shift) and returns the sum; dst may be x.")
	} else {
		v.Begin("sumExp", "func(x *float32, n int, scale, shift float32) float32", "is Σ exp(scale·x − shift).")
	}
	var p []reg.GPVirtual
	if stores {
		p = Args("x", "dst")
	} else {
		p = Args("x")
	}
	n, scale, shift := Arg("n"), v.broadcast("scale"), v.broadcast("shift")
	e := v.newExp()
	acc := [2]reg.VecVirtual{v.Zero(), v.Zero()}
	v.each(n, 2, p, func(i, d int, mask reg.Register) {
		x := v.load(At(p[0], d), mask)
		VFMSUB213PS(shift, scale, x)
		e.apply(x)
		if stores {
			v.Store(x, At(p[1], d), mask)
		}
		v.clear(x, mask)
		VADDPS(x, acc[i], acc[i])
	})
	VADDPS(acc[1], acc[0], acc[0])
	v.result(v.fold(acc[0], VADDPS))
}
