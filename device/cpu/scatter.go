package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, scatterAddRows) }

// scatterAddRows adds rows of the source to row u of the destination, in the order in which Pos lists them for u.
func scatterAddRows(s *stream, a *op.ScatterAddRows) error {
	if a.U == 0 || a.C == 0 {
		return nil
	}
	reads(a.DY, 1, 0, a.T*a.C)
	reads(a.Start, 1, 0, a.U+1)
	reads(a.Pos, 1, 0, a.T)
	writes(a.DRows, 1, 0, a.U*a.C)
	from, at, out, in := i32s(a.Start, a.U+1), i32s(a.Pos, a.T), f32s(a.DRows, a.U*a.C), actOf(a.DY)
	if err := ascending("Start", from, a.T); err != nil {
		return err
	}
	if err := within("Pos", at[from[0]:from[a.U]], a.T); err != nil {
		return err
	}
	s.forRows(a.U, a.C, func(sc *scratch, first, last int) {
		for u := first; u < last; u++ {
			for _, t := range at[from[u]:from[u+1]] {
				vec.Add(out[u*a.C:(u+1)*a.C], in.load(sc, 0, int(t)*a.C, a.C))
			}
		}
	})
	return nil
}
