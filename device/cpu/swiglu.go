package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// SwiGLU writes y (T, F) = silu(gate)·up from gu (T, 2F). Source:
// arXiv:2002.05202.
func (o ops) SwiGLU(s device.Stream, y, gu device.Tensor, T, F int) {
	on(s).do("SwiGLU", args.SwiGLU(y, gu, T, F), func(s *stream) error {
		reads(gu, 1, 0, 2*T*F)
		writes(y, 1, 0, T*F)
		in, out := actOf(gu), actOf(y)
		s.forRows(T, 3*F, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				row, act := in.load(sc, 0, 2*t*F, 2*F), out.target(sc, 1, t*F, F)
				vec.SwiGLU(act, row[:F], row[F:])
				out.store(t*F, act)
			}
		})
		return nil
	})
}

// SwiGLUBackward overwrites dgu (T, 2F), which may be gu, and y unless it is
// none; y may be dy.
func (o ops) SwiGLUBackward(s device.Stream, dgu, y, dy, gu device.Tensor, T, F int) {
	on(s).do("SwiGLUBackward", args.SwiGLUBackward(dgu, y, dy, gu, T, F), func(s *stream) error {
		reads(gu, 1, 0, 2*T*F)
		reads(dy, 1, 0, T*F)
		writes(dgu, 1, 0, 2*T*F)
		writes(y, 1, 0, T*F)
		in, grad, din, act := actOf(gu), actOf(dy), actOf(dgu), actOf(y)
		s.forRows(T, 6*F, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				row, dout := in.load(sc, 0, 2*t*F, 2*F), grad.load(sc, 1, t*F, F)
				drow := din.target(sc, 2, 2*t*F, 2*F)
				if y.None() {
					vec.SwiGLUGrad(drow[:F], drow[F:], nil, dout, row[:F], row[F:])
				} else {
					out := act.target(sc, 3, t*F, F)
					vec.SwiGLUGrad(drow[:F], drow[F:], out, dout, row[:F], row[F:])
					act.store(t*F, out)
				}
				din.store(2*t*F, drow)
			}
		})
		return nil
	})
}
