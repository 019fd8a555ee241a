package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("WeightedSum", weightedSumCases)
	row("DivideByNorm", divideByNormCases)
}

func weightedSumCases(add func(string, func(*rig))) {
	for _, n := range []int{0, 1, 7, 33, 20000} {
		for _, inPlace := range []bool{false, true} {
			add(fmt.Sprintf("%d, in place: %t", n, inPlace), func(r *rig) {
				x, y, d := r.act("x", n), r.f32("y", n), r.act("d", n)
				if inPlace {
					d = x
				}
				want := make([]float64, n)
				oracle.WeightedSum(want, x.v, y.v, -4.775, 2.0315)
				d.least = 5 // the terms may exceed their sum
				d.expect(want, 3*uF32, 1)
				enqueue(r, op.WeightedSum{D: d.t, X: x.t, Y: y.t, N: int64(n), A: -4.775, B: 2.0315})
			})
		}
	}
}

// divideByNormCases are the cases of DivideByNorm. Sizes range from no element to several of the
// pieces in which the CPU sums. With eps 100 a short vector is divided by eps, because its norm is
// smaller.
func divideByNormCases(add func(string, func(*rig))) {
	for _, n := range []int{0, 1, 7, 33, 20000, 70001} {
		for _, eps := range []float32{1e-7, 100} {
			add(fmt.Sprintf("%d, eps %v", n, eps), func(r *rig) {
				x := r.act("x", n)
				want := x.copy()
				oracle.DivideByNorm(want, float64(eps))
				x.expect(want, summing(n), 2)
				enqueue(r, op.DivideByNorm{X: x.t, N: int64(n), Eps: eps})
			})
		}
	}
}
