package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, addRows) }

// addRows relies on no row of the destination coming twice.
func addRows(s *stream, a *op.AddRows) error {
	reads(a.Src, 1, 0, a.T*a.C)
	reads(a.Index, 1, 0, a.T)
	rows, out, in := i32s(a.Index, a.T), f32s(a.Dst, a.U*a.C), actOf(a.Src)
	if err := within("Index", rows, a.U); err != nil {
		return err
	}
	announceRows(a.Dst, rows, a.C)
	s.forRows(a.T, a.C, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			u := int(rows[t])
			vec.Add(out[u*a.C:(u+1)*a.C], in.load(sc, 0, t*a.C, a.C))
		}
	})
	return nil
}
