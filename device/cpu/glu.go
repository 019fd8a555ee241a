package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, glu)
	op.Add(&table, gluBackward)
}

// glu works on a row while the row is in the cache. Source: arXiv:2002.05202.
func glu(s *stream, a *op.GLU) error {
	reads(a.GU, 1, 0, 2*a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, out, unit := actOf(a.GU), actOf(a.Y), vec.SwiGLU
	if a.Activation == op.GELUTanh {
		unit = vec.GeGLU
	}
	s.forRows(a.T, 3*a.F, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row, act := in.load(sc, 0, 2*t*a.F, 2*a.F), out.target(sc, 1, t*a.F, a.F)
			unit(act, row[:a.F], row[a.F:])
			out.store(t*a.F, act)
		}
	})
	return nil
}

// gluBackward works on a row while the row is in the cache. DGU may be GU, Y may be
// DY.
func gluBackward(s *stream, a *op.GLUBackward) error {
	reads(a.GU, 1, 0, 2*a.T*a.F)
	reads(a.DY, 1, 0, a.T*a.F)
	writes(a.DGU, 1, 0, 2*a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, grad, din, act, unit := actOf(a.GU), actOf(a.DY), actOf(a.DGU), actOf(a.Y), vec.SwiGLUGrad
	if a.Activation == op.GELUTanh {
		unit = vec.GeGLUGrad
	}
	s.forRows(a.T, 6*a.F, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row, dout := in.load(sc, 0, 2*t*a.F, 2*a.F), grad.load(sc, 1, t*a.F, a.F)
			drow := din.target(sc, 2, 2*t*a.F, 2*a.F)
			if a.Y.None() {
				unit(drow[:a.F], drow[a.F:], nil, dout, row[:a.F], row[a.F:])
			} else {
				out := act.target(sc, 3, t*a.F, a.F)
				unit(drow[:a.F], drow[a.F:], out, dout, row[:a.F], row[a.F:])
				act.store(t*a.F, out)
			}
			din.store(2*t*a.F, drow)
		}
	})
	return nil
}
