package main

import (
	"math"

	"mt/tools/asm/neon"
)

// exponential generates e^x with the same algorithm as the x86 version (tools/_asm/vec/exp.go). Its
// fields are the registers of the constants.
type exponential struct {
	*row
	low, high, log2e, magic, ln2hi, ln2lo, one, bias neon.V
	q                                                [5]neon.V
}

func (f *row) newExp() exponential {
	e := exponential{row: f,
		low:   f.constant(-104), // e^-104 rounds to 0 in fp32
		high:  f.constant(89),   // e^89 exceeds the largest fp32
		log2e: f.constant(math.Log2E),
		magic: f.constant(3 << 22), // adding it rounds to an integer
		ln2hi: f.constant(0.693145751953125),
		ln2lo: f.constant(1.428606765330187e-06),
		one:   f.constant(1),
		bias:  f.Splat(127),
	}
	for i, c := range []float32{0.4999999403953552, 0.1666652113199234, 0.04166838899254799,
		0.00836874544620514, 0.0013814540579915047} {
		e.q[i] = f.constant(c)
	}
	return e
}

// apply generates x = e^x for the lanes of a register. NaN stays NaN.
func (e exponential) apply(x neon.V) {
	f := e.Func
	f.Scope(func() {
		f.FMAX(x, x, e.low)
		f.FMIN(x, x, e.high)
		z, n, sum, half := f.Reg(), f.Reg(), f.Reg(), f.Reg()
		f.MOV(z, e.magic)
		f.FMLA(z, x, e.log2e)
		f.FSUB(n, z, e.magic)
		f.FMLS(x, n, e.ln2hi)
		f.FMLS(x, n, e.ln2lo)
		r := e.q[4]
		for i, c := range []neon.V{e.q[3], e.q[2], e.q[1], e.q[0], e.one, e.one} {
			to := [2]neon.V{sum, n}[i%2]
			f.MOV(to, c)
			f.FMLA(to, r, x)
			r = to
		}
		f.SUB(z, z, e.magic) // n as an integer
		f.SSHR(half, z, 1)   // 2^n as the product of two normal numbers
		f.SUB(z, z, half)
		for _, k := range []neon.V{z, half} {
			f.ADD(k, k, e.bias)
			f.SHL(k, k, 23)
		}
		f.FMUL(r, r, z)
		f.FMUL(x, r, half)
	})
}

// exponential2 generates 2^x with the same algorithm as the x86 version.
type exponential2 struct {
	*row
	low, high, magic, one neon.V
	c                     [6]neon.V
}

func (f *row) newExp2() exponential2 {
	e := exponential2{row: f, low: f.constant(-127), high: f.constant(128), magic: f.constant(3 << 22), one: f.constant(1)}
	for i, c := range []float32{0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142,
		0.0013390806270763278, 0.0001532646274426952} {
		e.c[i] = f.constant(c)
	}
	return e
}

// apply generates x = 2^x for the lanes of a register. NaN stays NaN.
func (e exponential2) apply(x neon.V) {
	f := e.Func
	f.Scope(func() {
		f.FMAX(x, x, e.low)
		f.FMIN(x, x, e.high)
		z, n, sum := f.Reg(), f.Reg(), f.Reg()
		f.FADD(z, x, e.magic)
		f.FSUB(n, z, e.magic)
		f.FSUB(x, x, n)
		r := e.c[5]
		for i, c := range []neon.V{e.c[4], e.c[3], e.c[2], e.c[1], e.c[0], e.one} {
			to := [2]neon.V{sum, n}[i%2]
			f.MOV(to, c)
			f.FMLA(to, r, x)
			r = to
		}
		f.SHL(z, z, 23) // the integer, in the place of an exponent
		f.ADD(z, z, e.one)
		f.FMUL(x, r, z)
	})
}

// expSum generates the function name, which computes exponentials and their sum. power is exp or 2^. newExp generates
// the constants, and returns what generates power.
func expSum(name, power string, newExp func(*row) func(neon.V), stores bool) {
	signature, doc := "func(x *float32, n int, scale, shift float32) float32", "is Σ "+power+"(scale·x − shift)."
	args := []string{"x"}
	if stores {
		signature = "func(dst, x *float32, n int, scale, shift float32) float32"
		doc, args = "is dst = "+power+"(scale·x − shift) and returns the sum; dst may be x.", []string{"x", "dst"}
	}
	f := newRow(name, signature, doc)
	p, n, scale, shift := f.Args(args...), f.Arg("n"), f.SpreadArg("scale"), f.SpreadArg("shift")
	f.FNEG(shift, shift)
	f.clears()
	apply, acc := newExp(f), f.accumulators(2)
	f.each(n, 2, p, func(at place) {
		x, y := at.load(p[0]), f.Reg()
		f.MOV(y, shift)
		f.FMLA(y, scale, x)
		apply(y)
		if stores {
			at.store(y, p[1])
		}
		at.clear(y)
		f.FADD(acc[at.i], acc[at.i], y)
	})
	f.total(acc)
}

// gradRow generates the backward of softmax for one row of attention scores. GradStrip of package
// vec calls the function for each row of a strip of scores.
func gradRow() {
	f := newRow("gradRow", "func(x, dx *float32, n int, factor, scale, lse, delta float32)",
		"is x = 2^(factor·x − lse) and dx = scale·x·(dx − delta).")
	p, n, factor, scale := f.Args("x", "dx"), f.Arg("n"), f.SpreadArg("factor"), f.SpreadArg("scale")
	lse, delta, e := f.SpreadArg("lse"), f.SpreadArg("delta"), f.newExp2()
	f.FNEG(lse, lse)
	f.each(n, 2, p, func(at place) {
		x, dx, y := at.load(p[0]), at.load(p[1]), f.Reg()
		f.MOV(y, lse)
		f.FMLA(y, factor, x)
		e.apply(y)
		at.store(y, p[0])
		f.FSUB(dx, dx, delta)
		f.FMUL(y, scale, y)
		f.FMUL(dx, dx, y)
		at.store(dx, p[1])
	})
	f.Ret()
}
