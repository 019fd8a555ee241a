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
	for _, sh := range [][3]int{{1, 5, 5}, {3, 7, 9}, {5, 64, 96}, {40, 600, 1000}, {3, 0, 4}} {
		add(fmt.Sprintf("%d rows of %d, %d apart", sh[0], sh[1], sh[2]), func(r *rig) {
			x := r.act("x", sh[0]*sh[2])
			want := x.copy()
			for i := range sh[0] {
				oracle.Scale(want[i*sh[2]:][:sh[1]], 0.7)
			}
			x.expect(want, uF32, 1)
			enqueue(r, op.Scale{X: x.t, N: int64(sh[1]), Factor: 0.7, Rows: sh[0], Stride: sh[2]})
		})
	}
}
