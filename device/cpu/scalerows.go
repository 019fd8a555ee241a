package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, scaleRows)
	op.Add(&table, scaleRowsBackward)
}

// scaleRows multiplies each row of X by its factor, W[Index[t]] for row t.
func scaleRows(s *stream, a *op.ScaleRows) error {
	reads(a.W, 1, 0, a.P)
	reads(a.Index, 1, 0, a.T)
	writes(a.X, 1, 0, a.T*a.C)
	index, w, x := i32s(a.Index, a.T), f32s(a.W, a.P), actOf(a.X)
	if err := within("Index", index, a.P); err != nil {
		return err
	}
	s.forRows(a.T, a.C, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			row := x.load(sc, 0, t*a.C, a.C)
			vec.Scale(row, row, w[index[t]])
			x.store(t*a.C, row)
		}
	})
	return nil
}

// scaleRowsBackward writes DW[Index[t]] = Σ_c DY·Y over row t. Then it multiplies row t of both DY and Y by
// W[Index[t]].
func scaleRowsBackward(s *stream, a *op.ScaleRowsBackward) error {
	reads(a.W, 1, 0, a.P)
	reads(a.Index, 1, 0, a.T)
	writes(a.Y, 1, 0, a.T*a.C)
	writes(a.DY, 1, 0, a.T*a.C)
	index, w, dw := i32s(a.Index, a.T), f32s(a.W, a.P), f32s(a.DW, a.P)
	if err := within("Index", index, a.P); err != nil {
		return err
	}
	announceRows(a.DW, index, 1)
	y, dy := actOf(a.Y), actOf(a.DY)
	s.forRows(a.T, 2*a.C, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			p := index[t]
			row, grad := y.load(sc, 0, t*a.C, a.C), dy.load(sc, 1, t*a.C, a.C)
			dw[p] = vec.Dot(row, grad)
			vec.Scale(row, row, w[p])
			vec.Scale(grad, grad, w[p])
			y.store(t*a.C, row)
			dy.store(t*a.C, grad)
		}
	})
	return nil
}
