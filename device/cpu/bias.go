package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, addBiasGrad) }

// addBiasGrad sums each block of rows, and then adds the blocks' sums in order. The blocks depend only on the number of
// rows, so the result does not depend on the number of threads.
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
