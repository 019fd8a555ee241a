package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, addRows) }

// addRows lets threads add to rows of Dst concurrently. This is safe because the rows that Index
// names are distinct.
func addRows(s *stream, a *op.AddRows) error {
	reads(a.Src, 1, 0, a.T*a.C)
	reads(a.Index, 1, 0, a.T)
	rows, out, in := i32s(a.Index, a.T), f32s(a.Dst, a.U*a.C), actOf(a.Src)
	if err := within("Index", rows, a.U); err != nil {
		return err
	}
	pairs, w, bias := i32s(a.Pairs, int(a.Pairs.Len)), f32s(a.W, a.P), f32s(a.Bias, a.C)
	if err := within("Pairs", pairs, a.P); err != nil {
		return err
	}
	reads(a.Bias, 1, 0, a.C)
	reads(a.W, 1, 0, a.P)
	reads(a.Pairs, 1, 0, len(pairs))
	announceRows(a.Dst, rows, a.C)
	s.forRows(a.T, a.C, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			sum, row := out[int(rows[t])*a.C:][:a.C], in.load(sc, 0, t*a.C, a.C)
			if w != nil {
				row = weighted(sc.f32(1, a.C), row, bias, w[pairs[t]])
			}
			vec.Add(sum, row)
		}
	})
	return nil
}

// weighted sets dst to w·(row + bias); without a bias, to w·row.
func weighted(dst, row, bias []float32, w float32) []float32 {
	if bias != nil {
		copy(dst, row)
		vec.Add(dst, bias)
		row = dst
	}
	vec.Scale(dst, row, w)
	return dst
}
