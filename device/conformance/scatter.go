package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("ScatterAddRows", scatterCases) }

func scatterCases(add func(string, func(*rig))) {
	for _, sh := range rowShapes {
		U, T, C := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			start, pos := make([]int32, U+1), make([]int32, T)
			for i, p := range r.rng.Perm(T) {
				pos[i] = int32(p)
			}
			for u := range U {
				start[u+1] = int32(T * (u + 1) / U)
			}
			start[U] = int32(T)
			drows, dy, from, at := r.f32("drows", U*C), r.act("dy", T*C), r.i32("start", start), r.i32("pos", pos)
			want := drows.copy()
			oracle.ScatterAddRows(want, dy.v, start, pos, C)
			drows.expect(want, summing(T/U+1), 0)
			enqueue(r, op.ScatterAddRows{DRows: drows.t, DY: dy.t, Start: from.t, Pos: at.t, U: U, T: T, C: C})
		})
	}
}
