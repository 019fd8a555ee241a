package conformance

import (
	"fmt"

	"mt/base/bf16"
	"mt/device"
	"mt/device/op"
)

func init() { row("Convert", convertCases) }

func convertCases(add func(string, func(*rig))) {
	for _, n := range []int{0, 1, 7, 33, 20000} {
		for _, to := range []device.DType{device.F32, device.BF16} {
			add(fmt.Sprintf("%d to %s", n, to), func(r *rig) {
				src, dst := r.act("src", n), r.values("dst", to, r.normal(n))
				want := make([]float64, n)
				for i, v := range src.v {
					want[i] = v
					if to == device.BF16 { // exactly, to nearest even
						want[i] = float64(bf16.Widen(bf16.Round(float32(v))))
					}
				}
				dst.expect(want, 0, 0)
				enqueue(r, op.Convert{Dst: dst.t, Src: src.t, N: int64(n)})
			})
		}
	}
}
