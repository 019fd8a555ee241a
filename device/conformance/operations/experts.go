package operations

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
)

// distinct is n different numbers below limit, in no order.
func (r *rig) distinct(n, limit int) []int32 {
	v := make([]int32, n)
	for i, p := range r.rng.Perm(limit)[:n] {
		v[i] = int32(p)
	}
	return v
}

func rowsByCases(add func(string, func(*rig))) {
	// T, C, and how many there are to choose from
	for _, sh := range [][3]int{{1, 1, 1}, {3, 5, 7}, {9, 40, 9}, {50, 33, 60}, {7, 264, 1000}, {2, 2048, 3}, {0, 4, 3}, {3, 0, 4}, {0, 4, 0}} {
		T, C, P := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("scale %v", sh), func(r *rig) {
			index := make([]int32, T) // some come twice
			for i := range index {
				index[i] = int32(r.rng.IntN(P))
			}
			x, w, ids := r.act("X", T*C), r.f32("W", P), r.i32("Index", index)
			want := x.copy()
			oracle.ScaleRows(want, w.v, index, C)
			x.expect(want, uF32, 1)
			r.dev.Ops().ScaleRows(r.s, device.ScaleRows{X: x.t, W: w.t, Index: ids.t, T: T, C: C, P: P})
		})
		add(fmt.Sprintf("scale backward %v", sh), func(r *rig) {
			index := r.distinct(T, P)
			y, dy, w, dw, ids := r.act("Y", T*C), r.act("DY", T*C), r.f32("W", P), r.f32("DW", P), r.i32("Index", index)
			wantY, wantDY, wantW := y.copy(), dy.copy(), dw.copy()
			oracle.ScaleRowsBackward(wantDY, wantY, w.v, wantW, index, C)
			y.expect(wantY, uF32, 1)
			dy.expect(wantDY, uF32, 1)
			dw.least = 1 // what it held before
			dw.expect(wantW, summing(C), 0)
			r.dev.Ops().ScaleRowsBackward(r.s, device.ScaleRowsBackward{DY: dy.t, Y: y.t, W: w.t, DW: dw.t, Index: ids.t, T: T, C: C, P: P})
		})
		add(fmt.Sprintf("add %v", sh), func(r *rig) {
			index := r.distinct(T, P)
			dst, src, ids := r.f32("dst", P*C), r.act("src", T*C), r.i32("index", index)
			want := dst.copy()
			oracle.AddRows(want, src.v, index, C)
			dst.expect(want, uF32, 0)
			r.dev.Ops().AddRows(r.s, dst.t, src.t, ids.t, P, T, C)
		})
	}
}

// routerShapes are tokens, experts and how many of them a token gets.
var routerShapes = [][3]int{{1, 1, 1}, {3, 5, 2}, {70, 8, 8}, {9, 60, 4}, {33, 128, 8}, {5, 256, 6}, {2, 1024, 32}, {40, 33, 32}, {0, 4, 2}}

func routerCases(add func(string, func(*rig))) {
	for _, sh := range routerShapes {
		for _, normalize := range []bool{false, true} {
			for _, form := range []string{"spread", "ties", "far apart"} {
				name := fmt.Sprintf("%v,normalize %v,%s", sh, normalize, form)
				add("forward "+name, func(r *rig) { router(r, sh, normalize, form) })
				add("backward "+name, func(r *rig) { routerBackward(r, sh, normalize, form) })
			}
		}
	}
}

// routerLogits have ties where form says so. The oracle sees them as they were
// rounded, so what is chosen is never a matter of rounding. Their size is what
// differences of two are some times as large as.
func (r *rig) routerLogits(n int, form string) (v []float64, size float64) {
	v, size = r.normal(n), 1
	switch form {
	case "ties":
		for i := range v {
			v[i] = float64(int(2*v[i])) / 2
		}
	case "far apart":
		v, size = scaled(v, 30), 30
	}
	return v, size
}

func router(r *rig, sh [3]int, normalize bool, form string) {
	T, E, K := sh[0], sh[1], sh[2]
	v, size := r.routerLogits(T*E, form)
	logits, ids := r.values("Logits", device.F32, v), r.i32("IDs", make([]int32, T*K))
	weights, sums := r.f32("Weights", T*K), r.f32("ProbSum", E)
	chosen, wantW, wantS := make([]int32, T*K), weights.copy(), sums.copy()
	oracle.Router(logits.v, chosen, wantW, wantS, E, K, normalize)
	ids.expect(floats(chosen), 0, 0)
	weights.expect(wantW, exponents(E, size, 0), 0)
	a := device.Router{Logits: logits.t, IDs: ids.t, Weights: weights.t, T: T, E: E, K: K, Normalize: normalize}
	if form != "ties" {
		a.ProbSum = sums.t
		sums.expect(wantS, exponents(E, size, 0)+summing(T), 0)
	}
	r.dev.Ops().Router(r.s, a)
}

func floats(v []int32) []float64 {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = float64(x)
	}
	return f
}

// A gradient is a probability times a difference of gradients, whose size is
// some units.
func routerBackward(r *rig, sh [3]int, normalize bool, form string) {
	T, E, K := sh[0], sh[1], sh[2]
	v, size := r.routerLogits(T*E, form)
	logits := r.values("Logits", device.F32, v)
	chosen, counted := make([]int32, T*K), make([]int32, E)
	oracle.Router(logits.v, chosen, make([]float64, T*K), make([]float64, E), E, K, normalize)
	for e := range counted {
		counted[e] = int32(r.rng.IntN(20))
	}
	ids, dw, counts := r.i32("IDs", chosen), r.f32("DWeights", T*K), r.i32("Counts", counted)
	out := logits
	if form == "spread" {
		out = r.f32("DLogits", T*E)
	}
	const aux = 0.0625
	a := device.RouterBackward{DLogits: out.t, Logits: logits.t, IDs: ids.t, DWeights: dw.t, T: T, E: E, K: K, Normalize: normalize, AuxScale: aux}
	if form == "ties" {
		counted = nil
	} else {
		a.Counts = counts.t
	}
	want := make([]float64, T*E)
	oracle.RouterBackward(want, logits.v, chosen, dw.v, counted, E, K, normalize, aux)
	out.least = 1
	out.expect(want, 4*exponents(E, size, 0), 0)
	r.dev.Ops().RouterBackward(r.s, a)
}

func sortCases(add func(string, func(*rig))) {
	// pairs, of which a token has K; experts, of which the first take part
	for _, sh := range [][4]int{{1, 1, 1, 1}, {12, 4, 5, 5}, {600, 3, 1000, 1000}, {5000, 8, 64, 64}, {3000, 2, 128, 1}, {2100, 1, 1024, 7},
		{0, 2, 7, 7}, {0, 0, 0, 0}} {
		for _, counting := range []bool{true, false} {
			add(fmt.Sprintf("%v,counting %v", sh, counting), func(r *rig) { sortCase(r, sh, counting) })
		}
	}
}

func sortCase(r *rig, sh [4]int, counting bool) {
	N, K, E := sh[0], sh[1], sh[2]
	v, before := make([]int32, N), make([]int32, E)
	for i := range v {
		v[i] = int32(E - 1 - r.rng.IntN(sh[3]))
	}
	for e := range before {
		before[e] = int32(r.rng.IntN(100))
	}
	ids, order, rows := r.i32("IDs", v), r.i32("Order", make([]int32, N)), r.i32("Rows", make([]int32, N))
	offsets, counts := r.i32("Offsets", make([]int32, E+1)), r.i32("Counts", before)
	wantO, wantR, wantF, wantC := make([]int32, N), make([]int32, N), make([]int32, E+1), append([]int32(nil), before...)
	oracle.SortByExpert(v, wantO, wantR, wantF, wantC, E, K)
	order.expect(floats(wantO), 0, 0)
	rows.expect(floats(wantR), 0, 0)
	offsets.expect(floats(wantF), 0, 0)
	a := device.SortByExpert{IDs: ids.t, Order: order.t, Rows: rows.t, Offsets: offsets.t, N: N, K: K, E: E}
	if counting {
		a.Counts = counts.t
		counts.expect(floats(wantC), 0, 0)
	}
	r.dev.Ops().SortByExpert(r.s, a)
}
