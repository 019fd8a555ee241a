package operations

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("Router", routerCases)
	row("RouterBackward", routerBackwardCases)
}

// routerShapes are tokens, experts, and how many experts are chosen for a token.
var routerShapes = [][3]int{{1, 1, 1}, {3, 5, 2}, {70, 8, 8}, {9, 60, 4}, {33, 128, 8}, {5, 256, 6}, {2, 1024, 32}, {40, 33, 32}, {0, 4, 2}}

func routerCases(add func(string, func(*rig))) {
	for _, sh := range routerShapes {
		for _, normalize := range []bool{false, true} {
			for _, form := range []string{"spread", "ties", "far apart"} {
				name := fmt.Sprintf("%v,normalize %v,%s", sh, normalize, form)
				add(name, func(r *rig) { router(r, sh, normalize, form) })
			}
		}
	}
}

func routerBackwardCases(add func(string, func(*rig))) {
	for _, sh := range routerShapes {
		for _, normalize := range []bool{false, true} {
			for _, form := range []string{"spread", "ties", "far apart"} {
				name := fmt.Sprintf("%v,normalize %v,%s", sh, normalize, form)
				add(name, func(r *rig) { routerBackward(r, sh, normalize, form) })
			}
		}
	}
}

// routerLogits are random logits, some of them equal where form says so. The oracle
// gets them as they were rounded, so rounding never decides what is chosen. size is
// a bound that differences of two logits exceed a few times at most.
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
	a := op.Router{Logits: logits.t, IDs: ids.t, Weights: weights.t, T: T, E: E, K: K, Normalize: normalize}
	if form != "ties" {
		a.ProbSum = sums.t
		sums.expect(wantS, exponents(E, size, 0)+summing(T), 0)
	}
	enqueue(r, a)
}

// routerBackward checks the backward. A gradient is a probability times a
// difference of gradients, whose size is a few units.
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
	a := op.RouterBackward{DLogits: out.t, Logits: logits.t, IDs: ids.t, DWeights: dw.t, T: T, E: E, K: K, Normalize: normalize, AuxScale: aux}
	if form == "ties" {
		counted = nil
	} else {
		a.Counts = counts.t
	}
	want := make([]float64, T*E)
	oracle.RouterBackward(want, logits.v, chosen, dw.v, counted, E, K, normalize, aux)
	out.least = 1
	out.expect(want, 4*exponents(E, size, 0), 0)
	enqueue(r, a)
}
