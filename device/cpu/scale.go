package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, scale) }

// scale multiplies row by row if the operation has rows. Otherwise every element is a row of one
// element.
func scale(s *stream, a *op.Scale) error {
	all := actOf(a.X)
	if a.Rows > 0 {
		writes(a.X, a.Rows, a.Stride, int(a.N))
		s.forRows(a.Rows, int(a.N), func(sc *scratch, from, to int) {
			for r := from; r < to; r++ {
				v := all.load(sc, 0, r*a.Stride, int(a.N))
				vec.Scale(v, v, a.Factor)
				all.store(r*a.Stride, v)
			}
		})
		return nil
	}
	writes(a.X, 1, 0, int(a.N))
	s.forRows(int(a.N), 1, func(sc *scratch, from, to int) {
		v := all.load(sc, 0, from, to-from)
		vec.Scale(v, v, a.Factor)
		all.store(from, v)
	})
	return nil
}
