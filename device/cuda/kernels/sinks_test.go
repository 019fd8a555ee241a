package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// TestSinks: the kernels of attention sinks agree with the oracle in every form, over several
// blocks each. Afterwards each of them must have run.
func TestSinks(t *testing.T) {
	dev := newRig()
	for _, sh := range [][3]int{{1, 1, 8}, {5, 3, 64}, {3, 64, 128}, {1100, 2, 16}} {
		forms(t, dev, fmt.Sprintf("Sinks/%v", sh), func(e *elements) { e.sinks(sh[0], sh[1], sh[2]) })
	}
	everyKernel(t, dev, "sinks")
}

// sinks tests Sinks and, on its result, SinksGrad. The bound allows for σ(lse − sink): an
// exponential of a difference up to 40, a sum and a quotient.
func (e *elements) sinks(T, heads, dim int) {
	o, lse, sinks := e.act(T*heads*dim), e.normal(device.F32, heads*T, 4), e.normal(device.F32, heads, 4)
	wantO, wantL := o.copy(), lse.copy()
	oracle.Sinks(wantO, wantL, sinks.v, T, dim)
	o.expect(wantO, 64*uF32)
	lse.expect(wantL, 8*uF32)
	kernels.Sinks(e.s, &op.Sinks{O: o.t, LSE: lse.t, Sinks: sinks.t, T: T, Heads: heads, Dim: dim})

	ds, delta := e.f32(heads), e.f32(heads*T)
	left := e.put(device.F32, wantL)
	want := ds.copy()
	oracle.SinksGrad(want, left.v, delta.v, sinks.v, T)
	ds.expect(want, 64*uF32+summing(T))
	kernels.SinksGrad(e.s, &op.SinksGrad{DSinks: ds.t, LSE: left.t, Delta: delta.t, Sinks: sinks.t, T: T, Heads: heads})
}

// weightedBias tests AddRows with weights and a bias, and WeightedBiasGrad.
func (e *elements) weightedBias(T, C int) {
	index := make([]int32, T)
	for i, p := range e.rng.Perm(T + 2)[:T] {
		index[i] = int32(p)
	}
	dst, src, b, w, ids := e.f32((T+2)*C), e.act(T*C), e.f32(C), e.f32(T+2), e.i32(index)
	want := dst.copy()
	oracle.AddWeightedRows(want, src.v, b.v, w.v, index, index, C)
	dst.expect(want, 4*uF32)
	kernels.AddRows(e.s, &op.AddRows{Dst: dst.t, Src: src.t, Index: ids.t, U: T + 2, T: T, C: C, Bias: b.t, W: w.t, Pairs: ids.t, P: T + 2})

	db, dw, dy := e.f32(C), e.f32(T+2), e.act(T*C)
	wantB, wantW := db.copy(), dw.copy()
	oracle.WeightedBiasGrad(wantB, wantW, dy.v, b.v, w.v, index)
	db.expect(wantB, summing(T))
	dw.expect(wantW, summing(C))
	kernels.WeightedBiasGrad(e.s, &op.WeightedBiasGrad{DB: db.t, DW: dw.t, DY: dy.t, B: b.t, W: w.t, Index: ids.t, T: T, C: C, P: T + 2})
}

// cutGLU tests the clamped GLU (op.CutSiLU) forward and backward. Some gates and ups are exactly at
// the limit.
func (e *elements) cutGLU(T, F int) {
	const alpha, limit = 1.5, 3
	v := e.normal(e.dt, 2*T*F, 4).copy()
	for i := 0; i < len(v); i += 5 {
		v[i] = math.Copysign(limit, v[i])
	}
	gu, dy, y := e.put(e.dt, v), e.act(T*F), e.act(T*F)
	wantY, wantDY, wantG := y.copy(), dy.copy(), gu.copy()
	oracle.CutGLU(alpha, limit, wantY, gu.v, T, F)
	oracle.CutGLUBackward(alpha, limit, wantG, wantDY, dy.copy(), gu.copy(), T, F)
	y.expect(wantY, 16*uF32)
	dy.expect(wantDY, 16*uF32)
	gu.expect(wantG, 16*uF32)
	cut := op.Cut{Alpha: alpha, Limit: limit}
	kernels.GLU(e.s, &op.GLU{Activation: op.CutSiLU, Cut: cut, Y: y.t, GU: gu.t, T: T, F: F})
	kernels.GLUBackward(e.s, &op.GLUBackward{Activation: op.CutSiLU, Cut: cut, DGU: gu.t, Y: dy.t, DY: dy.t, GU: gu.t, T: T, F: F})
}

// TestNoNumberStays: a NaN in gate or up stays a NaN in the results; no comparison turns it into a
// number.
func TestNoNumberStays(t *testing.T) {
	nan := math.NaN()
	forms(t, newRig(), "GLU", func(e *elements) {
		gu, y, dy := e.put(e.dt, []float64{nan, 1, 1, nan}), e.act(2), e.act(2)
		y.expect([]float64{nan, nan}, 0)
		cut := op.Cut{Alpha: 1, Limit: 2}
		kernels.GLU(e.s, &op.GLU{Activation: op.CutSiLU, Cut: cut, Y: y.t, GU: gu.t, T: 1, F: 2})
		gu.expect([]float64{nan, nan, nan, 0.7310586 * dy.v[1]}, 1.01*uBF16)
		kernels.GLUBackward(e.s, &op.GLUBackward{Activation: op.CutSiLU, Cut: cut, DGU: gu.t, DY: dy.t, GU: gu.t, T: 1, F: 2})
	})
}

// TestWrongWeight: an index outside the weights gives NaN, and no gradient of a weight is written.
func TestWrongWeight(t *testing.T) {
	const C = 24
	nan := math.NaN()
	forms(t, newRig(), "WeightedBias", func(e *elements) {
		y, b, w, dw, db, ids := e.act(2*C), e.f32(C), e.f32(2), e.f32(2), e.f32(C), e.i32([]int32{2, 1})
		dst, rows := e.f32(2*C), e.i32([]int32{1, 0})
		want, all, wantW := dst.copy(), db.copy(), dw.copy()
		for c := range C {
			wantW[1] += y.v[C+c] * b.v[c]
			want[C+c], want[c], all[c] = nan, want[c]+w.v[1]*(y.v[C+c]+b.v[c]), nan
		}
		db.expect(all, 0)
		dw.expect(wantW, summing(C))
		kernels.WeightedBiasGrad(e.s, &op.WeightedBiasGrad{DB: db.t, DW: dw.t, DY: y.t, B: b.t, W: w.t, Index: ids.t, T: 2, C: C, P: 2})
		dst.expect(want, 4*uF32)
		kernels.AddRows(e.s, &op.AddRows{Dst: dst.t, Src: y.t, Index: rows.t, U: 2, T: 2, C: C, Bias: b.t, W: w.t, Pairs: ids.t, P: 2})
	})
}
