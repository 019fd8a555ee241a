package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("Scale", scaleCases) }

func scaleCases(add func(string, func(*rig))) {
	for _, n := range []int{0, 1, 7, 33, 20000} {
		for _, factor := range []float32{0, 1, 0.7, -50.596443} {
			add(fmt.Sprintf("%d by %v", n, factor), func(r *rig) {
				x := r.act("x", n)
				want := x.copy()
				oracle.Scale(want, float64(factor))
				x.expect(want, uF32, 1)
				enqueue(r, op.Scale{X: x.t, N: int64(n), Factor: factor})
			})
		}
	}
}
