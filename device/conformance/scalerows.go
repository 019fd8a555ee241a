package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("ScaleRows", scaleRowsCases)
	row("ScaleRowsBackward", scaleRowsBackwardCases)
}

// someRows are shapes: T rows of C elements, and the number of factors from which each row takes one.
var someRows = [][3]int{{1, 1, 1}, {3, 5, 7}, {9, 40, 9}, {50, 33, 60}, {7, 264, 1000}, {2, 2048, 3}, {0, 4, 3}, {3, 0, 4}, {0, 4, 0}}

func scaleRowsCases(add func(string, func(*rig))) {
	for _, sh := range someRows {
		T, C, P := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			index := make([]int32, T) // some factors are used twice
			for i := range index {
				index[i] = int32(r.rng.IntN(P))
			}
			x, w, ids := r.act("X", T*C), r.f32("W", P), r.i32("Index", index)
			want := x.copy()
			oracle.ScaleRows(want, w.v, index, C)
			x.expect(want, uF32, 1)
			enqueue(r, op.ScaleRows{X: x.t, W: w.t, Index: ids.t, T: T, C: C, P: P})
		})
	}
}

func scaleRowsBackwardCases(add func(string, func(*rig))) {
	for _, sh := range someRows {
		T, C, P := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			index := r.distinct(T, P)
			y, dy, w, dw, ids := r.act("Y", T*C), r.act("DY", T*C), r.f32("W", P), r.f32("DW", P), r.i32("Index", index)
			wantY, wantDY, wantW := y.copy(), dy.copy(), dw.copy()
			oracle.ScaleRowsBackward(wantDY, wantY, w.v, wantW, index, C)
			y.expect(wantY, uF32, 1)
			dy.expect(wantDY, uF32, 1)
			dw.least = 1 // the size of the earlier content
			dw.expect(wantW, summing(C), 0)
			enqueue(r, op.ScaleRowsBackward{DY: dy.t, Y: y.t, W: w.t, DW: dw.t, Index: ids.t, T: T, C: C, P: P})
		})
	}
}
