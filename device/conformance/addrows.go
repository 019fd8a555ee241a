package conformance

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
		weighted := func(r *rig, biased bool) {
			index, pairs := r.distinct(T, P), make([]int32, T) // some weights are used twice
			for i := range pairs {
				pairs[i] = int32(r.rng.IntN(P + 2))
			}
			dst, src, ids := r.f32("dst", P*C), r.act("src", T*C), r.i32("index", index)
			w, of := r.f32("w", P+2), r.i32("pairs", pairs)
			a := op.AddRows{Dst: dst.t, Src: src.t, Index: ids.t, U: P, T: T, C: C, W: w.t, Pairs: of.t, P: P + 2}
			var bias []float64
			if biased {
				b := r.f32("bias", C)
				a.Bias, bias = b.t, b.v
			}
			want := dst.copy()
			oracle.AddWeightedRows(want, src.v, bias, w.v, index, pairs, C)
			dst.expect(want, 4*uF32, 0)
			enqueue(r, a)
		}
		add(fmt.Sprintf("%v with weights", sh), func(r *rig) { weighted(r, false) })
		add(fmt.Sprintf("%v with weights and a bias", sh), func(r *rig) { weighted(r, true) })
	}
}
