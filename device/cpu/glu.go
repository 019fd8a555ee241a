package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// GLU writes y (T, F) = f(gate)·up from gu (T, 2F). Source: arXiv:2002.05202.
func (o ops) GLU(s device.Stream, f device.Activation, y, gu device.Tensor, T, F int) {
	on(s).do("GLU", args.GLU(f, y, gu, T, F), func(s *stream) error {
		reads(gu, 1, 0, 2*T*F)
		writes(y, 1, 0, T*F)
		in, out, unit := actOf(gu), actOf(y), vec.SwiGLU
		if f == device.GELUTanh {
			unit = vec.GeGLU
		}
		s.forRows(T, 3*F, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				row, act := in.load(sc, 0, 2*t*F, 2*F), out.target(sc, 1, t*F, F)
				unit(act, row[:F], row[F:])
				out.store(t*F, act)
			}
		})
		return nil
	})
}

// GLUBackward overwrites dgu (T, 2F), which may be gu, and y unless it is none;
// y may be dy.
func (o ops) GLUBackward(s device.Stream, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	on(s).do("GLUBackward", args.GLUBackward(f, dgu, y, dy, gu, T, F), func(s *stream) error {
		reads(gu, 1, 0, 2*T*F)
		reads(dy, 1, 0, T*F)
		writes(dgu, 1, 0, 2*T*F)
		writes(y, 1, 0, T*F)
		in, grad, din, act, unit := actOf(gu), actOf(dy), actOf(dgu), actOf(y), vec.SwiGLUGrad
		if f == device.GELUTanh {
			unit = vec.GeGLUGrad
		}
		s.forRows(T, 6*F, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				row, dout := in.load(sc, 0, 2*t*F, 2*F), grad.load(sc, 1, t*F, F)
				drow := din.target(sc, 2, 2*t*F, 2*F)
				if y.None() {
					unit(drow[:F], drow[F:], nil, dout, row[:F], row[F:])
				} else {
					out := act.target(sc, 3, t*F, F)
					unit(drow[:F], drow[F:], out, dout, row[:F], row[F:])
					act.store(t*F, out)
				}
				din.store(2*t*F, drow)
			}
		})
		return nil
	})
}

// Scale multiplies x (n) by factor in place.
func (o ops) Scale(s device.Stream, x device.Tensor, n int64, factor float32) {
	on(s).do("Scale", args.Scale(x, n), func(s *stream) error {
		writes(x, 1, 0, int(n))
		all := actOf(x)
		s.forRows(int(n), 1, func(sc *scratch, from, to int) {
			v := all.load(sc, 0, from, to-from)
			vec.Scale(v, v, factor)
			all.store(from, v)
		})
		return nil
	})
}
