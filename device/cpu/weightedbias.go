package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, weightedBiasGrad) }

// weightedBiasGrad sums blocks of rows and adds the blocks' sums to DB in order, so any number of
// threads gives the same bits. For each row of DY it also adds the row's dot product with the bias
// B to the row's element of DW.
func weightedBiasGrad(s *stream, a *op.WeightedBiasGrad) error {
	reads(a.W, 1, 0, a.P)
	reads(a.Index, 1, 0, a.T)
	reads(a.B, 1, 0, a.C)
	reads(a.DY, 1, 0, a.T*a.C)
	writes(a.DB, 1, 0, a.C)
	index, w, b, dw, dy := i32s(a.Index, a.T), f32s(a.W, a.P), f32s(a.B, a.C), f32s(a.DW, a.P), actOf(a.DY)
	if err := within("Index", index, a.P); err != nil {
		return err
	}
	announceRows(a.DW, index, 1)
	s.sumRows(a.DB, a.C, a.T, func(sc *scratch, sum []float32, from, to int) {
		for t := from; t < to; t++ {
			row, part := dy.load(sc, 0, t*a.C, a.C), sc.f32(1, a.C)
			dw[index[t]] += vec.Dot(row, b)
			vec.Scale(part, row, w[index[t]])
			vec.Add(sum, part)
		}
	})
	return nil
}
