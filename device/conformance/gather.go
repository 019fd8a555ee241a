package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("GatherRows", gatherCases) }

// rowShapes are shapes of operations that gather rows, or add rows: how many rows there are, how many are gathered or
// added, and the length of a row.
var rowShapes = [][3]int{{1, 1, 1}, {4, 9, 5}, {7, 40, 33}, {50, 20, 16}, {3, 0, 4}}

func gatherCases(add func(string, func(*rig))) {
	for _, sh := range rowShapes {
		U, T, C := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			index := make([]int32, T)
			for i := range index {
				index[i] = int32(r.rng.IntN(U))
			}
			dst, src, ids := r.act("dst", T*C), r.act("src", U*C), r.i32("index", index)
			want := dst.copy()
			oracle.GatherRows(want, src.v, index, C)
			dst.expect(want, 0, 0)
			enqueue(r, op.GatherRows{Dst: dst.t, Src: src.t, Index: ids.t, T: T, C: C})
		})
	}
}
