package optim

import (
	"math"

	"mt/internal/parallel"
)

// sumLanes is how many sums a block of elements is added up in: element i of the
// block goes to sum i % sumLanes.
const sumLanes = 32

// SumSquares is the sum of the squares of g in float64. The partition is fixed
// by the length alone: in blocks of 32768 elements, 32 sums run beside each
// other, in the order of the elements, and are added up in a tree; the blocks'
// sums are added in order. So the result has the same bits for any number of
// threads and any instruction set, and elements of padding, being zero, do not
// change it.
//
// A square of an fp32 number is exact in float64 and at most 2^256, so a sum of
// fewer than 2^767 of them cannot overflow. The sum is therefore finite exactly
// when every element is, which is how AllFinite works. pool may be nil.
func SumSquares(pool *parallel.Pool, g Grad) float64 {
	if g.Elems == 0 {
		return 0
	}
	g.Check("sum of squares", g.Elems)
	sums := make([]float64, (g.Elems+pieceElems-1)/pieceElems)
	k := active
	pool.Run(len(sums), func(i int) {
		at := int64(i) * pieceElems
		n := int(min(pieceElems, g.Elems-at))
		announceGrad(g.kind(), g.at(at), n)
		sums[i] = k.sumSquares(g.kind(), g.at(at), n)
	})
	var sum float64
	for _, s := range sums {
		sum += s
	}
	return sum
}

// AllFinite says, given the SumSquares of some elements, whether all of them are
// finite.
func AllFinite(sumSquares float64) bool {
	return !math.IsNaN(sumSquares) && !math.IsInf(sumSquares, 0)
}

// fold adds up the sums of a block in a tree.
func fold(lanes *[sumLanes]float64) float64 {
	for half := sumLanes / 2; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0]
}
