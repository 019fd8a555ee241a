package main

import "mt/tools/asm/neon"

// unit is a gated linear unit: x·sigmoid(z), where z is x, or with gelu 2√(2/π)(x + 0.044715x³). It is computed as the
// assembly for x86 does, but that the reciprocal is a division.
type unit struct {
	exponential
	gelu                     bool
	line, cube, thrice, most neon.V
}

func (f *row) newUnit(gelu bool) unit {
	u := unit{exponential: f.newExp(), gelu: gelu}
	if gelu {
		const scale = 1.5957691216057308 // 2√(2/π)
		u.line, u.cube, u.thrice = f.constant(scale), f.constant(0.044715*scale), f.constant(3*0.044715*scale)
		u.most = f.constant(1e4)
	}
	return u
}

// unitName is what the functions of a unit are called.
func unitName(gelu bool) string {
	if gelu {
		return "geglu"
	}
	return "swiglu"
}

// sigmoid sets s to 1 / (1 + e^−z), and slope, where that is wanted (gelu), to dz/dx.
func (u unit) sigmoid(s, x neon.V, slope *neon.V) {
	f := u.Func
	if !u.gelu {
		f.FNEG(s, x)
	} else {
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

func glu(gelu bool) {
	f := newRow(unitName(gelu), "func(y, gate, up *float32, n int)", "is y = f(gate)·up.")
	p, n, u := f.Args("y", "gate", "up"), f.Arg("n"), f.newUnit(gelu)
	f.each(n, 2, p, func(at place) {
		g, s := at.load(p[1]), f.Reg()
		u.sigmoid(s, g, nil)
		f.FMUL(s, s, g)
		f.FMUL(s, s, at.load(p[2]))
		at.store(s, p[0])
	})
	f.Ret()
}

func gluGrad(gelu, forward bool) {
	name, signature := unitName(gelu)+"Grad", "func(dgate, dup, dy, gate, up *float32, n int)"
	doc, args := "is the gradient of "+unitName(gelu)+"; dgate may be gate and dup may be up.", []string{"dgate", "dup", "dy", "gate", "up"}
	if forward {
		doc, args = "is "+name+" and y = f(gate)·up as well; y may be dy.", append(args, "y")
		name, signature = name+"Y", "func(dgate, dup, y, dy, gate, up *float32, n int)"
	}
	f := newRow(name, signature, doc)
	p, n, u := f.Args(args...), f.Arg("n"), f.newUnit(gelu)
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
		if gelu {
			f.FMUL(g, g, slope)
		}
		f.FADD(g, g, s)
		f.FMUL(up, up, g)
		at.store(up, p[0])
	})
	f.Ret()
}
