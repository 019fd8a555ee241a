package cpu

import (
	"math"

	"mt/base/bf16"
	"mt/device/op"
)

func init() { op.Add(&table, divideByNorm) }

// divideByNorm divides X by its norm. It sums the squares of each piece of X in float64, and then
// adds the pieces' sums in order, so any number of threads gives the same bits.
func divideByNorm(s *stream, a *op.DivideByNorm) error {
	n, x := int(a.N), actOf(a.X)
	writes(a.X, 1, 0, n)
	pieces := (n + pieceElems - 1) / pieceElems
	sums := make([]float64, pieces)
	each := func(f func(sc *scratch, i, from, count int)) {
		s.pool.Run(pieces, func(i int) {
			sc := s.scratch.get()
			f(sc, i, i*pieceElems, min(pieceElems, n-i*pieceElems))
			s.scratch.put(sc)
		})
	}
	each(func(sc *scratch, i, from, count int) {
		var sum float64
		for _, v := range x.load(sc, 0, from, count) {
			sum += float64(float64(v) * float64(v))
		}
		sums[i] = sum
	})
	var sum float64
	for _, v := range sums {
		sum += v
	}
	norm := float32(math.Sqrt(sum))
	if x.bf16 {
		norm = bf16.Widen(bf16.Round(norm))
	}
	norm = max(norm, a.Eps)
	each(func(sc *scratch, _, from, count int) {
		v := x.load(sc, 0, from, count)
		for i := range v {
			v[i] /= norm
		}
		x.store(from, v)
	})
	return nil
}
