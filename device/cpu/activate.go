package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, activate)
	op.Add(&table, activateBackward)
}

// An activation without a gate is computed as a gated unit, act(gate)·up, whose up is 1 everywhere. The extra product
// with 1 costs little beside the exponential.

// activate computes Y row by row. All steps of a row run while the row is in the cache.
func activate(s *stream, a *op.Activate) error {
	reads(a.X, 1, 0, a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, out := actOf(a.X), actOf(a.Y)
	unit := [...]func(y, gate, up []float32){op.SiLU: vec.SwiGLU, op.GELUTanh: vec.GeGLU, op.GELU: vec.ErfGLU, op.ReLU: reluGLU,
		op.SquaredReLU: squaredReLU}[a.Activation]
	s.forRows(a.T, 3*a.F, func(sc *scratch, from, to int) {
		up := ones(sc, 2, a.F)
		for t := from; t < to; t++ {
			act := out.target(sc, 1, t*a.F, a.F)
			unit(act, in.load(sc, 0, t*a.F, a.F), up)
			out.store(t*a.F, act)
		}
	})
	return nil
}

// activateBackward computes DX and Y row by row. All steps of a row run while the row is in the cache. DX may be X, Y
// may be DY.
func activateBackward(s *stream, a *op.ActivateBackward) error {
	reads(a.X, 1, 0, a.T*a.F)
	reads(a.DY, 1, 0, a.T*a.F)
	writes(a.DX, 1, 0, a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	in, grad, din, act := actOf(a.X), actOf(a.DY), actOf(a.DX), actOf(a.Y)
	unit := [...]func(dgate, dup, y, dy, gate, up []float32){op.SiLU: vec.SwiGLUGrad, op.GELUTanh: vec.GeGLUGrad, op.GELU: vec.ErfGLUGrad, op.ReLU: reluGrad,
		op.SquaredReLU: squaredReLUGrad}[a.Activation]
	s.forRows(a.T, 6*a.F, func(sc *scratch, from, to int) {
		up, dup := ones(sc, 4, a.F), sc.f32(5, a.F) // dup is not used: up is constant
		for t := from; t < to; t++ {
			x, dy := in.load(sc, 0, t*a.F, a.F), grad.load(sc, 1, t*a.F, a.F)
			dx := din.target(sc, 2, t*a.F, a.F)
			var y []float32
			if !a.Y.None() {
				y = act.target(sc, 3, t*a.F, a.F)
			}
			unit(dx, dup, y, dy, x, up)
			if y != nil {
				act.store(t*a.F, y)
			}
			din.store(t*a.F, dx)
		}
	})
	return nil
}

// ones returns n numbers, all 1, in buffer buf of the scratch memory sc.
func ones(sc *scratch, buf, n int) []float32 {
	v := sc.f32(buf, n)
	for i := range v {
		v[i] = 1
	}
	return v
}
