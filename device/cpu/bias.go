package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, addBiasGrad) }

// addBiasGrad sums blocks of rows and then adds the blocks in order. The number of rows alone determines the blocks.
func addBiasGrad(s *stream, a *op.AddBiasGrad) error {
	reads(a.DY, 1, 0, a.T*a.N)
	writes(a.DB, 1, 0, a.N)
	in := actOf(a.DY)
	s.sumRows(a.DB, a.N, a.T, func(sc *scratch, sum []float32, from, to int) {
		for t := from; t < to; t++ {
			vec.Add(sum, in.load(sc, 0, t*a.N, a.N))
		}
	})
	return nil
}
