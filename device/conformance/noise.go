package conformance

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("AddNoise", noiseCases) }

// noiseCases add noise to all tokens of the documents, or only to the middle ones, as when a
// micro-batch is processed in chunks.
func noiseCases(add func(string, func(*rig))) {
	for _, seqs := range positionSeqs {
		for _, C := range []int{1, 7, 72, 1032} {
			for _, from := range []int{0, 3} {
				add(fmt.Sprintf("%v x %d,%d", seqs, C, from), func(r *rig) {
					cu, _ := bounds(seqs)
					a := op.AddNoise{T: max(0, int(cu[len(cu)-1])-2*from), C: C, Seqs: len(seqs), From: from, First: 1 << 20, Step: 70000,
						Seed: 0x9abcdef012345678, Scale: 3}
					x := r.act("X", a.T*C)
					want := x.copy()
					oracle.AddNoise(want, cu, from, a.First, a.Step, C, a.Seed, float64(a.Scale))
					x.expect(want, 4*uF32, 1)
					a.X, a.Cu = x.t, r.i32("Cu", cu).t
					enqueue(r, a)
				})
			}
		}
	}
}
