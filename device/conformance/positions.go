package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("AddPositions", positionCases)
	row("AddPositionsBackward", positionBackwardCases)
}

// positionSeqs are micro-batches for tests of positions, given by the lengths of their sequences.
var positionSeqs = [][]int{{1}, {5, 1, 9}, {3, 0, 70}, {}}

func bounds(lengths []int) (cu []int32, longest int) {
	cu = []int32{0}
	for _, n := range lengths {
		cu = append(cu, cu[len(cu)-1]+int32(n))
		longest = max(longest, n)
	}
	return cu, longest
}

func positionCases(add func(string, func(*rig))) {
	for _, seqs := range positionSeqs {
		for _, C := range []int{1, 7, 72, 1032} {
			for _, form := range []string{"plain", "in place"} {
				add(fmt.Sprintf("%v x %d,%s", seqs, C, form), func(r *rig) {
					cu, longest := bounds(seqs)
					var pos []int32
					for i, first := range cu[:len(cu)-1] {
						for p := range cu[i+1] - first {
							pos = append(pos, p)
						}
					}
					x, table := r.act("X", len(pos)*C), r.act("Table", (longest+2)*C)
					y := x
					if form == "plain" {
						y = r.act("Y", len(pos)*C)
					}
					want := y.copy()
					oracle.AddPositions(want, x.copy(), table.v, pos, C)
					y.expect(want, uF32, 1)
					enqueue(r, op.AddPositions{Y: y.t, X: x.t, Table: table.t, Pos: r.i32("Pos", pos).t, T: len(pos), C: C})
				})
			}
		}
	}
}

// positionBackwardCases sum the gradients of all tokens, or only of the middle ones, as when a
// micro-batch is processed in chunks.
func positionBackwardCases(add func(string, func(*rig))) {
	for _, seqs := range positionSeqs {
		for _, C := range []int{1, 7, 72, 1032} {
			for _, from := range []int{0, 3} {
				add(fmt.Sprintf("%v x %d,%d", seqs, C, from), func(r *rig) {
					cu, longest := bounds(seqs)
					T := max(0, int(cu[len(cu)-1])-2*from)
					dy, dtable := r.act("DY", T*C), r.f32("DTable", (longest+1)*C)
					want := dtable.copy()
					oracle.AddPositionsBackward(want, dy.v, cu, from, T, C)
					dtable.expect(want, summing(len(seqs)), 0)
					enqueue(r, op.AddPositionsBackward{DTable: dtable.t, DY: dy.t, Cu: r.i32("Cu", cu).t, Seqs: len(seqs),
						Longest: longest, From: from, T: T, C: C})
				})
			}
		}
	}
}
