package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("Sinks", sinksCases)
	row("SinksGrad", sinksGradCases)
	row("WeightedBiasGrad", weightedBiasGradCases)
}

// someHeads are shapes of attention outputs: T tokens, the number of heads, and the elements of a head.
var someHeads = [][3]int{{1, 1, 2}, {3, 2, 5}, {33, 4, 16}, {130, 3, 8}, {2, 64, 64}, {2100, 2, 2}, {0, 2, 4}}

// sinksCases are the cases of Sinks. The sinks' scores are far above the other scores, near them,
// or far below. The sink's attention probability p(sink) is an exponential (error 2e-7), a sum and
// a quotient. The exponent is a difference of numbers up to 64, so its rounding is at most 64·uF32.
func sinksCases(add func(string, func(*rig))) {
	for _, sh := range someHeads {
		T, heads, dim := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			o, lse := r.act("O", T*heads*dim), r.values("LSE", device.F32, scaled(r.normal(heads*T), 8))
			sinks := r.values("Sinks", device.F32, scaled(r.normal(heads), 8))
			wantO, wantL := o.copy(), lse.copy()
			oracle.Sinks(wantO, wantL, sinks.v, T, dim)
			o.expect(wantO, 64*uF32, 1)
			lse.expect(wantL, 8*uF32, 0)
			enqueue(r, op.Sinks{O: o.t, LSE: lse.t, Sinks: sinks.t, T: T, Heads: heads, Dim: dim})
		})
	}
}

func sinksGradCases(add func(string, func(*rig))) {
	for _, sh := range someHeads {
		T, heads := sh[0], sh[1]
		add(fmt.Sprintf("%v", sh[:2]), func(r *rig) {
			ds, delta, sinks := r.f32("DSinks", heads), r.f32("Delta", heads*T), r.f32("Sinks", heads)
			lse := r.values("LSE", device.F32, r.normal(heads*T))
			for i, v := range lse.v { // lse includes the sink
				lse.v[i] = max(v, 0) + sinks.v[i/max(T, 1)]*math.Log2E
			}
			lse = r.values("LSE with sinks", device.F32, lse.v)
			want := ds.copy()
			oracle.SinksGrad(want, lse.v, delta.v, sinks.v, T)
			ds.expect(want, 4*summing(T), 0)
			enqueue(r, op.SinksGrad{DSinks: ds.t, LSE: lse.t, Delta: delta.t, Sinks: sinks.t, T: T, Heads: heads})
		})
	}
}

func weightedBiasGradCases(add func(string, func(*rig))) {
	for _, sh := range append([][3]int{{2100, 3, 2100}, {300, 17, 301}}, someRows...) {
		T, C, P := sh[0], sh[1], sh[2]
		add(fmt.Sprintf("%v", sh), func(r *rig) {
			index := r.distinct(T, P)
			db, dw, dy, b, w, ids := r.f32("DB", C), r.f32("DW", P), r.act("DY", T*C), r.f32("B", C), r.f32("W", P), r.i32("Index", index)
			wantB, wantW := db.copy(), dw.copy()
			oracle.WeightedBiasGrad(wantB, wantW, dy.v, b.v, w.v, index)
			db.expect(wantB, summing(T), 0)
			dw.least = 1 // the size of the earlier content
			dw.expect(wantW, summing(C), 0)
			enqueue(r, op.WeightedBiasGrad{DB: db.t, DW: dw.t, DY: dy.t, B: b.t, W: w.t, Index: ids.t, T: T, C: C, P: P})
		})
	}
}
