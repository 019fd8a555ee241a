package operations

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/internal/bfloat"
)

func scaled(v []float64, k float64) []float64 {
	for i := range v {
		v[i] *= k
	}
	return v
}

func rowCases(add func(string, func(*rig))) {
	for _, sh := range [][3]int{{1, 1, 1}, {4, 9, 5}, {7, 40, 33}, {50, 20, 16}, {3, 0, 4}} {
		U, T, C := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("gather %v", sh), func(r *rig) {
			index := make([]int32, T)
			for i := range index {
				index[i] = int32(r.rng.IntN(U))
			}
			dst, src, ids := r.act("dst", T*C), r.act("src", U*C), r.i32("index", index)
			want := dst.copy()
			oracle.GatherRows(want, src.v, index, C)
			dst.expect(want, 0, 0)
			r.dev.Ops().GatherRows(r.s, dst.t, src.t, ids.t, T, C)
		})
		add(fmt.Sprintf("scatter %v", sh), func(r *rig) {
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
			r.dev.Ops().ScatterAddRows(r.s, drows.t, dy.t, from.t, at.t, U, T, C)
		})
	}
}

func convertCases(add func(string, func(*rig))) {
	for _, n := range []int{0, 1, 7, 33, 20000} {
		for _, to := range []device.DType{device.F32, device.BF16} {
			add(fmt.Sprintf("%d to %s", n, to), func(r *rig) {
				src, dst := r.act("src", n), r.values("dst", to, r.normal(n))
				want := make([]float64, n)
				for i, v := range src.v {
					want[i] = v
					if to == device.BF16 { // to nearest even, exactly
						want[i] = float64(bfloat.Widen(bfloat.Round(float32(v))))
					}
				}
				dst.expect(want, 0, 0)
				r.dev.Ops().Convert(r.s, dst.t, src.t, int64(n))
			})
		}
	}
}
