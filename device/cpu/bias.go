package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/vec"
)

// AddBiasGrad sums fixed blocks of rows, then the blocks in order.
//
//	db (N) f32 += Σ_t dy (T, N) act
func (o ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	on(s).do("AddBiasGrad", args.AddBiasGrad(db, dy, T, N), func(s *stream) error {
		reads(dy, 1, 0, T*N)
		writes(db, 1, 0, N)
		in := actOf(dy)
		s.sumRows(db, N, T, func(sc *scratch, sum []float32, from, to int) {
			for t := from; t < to; t++ {
				vec.Add(sum, in.load(sc, 0, t*N, N))
			}
		})
		return nil
	})
}
