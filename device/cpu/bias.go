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
		blocks, each := sumBlocks(T)
		sums, in := s.partials(blocks, N), actOf(dy)
		s.pool.Run(blocks, func(b int) {
			sc := s.scratch.get()
			sum := sums[b*N : (b+1)*N]
			for t := b * each; t < min(T, (b+1)*each); t++ {
				vec.Add(sum, in.load(sc, 0, t*N, N))
			}
			s.scratch.put(sc)
		})
		addBlocks(f32s(db, N), sums, blocks)
		return nil
	})
}

// addBlocks adds the sum of the blocks, taken in order, to dst.
func addBlocks(dst, sums []float32, blocks int) {
	if blocks == 0 {
		return
	}
	n := len(dst)
	for b := 1; b < blocks; b++ {
		vec.Add(sums[:n], sums[b*n:(b+1)*n])
	}
	vec.Add(dst, sums[:n])
}
