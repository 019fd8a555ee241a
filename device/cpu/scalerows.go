package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// ScaleRows multiplies row t of X (T, C) by W[Index[t]], in place.
func (o ops) ScaleRows(s device.Stream, a device.ScaleRows) {
	on(s).do("ScaleRows", args.ScaleRows(a), func(s *stream) error {
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
	})
}

// ScaleRowsBackward writes DW[Index[t]] = Σ_c DY·Y, then scales row t of both.
func (o ops) ScaleRowsBackward(s device.Stream, a device.ScaleRowsBackward) {
	on(s).do("ScaleRowsBackward", args.ScaleRowsBackward(a), func(s *stream) error {
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
	})
}

// AddRows adds row t of src (T, C) to row index[t] of dst (U, C).
func (o ops) AddRows(s device.Stream, dst, src, index device.Tensor, U, T, C int) {
	on(s).do("AddRows", args.AddRows(dst, src, index, U, T, C), func(s *stream) error {
		reads(src, 1, 0, T*C)
		reads(index, 1, 0, T)
		rows, out, in := i32s(index, T), f32s(dst, U*C), actOf(src)
		if err := within("index", rows, U); err != nil {
			return err
		}
		announceRows(dst, rows, C)
		s.forRows(T, C, func(sc *scratch, from, to int) {
			for t := from; t < to; t++ {
				u := int(rows[t])
				vec.Add(out[u*C:(u+1)*C], in.load(sc, 0, t*C, C))
			}
		})
		return nil
	})
}

// announceRows tells the race detector of the rows of n elements that are written.
func announceRows(t device.Tensor, rows []int32, n int) {
	if !raceEnabled {
		return
	}
	for _, r := range rows {
		writes(t.Slice(int64(r)*int64(n), int64(n)), 1, 0, n)
	}
}
