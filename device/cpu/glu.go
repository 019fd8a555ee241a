package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, glu)
	op.Add(&table, gluBackward)
}

// glu computes Y row by row. All steps of a row run while the row is in the cache. Source: arXiv:2002.05202.
func glu(s *stream, a *op.GLU) error {
	reads(a.GU, 1, 0, 2*a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, out, unit, cut := actOf(a.GU), actOf(a.Y), vec.SwiGLU, a.Activation == op.CutSiLU
	switch a.Activation {
	case op.GELUTanh:
		unit = vec.GeGLU
	case op.GELU:
		unit = vec.ErfGLU
	case op.SigmoidGate:
		unit = sigmoidGLU
	case op.ReLU:
		unit = reluGLU
	}
	s.forRows(a.T, 3*a.F, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row, act := in.load(sc, 0, 2*t*a.F, 2*a.F), out.target(sc, 1, t*a.F, a.F)
			if cut {
				row = cutOff(sc.f32(2, 2*a.F), row, a.Cut)
			}
			unit(act, row[:a.F], row[a.F:])
			out.store(t*a.F, act)
		}
	})
	return nil
}

// gluBackward computes DGU and Y row by row. All steps of a row run while the row is in the cache. DGU may be GU, Y may
// be DY.
func gluBackward(s *stream, a *op.GLUBackward) error {
	reads(a.GU, 1, 0, 2*a.T*a.F)
	reads(a.DY, 1, 0, a.T*a.F)
	writes(a.DGU, 1, 0, 2*a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, grad, din, act, unit := actOf(a.GU), actOf(a.DY), actOf(a.DGU), actOf(a.Y), vec.SwiGLUGrad
	switch a.Activation {
	case op.GELUTanh:
		unit = vec.GeGLUGrad
	case op.CutSiLU:
		unit = nil
	case op.GELU:
		unit = vec.ErfGLUGrad
	case op.SigmoidGate:
		unit = sigmoidGrad
	case op.ReLU:
		unit = reluGrad
	}
	s.forRows(a.T, 6*a.F, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row, dout := in.load(sc, 0, 2*t*a.F, 2*a.F), grad.load(sc, 1, t*a.F, a.F)
			drow := din.target(sc, 2, 2*t*a.F, 2*a.F)
			var out []float32
			if !a.Y.None() {
				out = act.target(sc, 3, t*a.F, a.F)
			}
			if unit == nil {
				cutGrad(drow, out, dout, row, sc.f32(4, 2*a.F), a.Cut)
			} else {
				unit(drow[:a.F], drow[a.F:], out, dout, row[:a.F], row[a.F:])
			}
			if out != nil {
				act.store(t*a.F, out)
			}
			din.store(2*t*a.F, drow)
		}
	})
	return nil
}

// cutOff prepares a row of gates and ups so that vec.SwiGLU, applied to dst, computes op.CutSiLU.
// It writes Alpha·min(gate, Limit), then (1 + up)/Alpha with up clamped to ±Limit.
func cutOff(dst, row []float32, cut op.Cut) []float32 {
	f := len(row) / 2
	for i, g := range row[:f] {
		dst[i] = cut.Alpha * min(g, cut.Limit)
	}
	by := 1 / cut.Alpha
	for i, u := range row[f:] {
		dst[f+i] = by * (1 + min(max(u, -cut.Limit), cut.Limit))
	}
	return dst
}

// cutGrad does for op.CutSiLU what vec.SwiGLUGrad does for SwiGLU: from dout, the gradient of the
// result, it writes the gradients of gate and up to drow. It writes the result to out. drow may be
// row. buf is scratch memory for one row.
func cutGrad(drow, out, dout, row, buf []float32, cut op.Cut) {
	f := len(row) / 2
	cutOff(buf, row, cut)
	vec.SwiGLUGrad(buf[:f], buf[f:], out, dout, buf[:f], buf[f:])
	for i, d := range buf[:f] {
		if row[i] > cut.Limit {
			d = 0
		}
		drow[i] = cut.Alpha * d
	}
	by := 1 / cut.Alpha
	for i, d := range buf[f:] {
		if row[f+i] > cut.Limit || row[f+i] < -cut.Limit {
			d = 0
		}
		drow[f+i] = by * d
	}
}

// sigmoidGLU computes y = σ(gate)·up, where σ is the sigmoid.
func sigmoidGLU(y, gate, up []float32) {
	for i, g := range gate {
		y[i] = up[i] / (1 + float32(math.Exp(float64(-g))))
	}
}

// sigmoidGrad writes the gradients of gate and up, and the result of sigmoidGLU unless y is nil. dgate may be gate,
// dup may be up and y may be dy.
func sigmoidGrad(dgate, dup, y, dy, gate, up []float32) {
	for i, g := range gate {
		s, d, u := 1/(1+float32(math.Exp(float64(-g)))), dy[i], up[i]
		dgate[i], dup[i] = d*u*s*(1-s), d*s
		if y != nil {
			y[i] = s * u
		}
	}
}

// reluGLU computes y = max(0, gate)·up. A NaN stays a NaN.
func reluGLU(y, gate, up []float32) {
	for i, g := range gate {
		y[i] = max(0, g) * up[i]
	}
}

// reluGrad writes the gradients for reluGLU. Its arguments are as in sigmoidGrad.
func reluGrad(dgate, dup, y, dy, gate, up []float32) {
	for i, g := range gate {
		d, u := dy[i], up[i]
		g = max(0, g)
		dgate[i], dup[i] = d*u, d*g
		if g == 0 {
			dgate[i] = 0
		}
		if y != nil {
			y[i] = g * u
		}
	}
}

// squaredReLU computes y = max(0, gate)²·up. A NaN stays a NaN.
func squaredReLU(y, gate, up []float32) {
	for i, g := range gate {
		g = max(0, g)
		y[i] = g * g * up[i]
	}
}

// squaredReLUGrad writes the gradients for squaredReLU. Its arguments are as in sigmoidGrad.
func squaredReLUGrad(dgate, dup, y, dy, gate, up []float32) {
	for i, g := range gate {
		d, u := dy[i], up[i]
		g = max(0, g)
		dgate[i], dup[i] = 2*d*u*g, d*g*g
		if y != nil {
			y[i] = g * g * u
		}
	}
}
