package operations

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("AddRows", addRowsCases) }

func addRowsCases(add func(string, func(*rig))) {
	for _, sh := range someRows {
		T, C, P := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			index := r.distinct(T, P)
			dst, src, ids := r.f32("dst", P*C), r.act("src", T*C), r.i32("index", index)
			want := dst.copy()
			oracle.AddRows(want, src.v, index, C)
			dst.expect(want, uF32, 0)
			enqueue(r, op.AddRows{Dst: dst.t, Src: src.t, Index: ids.t, U: P, T: T, C: C})
		})
	}
}
