package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, weightedSum) }

// weightedSum treats every element as a row of one element, so that forRows spreads the elements over the cores.
func weightedSum(s *stream, a *op.WeightedSum) error {
	n := int(a.N)
	reads(a.X, 1, 0, n)
	reads(a.Y, 1, 0, n)
	writes(a.D, 1, 0, n)
	x, d, y := actOf(a.X), actOf(a.D), f32s(a.Y, n)
	s.forRows(n, 1, func(sc *scratch, from, to int) {
		sum, more := sc.f32(1, to-from), sc.f32(2, to-from)
		vec.Scale(sum, x.load(sc, 0, from, to-from), a.A)
		vec.Scale(more, y[from:to], a.B)
		vec.Add(sum, more)
		d.put(from, sum)
	})
	return nil
}
