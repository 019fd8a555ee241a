package main

import "mt/tools/asm/neon"

// unit generates gated linear units x·sigmoid(z), where z is a function of x. The x86 generator, tools/_asm/vec/glu.go,
// describes the kinds. The computation is the same as there, except that a division replaces the approximate
// reciprocal.
type unit struct {
	exponential
	kind                     string
	line, cube, thrice, most neon.V
}

const (
	swiglu = "swiglu"
	geglu  = "geglu"
	erfglu = "erfglu"
)

// logit and logitEnd describe a polynomial; they are copies from tools/_asm/vec/glu.go, which explains them.
var logit = []float32{1.5957716703414917, 0.07266046106815338, -5.9747755585704e-05, -0.00011280125909252092,
	8.350795724254567e-06, -3.0449308496827143e-07, 5.2709117071003675e-09, -2.779469363001219e-11}

const logitEnd = 30

func (f *row) newUnit(kind string) unit {
	u := unit{exponential: f.newExp(), kind: kind}
	switch kind {
	case geglu:
		const scale = 1.5957691216057308 // 2√(2/π)
		u.line, u.cube, u.thrice = f.constant(scale), f.constant(0.044715*scale), f.constant(3*0.044715*scale)
		u.most = f.constant(1e4)
	case erfglu:
		u.most = f.constant(logitEnd)
	}
	return u
}

// sigmoid generates s = 1 / (1 + e^−z). If slope is not nil and dz/dx is not 1, it also sets the register *slope to
// dz/dx.
func (u unit) sigmoid(s, x neon.V, slope *neon.V) {
	f := u.Func
	switch u.kind {
	case swiglu:
		f.FNEG(s, x)
	case erfglu:
		f.Scope(func() { u.logit(s, x, slope) })
	default:
		f.Scope(func() {
			square := f.Reg()
			f.FMUL(square, x, x)
			f.FMIN(square, square, u.most)
			f.MOV(s, u.line)
			f.FMLA(s, u.cube, square)
			f.FMUL(s, s, x)
			f.FNEG(s, s)
			if slope != nil {
				f.MOV(*slope, u.line)
				f.FMLA(*slope, u.thrice, square)
			}
		})
	}
	u.apply(s)
	f.FADD(s, s, u.one)
	f.FDIV(s, u.one, s)
}

// logit sets s to −z for the unit erfglu (GELU by erf): z is the logit of the normal distribution
// at x. If slope is wanted, it also computes dz/dx. There are too few registers for all constants,
// so it loads them one at a time.
func (u unit) logit(s, x neon.V, slope *neon.V) {
	f := u.Func
	square, last := f.Reg(), len(logit)-1
	f.FMUL(square, x, x)
	f.FMIN(square, square, u.most)
	p, d := u.constant(logit[last]), f.Zeros()
	for i := last - 1; i >= 0; i-- {
		f.Scope(func() {
			if slope != nil {
				f.MOV(*slope, p)
				f.FMLA(*slope, d, square)
				f.MOV(d, *slope)
			}
			next := u.constant(logit[i])
			f.FMLA(next, p, square)
			f.MOV(p, next)
		})
	}
	f.FMUL(s, p, x)
	f.FNEG(s, s)
	if slope != nil {
		f.FADD(square, square, square)
		f.MOV(*slope, p)
		f.FMLA(*slope, d, square)
	}
}

func glu(kind string) {
	f := newRow(kind, "func(y, gate, up *float32, n int)", "is y = f(gate)·up.")
	p, n, u := f.Args("y", "gate", "up"), f.Arg("n"), f.newUnit(kind)
	f.each(n, 2, p, func(at place) {
		g, s := at.load(p[1]), f.Reg()
		u.sigmoid(s, g, nil)
		f.FMUL(s, s, g)
		f.FMUL(s, s, at.load(p[2]))
		at.store(s, p[0])
	})
	f.Ret()
}

func gluGrad(kind string, forward bool) {
	name, signature := kind+"Grad", "func(dgate, dup, dy, gate, up *float32, n int)"
	doc, args := "is the gradient of "+kind+"; dgate may be gate and dup may be up.", []string{"dgate", "dup", "dy", "gate", "up"}
	if forward {
		doc, args = "is "+name+" and y = f(gate)·up as well; y may be dy.", append(args, "y")
		name, signature = name+"Y", "func(dgate, dup, y, dy, gate, up *float32, n int)"
	}
	f := newRow(name, signature, doc)
	p, n, u := f.Args(args...), f.Arg("n"), f.newUnit(kind)
	f.each(n, 1, p, func(at place) {
		g, s, slope := at.load(p[3]), f.Reg(), f.Reg()
		u.sigmoid(s, g, &slope)
		f.FMUL(g, g, s) // f(gate)
		dy, up := at.load(p[2]), at.load(p[4])
		if forward {
			y := f.Reg()
			f.FMUL(y, g, up)
			at.store(y, p[5])
		}
		f.FMUL(up, up, dy) // the gradient of f(gate)
		f.FMUL(dy, dy, g)
		at.store(dy, p[1])
		f.FMLS(g, g, s) // f·(1 − σ)
		if kind != swiglu {
			f.FMUL(g, g, slope)
		}
		f.FADD(g, g, s)
		f.FMUL(up, up, g)
		at.store(up, p[0])
	})
	f.Ret()
}
