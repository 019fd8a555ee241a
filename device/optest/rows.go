package optest

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/oracle"
)

func swigluCases(add func(string, func(*rig))) {
	for _, sh := range [][2]int{{1, 1}, {3, 5}, {7, 16}, {40, 33}, {5, 704}, {0, 3}} {
		T, F := sh[0], sh[1]
		// A sigmoid is an exponential (2e-7), a sum and a quotient.
		const computing = 12 * uF32
		add(fmt.Sprintf("forward %dx%d", T, F), func(r *rig) {
			gu, y := r.values("gu", r.dt, scaled(r.normal(2*T*F), 4)), r.act("y", T*F)
			want := y.copy()
			oracle.SwiGLU(want, gu.v, T, F)
			y.expect(want, computing, 1)
			r.dev.Ops().SwiGLU(r.s, y.t, gu.t, T, F)
		})
		for _, form := range []string{"plain", "y", "in place", "all in place"} {
			add(fmt.Sprintf("backward %dx%d,%s", T, F, form), func(r *rig) {
				gu, dy := r.values("gu", r.dt, scaled(r.normal(2*T*F), 4)), r.act("dy", T*F)
				dgu, y := gu, dy
				if form == "plain" || form == "y" {
					dgu = r.act("dgu", 2*T*F)
				}
				if form == "y" {
					y = r.act("y", T*F)
				}
				wantG, wantY := dgu.copy(), y.copy()
				oracle.SwiGLUBackward(wantG, wantY, dy.copy(), gu.copy(), T, F)
				dgu.expect(wantG, computing, 1)
				written := device.Tensor{}
				if form == "y" || form == "all in place" {
					written = y.t
					y.expect(wantY, computing, 1)
				}
				r.dev.Ops().SwiGLUBackward(r.s, dgu.t, written, dy.t, gu.t, T, F)
			})
		}
	}
}

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

func lossCases(add func(string, func(*rig))) {
	for _, sh := range [][2]int{{1, 1}, {3, 5}, {70, 17}, {9, 256}, {4, 1003}, {0, 6}} {
		for _, size := range []float64{3, 40} {
			for _, forwardOnly := range []bool{false, true} {
				T, V := sh[0], sh[1]
				add(fmt.Sprintf("%dx%d,size %v,forward only %v", T, V, size, forwardOnly), func(r *rig) {
					targets := make([]int32, T)
					for i := range targets {
						targets[i] = int32(r.rng.IntN(V))
						if i%4 == 3 {
							targets[i] = device.IgnoreIndex
						}
					}
					logits, ids, losses := r.values("Logits", r.dt, scaled(r.normal(T*V), size)), r.i32("Targets", targets), r.f32("Losses", T)
					want, wantL := logits.copy(), losses.copy()
					const scale = 0.125
					oracle.CrossEntropy(want, targets, wantL, V, scale, forwardOnly)
					if !forwardOnly {
						// The argument of an exponential is up to 8·size, half an ulp of which
						// is its relative error.
						logits.expect(want, (8*size+summing(V)/uF32)*uF32, 1)
					}
					losses.expect(wantL, summing(V)+8*size*uF32, 0)
					if V == 1 { // a loss of exactly 0
						losses.expect(wantL, 0, 0)
					}
					r.dev.Ops().CrossEntropy(r.s, device.CrossEntropy{Logits: logits.t, Targets: ids.t, Losses: losses.t, T: T, V: V,
						Scale: scale, ForwardOnly: forwardOnly})
				})
			}
		}
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
						u := math.Float32bits(float32(v))
						want[i] = float64(math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff))
					}
				}
				dst.expect(want, 0, 0)
				r.dev.Ops().Convert(r.s, dst.t, src.t, int64(n))
			})
		}
	}
}
