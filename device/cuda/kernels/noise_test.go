package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"mt/base/bf16"
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// TestNoise: the noise has exactly the bits of the same fp32 arithmetic in Go, for all lengths of
// rows and documents. Rows outside all documents become NaN.
func TestNoise(t *testing.T) {
	dev := newRig()
	for _, C := range []int{8, 264, 2056} {
		for _, cu := range [][]int32{{0, 5}, {0, 2, 2, 3, 7}, {1, 4}} {
			forms(t, dev, fmt.Sprintf("%d,%v", C, cu), func(e *elements) {
				a := op.AddNoise{T: 4, C: C, Seqs: len(cu) - 1, From: 1, First: 3, Step: 9, Seed: 0xfedcba9876543210, Scale: 2}
				x := e.act(a.T * C)
				want := x.copy()
				for i := range want {
					row := a.From + i/C
					u := float32(oracle.Uniform(a.Seed, a.Step, a.First+row, i%C))
					size := float32(math.NaN())
					for d, first := range cu[:a.Seqs] {
						if row >= int(first) && row < int(cu[d+1]) {
							size = a.Scale / float32(math.Sqrt(float64(cu[d+1]-first)))
						}
					}
					sum := float32(want[i]) + float32(size*u)
					if e.dt == device.BF16 {
						sum = bf16.Widen(bf16.Round(sum))
					}
					want[i] = float64(sum)
				}
				x.expect(want, 0)
				a.X, a.Cu = x.t, e.i32(cu).t
				kernels.AddNoise(e.s, &a)
			})
		}
	}
}
