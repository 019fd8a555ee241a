package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

// sigmoid generates 1 / (1 + e^−x); its fields hold the constants.
type sigmoid struct {
	exponential
	sign, two Op
}

func (v isa) newSigmoid() sigmoid {
	s := sigmoid{exponential: v.newExp(), sign: v.bits(1 << 31), two: v.constant(2)}
	s.high = v.constant(87) // keeps the reciprocal below a normal number
	return s
}

// of generates 1 / (1 + e^−x) and returns the register with the result.
func (s sigmoid) of(x reg.VecVirtual) reg.VecVirtual {
	v := s.isa
	d, r, t := v.Reg(), v.Reg(), v.Reg()
	if !v.Wide() {
		VXORPS(s.sign, x, d)
		s.apply(d)
		VADDPS(s.one, d, d)
		VMOVUPS(s.one, r)
		VDIVPS(d, r, r)
		return r
	}
	VPXORD(s.sign, x, d)
	s.apply(d)
	VADDPS(s.one, d, d)
	VRCP14PS(d, r) // relative error 2^-14; one Newton step squares the error
	VMOVAPS(s.two.(reg.VecVirtual), t)
	VFNMADD231PS(d, r, t)
	VMULPS(t, r, r)
	return r
}

// unit generates a gated linear unit x·sigmoid(z). The kind says which function of x the argument z
// is.
type unit struct {
	sigmoid
	kind                     string
	line, cube, thrice, most Op
}

// The kinds are also the names of the generated functions:
//   - swiglu: z = x
//   - geglu: z = 2√(2/π)(x + 0.044715x³)
//   - erfglu: z is the logit of the normal distribution, so x·sigmoid(z) = x/2·(1 + erf(x/√2))
const (
	swiglu = "swiglu"
	geglu  = "geglu"
	erfglu = "erfglu"
)

// logit lists the coefficients of a polynomial in x². The polynomial times x is the logit log(Φ(x)/Φ(−x)). Beyond x² =
// logitEnd, Φ is 0 or 1 in fp32. docs/decisions/2026-11-layer-norm.md describes the fit.
var logit = []float32{1.5957716703414917, 0.07266046106815338, -5.9747755585704e-05, -0.00011280125909252092,
	8.350795724254567e-06, -3.0449308496827143e-07, 5.2709117071003675e-09, -2.779469363001219e-11}

const logitEnd = 30

func (v isa) newUnit(kind string) unit {
	u := unit{sigmoid: v.newSigmoid(), kind: kind}
	switch kind {
	case geglu:
		const scale = 1.5957691216057308 // 2√(2/π)
		u.line, u.cube, u.thrice = v.constant(scale), v.constant(0.044715*scale), v.constant(3*0.044715*scale)
		u.most = v.constant(1e4)
	case erfglu:
		u.most = v.memory(logitEnd)
	}
	return u
}

// argument generates z, the argument of the unit's sigmoid, and returns its register. With slope it
// also returns dz/dx; nil: dz/dx is 1. The square of x is capped at a value from which on
// sigmoid(z) is 0 or 1. So dz/dx stays finite, and 0 times dz/dx stays 0.
func (u unit) argument(x reg.VecVirtual, slope bool) (z, dz reg.VecVirtual) {
	if u.kind == swiglu {
		return x, nil
	}
	square := u.Reg()
	z = u.Reg()
	VMULPS(x, x, square)
	VMINPS(u.most, square, square)
	if u.kind == erfglu {
		return u.logit(x, square, slope)
	}
	VMOVUPS(u.line, z)
	VFMADD231PS(u.cube, square, z)
	VMULPS(x, z, z)
	if slope {
		dz = u.Reg()
		VMOVUPS(u.line, dz)
		VFMADD231PS(u.thrice, square, dz)
	}
	return z, dz
}

// logit generates z for the unit erfglu, x times a polynomial in x², by Horner's rule. With slope it also returns dz/dx
// = p + 2·square·d, where d is the derivative of the polynomial p by the square.
func (u unit) logit(x, square reg.VecVirtual, slope bool) (z, dz reg.VecVirtual) {
	p, z := u.Reg(), u.Reg()
	VMOVUPS(u.memory(logit[len(logit)-1]), p)
	if slope {
		dz = u.Zero()
	}
	for i := len(logit) - 2; i >= 0; i-- {
		if slope {
			VFMADD213PS(p, square, dz)
		}
		VFMADD213PS(u.memory(logit[i]), square, p)
	}
	VMULPS(x, p, z)
	if slope {
		VADDPS(square, square, square)
		VFMADD213PS(p, square, dz)
	}
	return z, dz
}

func glu(v isa, kind string) {
	v.Begin(kind, "func(y, gate, up *float32, n int)", "is y = f(gate)·up.")
	p := Args("y", "gate", "up")
	n, s := Arg("n"), v.newUnit(kind)
	v.each(n, 2, p, func(_, d int, mask reg.Register) {
		g := v.load(At(p[1], d), mask)
		z, _ := s.argument(g, false)
		y := s.of(z)
		VMULPS(g, y, y)
		u := v.load(At(p[2], d), mask)
		VMULPS(u, y, y)
		v.Store(y, At(p[0], d), mask)
	})
	End()
}

func gluGrad(v isa, name string, forward bool) {
	if forward {
		v.Begin(name+"GradY", "func(dgate, dup, y, dy, gate, up *float32, n int)",
			"is "+name+"Grad and y = f(gate)·up as well; y may be dy.")
	} else {
		v.Begin(name+"Grad", "func(dgate, dup, dy, gate, up *float32, n int)",
			"is the gradient of "+name+"; dgate may be gate and dup may be up.")
	}
	p := Args("dgate", "dup", "dy", "gate", "up")
	if forward {
		p = append(p, Args("y")...)
	}
	n, s := Arg("n"), v.newUnit(name)
	v.each(n, 1, p, func(_, d int, mask reg.Register) {
		g := v.load(At(p[3], d), mask)
		z, dz := s.argument(g, true)
		sig := s.of(z)
		f := v.Reg()
		VMULPS(g, sig, f)
		dy, u := v.load(At(p[2], d), mask), v.load(At(p[4], d), mask)
		if forward {
			y := v.Reg()
			VMULPS(f, u, y)
			v.Store(y, At(p[5], d), mask)
		}
		VMULPS(dy, u, u) // gradient of f(gate)
		VMULPS(f, dy, dy)
		v.Store(dy, At(p[1], d), mask)
		VFNMADD231PS(f, sig, f) // f·(1 − σ)
		if dz != nil {
			VMULPS(dz, f, f)
		}
		VADDPS(sig, f, f)
		VMULPS(f, u, u)
		v.Store(u, At(p[0], d), mask)
	})
	End()
}
