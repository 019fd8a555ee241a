package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestElements: the kernels agree with the oracle in both forms (16 bytes or one element at a
// time), and with every size of team and block. Afterwards every kernel of the modules must have
// run.
func TestElements(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, for which TestOp runs the same interpreter")
	}
	dev := newRig()
	// Each norm shape is rows, groups, elements of a group, and padding of strides. Many rows test
	// sums over rows, and few rows suffice for other operations. Long tests run all.
	few := func(rows int) bool { return rows < 1000 || testkit.LongAsked() }
	for _, sh := range [][4]int{{3, 4, 64, 16}, {20, 2, 128, 0}, {37, 1, 256, 8}, {7, 3, 40, 8}, {1, 1, 8, 0}, {9, 1, 512, 0}, {3, 2, 1000, 24},
		{2, 1, 4096, 0}, {3, 1, 5120, 8}, {2, 1, 8192, 0}, {1, 2, 8200, 8}, {1100, 1, 264, 0}} {
		for _, add := range []bool{false, true} {
			if few(sh[0]) {
				forms(t, dev, fmt.Sprintf("RMSNorm/%v,%v", sh, add), func(e *elements) { e.norm(sh, add) })
			}
			if few(sh[0]) || !add {
				forms(t, dev, fmt.Sprintf("RMSNormBackward/%v,%v", sh, add), func(e *elements) { e.normBackward(sh, add) })
			}
		}
	}
	for _, sh := range [][2]int{{3, 64}, {37, 256}, {9, 512}, {2, 4096}, {3, 5120}, {2, 8192}, {1, 8200}, {1100, 264}} {
		for _, add := range []bool{false, true} {
			if few(sh[0]) {
				forms(t, dev, fmt.Sprintf("LayerNorm/%v,%v", sh, add), func(e *elements) { e.layerNorm(sh[0], sh[1], add) })
			}
			if few(sh[0]) || !add {
				forms(t, dev, fmt.Sprintf("LayerNormBackward/%v,%v", sh, add), func(e *elements) { e.layerNormBackward(sh[0], sh[1], add) })
			}
		}
	}
	// Each shape is T, heads, head size, rotated elements, and padding of the stride.
	for _, sh := range [][5]int{{5, 5, 128, 128, 8}, {3, 32, 64, 64, 0}, {70, 1, 128, 64, 0}, {2, 130, 16, 16, 0}} {
		for _, interleaved := range []bool{false, true} {
			forms(t, dev, fmt.Sprintf("RoPE/%v,%v", sh, interleaved), func(e *elements) { e.rope(sh, interleaved) })
		}
	}
	for _, sh := range [][2]int{{3, 704}, {2, 8200}, {2, 4096}, {1, 8}} {
		for f, want := range map[op.Activation]oracle.Activation{op.SiLU: oracle.SiLU, op.GELUTanh: oracle.GELUTanh, op.GELU: oracle.GELU, op.ReLU: oracle.ReLU} {
			forms(t, dev, fmt.Sprintf("GLU/%v,%v", f, sh), func(e *elements) { e.glu(f, want, sh[0], sh[1]) })
		}
		forms(t, dev, fmt.Sprintf("GLU/sigmoid,%v", sh), func(e *elements) { e.glu(op.SigmoidGate, oracle.Sigmoid, sh[0], sh[1]) })
		forms(t, dev, fmt.Sprintf("GLU/cut,%v", sh), func(e *elements) { e.cutGLU(sh[0], sh[1]) })
		for f, want := range map[op.Activation]oracle.Activation{op.SiLU: oracle.SiLU, op.GELUTanh: oracle.GELUTanh, op.GELU: oracle.GELU, op.ReLU: oracle.ReLU, op.SquaredReLU: oracle.SquaredReLU} {
			forms(t, dev, fmt.Sprintf("Activate/%v,%v", f, sh), func(e *elements) { e.activate(f, want, sh[0], sh[1]) })
		}
	}
	for _, sh := range [][2]int{{3, 512}, {700, 264}, {1100, 40}, {64, 8}} {
		forms(t, dev, fmt.Sprintf("AddBiasGrad/%v", sh), func(e *elements) { e.bias(sh[0], sh[1]) })
		forms(t, dev, fmt.Sprintf("WeightedBias/%v", sh), func(e *elements) { e.weightedBias(sh[0], sh[1]) })
	}
	for _, sh := range [][3]int{{5, 40, 512}, {9, 7, 8200}, {2, 3, 8}} {
		forms(t, dev, fmt.Sprintf("Rows/%v", sh), func(e *elements) { e.rows(sh[0], sh[1], sh[2]) })
	}
	for _, V := range []int{8, 2048, 33001} {
		for _, forwardOnly := range []bool{true, false} {
			for _, f := range lossForms {
				forms(t, dev, fmt.Sprintf("CrossEntropy/%d,%v,%v", V, forwardOnly, f), func(e *elements) { e.loss(V, f, forwardOnly) })
			}
		}
		for _, f := range lossForms {
			forms(t, dev, fmt.Sprintf("CrossEntropyShard/%d,%v", V, f), func(e *elements) { e.shards(V, f) })
		}
	}
	for _, n := range []int{3, 4100, 9001} {
		for _, to := range []device.DType{device.F32, device.BF16} {
			forms(t, dev, fmt.Sprintf("Convert/%d,%s", n, to), func(e *elements) {
				src, dst := e.act(n), e.normal(to, n, 1)
				dst.expect(src.copy(), 0)
				kernels.Convert(e.s, &op.Convert{Dst: dst.t, Src: src.t, N: int64(n)})
			})
		}
	}
	everyKernel(t, dev, "rmsnorm", "rmsnorm_backward", "layernorm", "layernorm_backward", "rope", "glu", "activate", "bias", "rows", "crossentropy",
		"crossentropy_cap", "crossentropy_terms", "crossentropy_terms_cap", "convert")
}

// everyKernel fails the test unless every kernel of the given modules has run.
func everyKernel(t *testing.T, dev *rig, modules ...string) {
	t.Helper()
	for _, of := range modules {
		m := testkit.Must(module(of))(t)
		for _, name := range m.Kernels() {
			if dev.counts[name] == nil {
				t.Errorf("%s: kernel %s has not run", of, name)
			}
		}
	}
}

// norm tests RMSNorm forward; with add it also has a residual and an offset of weights. The sum of
// squares has Dim terms. The few other roundings are within the allowance of summing.
func (e *elements) norm(sh [4]int, add bool) {
	width := sh[1] * sh[2]
	n := oracle.Norm{Rows: sh[0], Groups: sh[1], Dim: sh[2], XStride: width + sh[3], YStride: width + 2*sh[3], Eps: 1e-5}
	x, w, y, rstd := e.act(n.Rows*n.XStride), e.f32(n.Dim), e.act(n.Rows*n.YStride), e.f32(n.Rows*n.Groups)
	a := op.RMSNorm{Y: y.t, X: x.t, W: w.t, RStd: rstd.t, Rows: n.Rows, Groups: n.Groups, Dim: n.Dim,
		XStride: n.XStride, YStride: n.YStride, Eps: 1e-5}
	var residual []float64
	if add { // added to y, with an offset
		n.Offset, a.Offset, a.Residual, residual = 1, 1, y.t, y.v
	}
	wantY, wantR := y.copy(), rstd.copy()
	oracle.RMSNorm(wantY, wantR, x.v, w.v, residual, n)
	y.expect(wantY, summing(n.Dim))
	rstd.expect(wantR, summing(n.Dim))
	kernels.RMSNorm(e.s, &a)
}

// normBackward tests RMSNorm backward. Without add, DX overwrites DY in place. With add, DX is
// added to, and weights have an offset.
func (e *elements) normBackward(sh [4]int, add bool) {
	width := sh[1] * sh[2]
	n := oracle.Norm{Rows: sh[0], Groups: sh[1], Dim: sh[2], XBStride: width + sh[3], DYStride: width + 2*sh[3],
		DXStride: width + 2*sh[3], Add: add}
	x, w, dy, dw := e.act(n.Rows*n.XBStride), e.f32(n.Dim), e.act(n.Rows*n.DYStride), e.f32(n.Dim)
	dx := dy
	if add {
		n.Offset = -0.5
		n.DXStride += sh[3]
		dx = e.act(n.Rows * n.DXStride)
	}
	rstds := make([]float64, n.Rows*n.Groups)
	for i := range rstds {
		rstds[i] = 0.5 + e.rng.Float64()
	}
	rstd := e.put(device.F32, rstds)
	wantX, wantW := dx.copy(), dw.copy()
	oracle.RMSNormBackward(wantX, wantW, dy.copy(), x.v, w.v, rstd.v, n)
	dx.expect(wantX, summing(n.Dim))
	dw.expect(wantW, summing(n.Rows*n.Groups))
	kernels.RMSNormBackward(e.s, &op.RMSNormBackward{DX: dx.t, DW: dw.t, DY: dy.t, X: x.t, W: w.t, RStd: rstd.t, Rows: n.Rows,
		Groups: n.Groups, Dim: n.Dim, DXStride: n.DXStride, DYStride: n.DYStride, XStride: n.XBStride, Offset: float32(n.Offset), Add: add})
}

// layerNorm tests LayerNorm forward, with or without a bias. The inputs have a mean of about 3, so
// that x minus the mean has the rounding errors of larger numbers.
func (e *elements) layerNorm(rows, dim int, bias bool) {
	const eps = 1e-5
	x, w, y, stats := e.around(3, rows*dim), e.f32(dim), e.act(rows*dim), e.f32(2*rows)
	a := op.LayerNorm{Y: y.t, Stats: stats.t, X: x.t, W: w.t, Rows: rows, Dim: dim, Eps: eps}
	var b []float64
	if bias {
		v := e.f32(dim)
		a.B, b = v.t, v.v
	}
	wantY, wantS := y.copy(), stats.copy()
	oracle.LayerNorm(wantY, wantS, x.v, w.v, b, eps)
	y.expect(wantY, 4*summing(dim))
	stats.expect(wantS, 4*summing(dim))
	kernels.LayerNorm(e.s, &a)
}

// around returns n random numbers around mean.
func (e *elements) around(mean float64, n int) *vector {
	v := make([]float64, n)
	for i := range v {
		v[i] = mean + e.rng.NormFloat64()
	}
	return e.put(e.dt, v)
}

// layerNormBackward tests LayerNorm backward. Without add, DX overwrites DY in place; with add, DX
// is added to.
func (e *elements) layerNormBackward(rows, dim int, add bool) {
	x, w, dy, dw := e.around(3, rows*dim), e.f32(dim), e.act(rows*dim), e.f32(dim)
	dx := dy
	if add {
		dx = e.act(rows * dim)
	}
	stat := make([]float64, 2*rows)
	for i := range rows {
		stat[2*i], stat[2*i+1] = 3+e.rng.Float64(), 0.5+e.rng.Float64()
	}
	stats := e.put(device.F32, stat)
	wantX, wantW := dx.copy(), dw.copy()
	oracle.LayerNormBackward(wantX, wantW, dy.copy(), x.v, w.v, stats.v, add)
	dx.expect(wantX, 4*summing(dim))
	dw.expect(wantW, 4*summing(rows))
	kernels.LayerNormBackward(e.s, &op.LayerNormBackward{DX: dx.t, DW: dw.t, DY: dy.t, X: x.t, W: w.t, Stats: stats.t, Rows: rows, Dim: dim, Add: add})
}

// activate tests an activation forward, then backward in place (DX over X, Y over DY). The bounds
// are those of glu. The exact GELU computes its argument by a polynomial with a fit error of 1e-7,
// which they include.
func (e *elements) activate(f op.Activation, want oracle.Activation, T, F int) {
	x, dy, y := e.normal(e.dt, T*F, 4), e.act(T*F), e.act(T*F)
	wantY, wantDY, wantX := y.copy(), dy.copy(), x.copy()
	oracle.Activate(want, wantY, x.v)
	oracle.ActivateBackward(want, wantX, wantDY, dy.copy(), x.copy())
	bound := 12 * uF32
	if f != op.SiLU {
		bound = 44 * uF32
	}
	y.expect(wantY, bound)
	dy.expect(wantDY, bound)
	x.expect(wantX, bound)
	kernels.Activate(e.s, &op.Activate{Activation: f, Y: y.t, X: x.t, T: T, F: F})
	kernels.ActivateBackward(e.s, &op.ActivateBackward{Activation: f, DX: x.t, Y: dy.t, DY: dy.t, X: x.t, T: T, F: F})
}

// rope tests the rotation, and with unaligned tensors the inverse rotation.
func (e *elements) rope(sh [5]int, interleaved bool) {
	const places = 5
	T, heads, dim, rotary, stride := sh[0], sh[1], sh[2], sh[3], sh[1]*sh[2]+sh[4]
	pos := make([]int32, T)
	for i := range pos {
		pos[i] = int32(e.rng.IntN(places))
	}
	x, cos, sin, at := e.act(T*stride), e.f32(places*rotary/2), e.f32(places*rotary/2), e.i32(pos)
	want := x.copy()
	oracle.RoPE(want, cos.v, sin.v, pos, T, heads, dim, rotary, stride, e.at > 0, interleaved)
	x.expect(want, 4*uF32) // two products and a sum
	kernels.RoPE(e.s, &op.RoPE{X: x.t, Cos: cos.t, Sin: sin.t, Pos: at.t, T: T, Heads: heads, Dim: dim, Rotary: rotary,
		Stride: stride, Inverse: e.at > 0, Interleaved: interleaved})
}

// glu tests a GLU forward, then backward in place (DGU over GU, Y over DY). The bound 12 covers a
// sigmoid, which is an exponential (4·2⁻²⁴), a sum and a quotient, and the products after it. The
// bound 44 adds the error of the GELU's argument: up to 8 where σ is not constant, with four
// roundings.
func (e *elements) glu(f op.Activation, want oracle.Activation, T, F int) {
	gu, dy, y := e.normal(e.dt, 2*T*F, 4), e.act(T*F), e.act(T*F)
	wantY, wantDY, wantG := y.copy(), dy.copy(), gu.copy()
	oracle.GLU(want, wantY, gu.v, T, F)
	oracle.GLUBackward(want, wantG, wantDY, dy.copy(), gu.copy(), T, F)
	bound := 12 * uF32
	if f == op.GELUTanh || f == op.GELU {
		bound = 44 * uF32
	}
	y.expect(wantY, bound)
	dy.expect(wantDY, bound)
	gu.expect(wantG, bound)
	kernels.GLU(e.s, &op.GLU{Activation: f, Y: y.t, GU: gu.t, T: T, F: F})
	kernels.GLUBackward(e.s, &op.GLUBackward{Activation: f, DGU: gu.t, Y: dy.t, DY: dy.t, GU: gu.t, T: T, F: F})
}

func (e *elements) bias(T, N int) {
	db, dy := e.f32(N), e.act(T*N)
	want := db.copy()
	oracle.AddBiasGrad(want, dy.v, T, N)
	db.expect(want, summing(T))
	kernels.AddBiasGrad(e.s, &op.AddBiasGrad{DB: db.t, DY: dy.t, T: T, N: N})
}

// rows tests GatherRows of T rows from U, then ScatterAddRows and AddRows. The lists of
// ScatterAddRows add all T rows to row 1 and nothing to the others.
func (e *elements) rows(U, T, C int) {
	index, start := make([]int32, T), make([]int32, U+1)
	for i := range index {
		index[i] = int32(e.rng.IntN(U))
	}
	for u := 2; u <= U; u++ {
		start[u] = int32(T)
	}
	pos := make([]int32, T)
	for i, p := range e.rng.Perm(T) {
		pos[i] = int32(p)
	}
	src, dst, ids := e.act(U*C), e.act(T*C), e.i32(index)
	drows, from, at := e.f32(U*C), e.i32(start), e.i32(pos)
	want, wantRows := dst.copy(), drows.copy()
	oracle.GatherRows(want, src.v, index, C)
	oracle.ScatterAddRows(wantRows, want, start, pos, C)
	dst.expect(want, 0)
	drows.expect(wantRows, summing(T))
	kernels.GatherRows(e.s, &op.GatherRows{Dst: dst.t, Src: src.t, Index: ids.t, T: T, C: C})
	kernels.ScatterAddRows(e.s, &op.ScatterAddRows{DRows: drows.t, DY: dst.t, Start: from.t, Pos: at.t, U: U, T: T, C: C})

	sums, to := e.f32((T+3)*C), make([]int32, T)
	for i, p := range e.rng.Perm(T + 3)[:T] {
		to[i] = int32(p)
	}
	rows := e.i32(to)
	wantSums := sums.copy()
	oracle.AddRows(wantSums, want, to, C)
	sums.expect(wantSums, uF32)
	kernels.AddRows(e.s, &op.AddRows{Dst: sums.t, Src: dst.t, Index: rows.t, U: T + 3, T: T, C: C})
}

// lossForm is a variant of the loss: the softcap of logits, and the fields of op.LossTerms.
type lossForm struct{ limit, smoothing, z float64 }

var lossForms = []lossForm{{}, {limit: 4}, {smoothing: 0.25, z: 0.015625}, {limit: 4, smoothing: 0.25, z: 0.015625}}

func (f lossForm) terms() op.LossTerms {
	return op.LossTerms{Smoothing: float32(f.smoothing), Z: float32(f.z)}
}

// rowWeights returns factors for the rows of the gradient, and multiplies the expected gradient by
// them. Only forms with a softcap have such factors.
func (e *elements) rowWeights(f lossForm, grad []float64, V int, forwardOnly bool) device.Tensor {
	if f.limit == 0 {
		return device.Tensor{}
	}
	w := e.normal(device.F32, len(grad)/V, 1)
	for i := range grad {
		if !forwardOnly {
			grad[i] *= w.v[i/V]
		}
	}
	return w.t
}

// lossTargets returns the first column, the last, the ignored index and two invalid targets.
func lossTargets(V int) []int32 { return []int32{0, int32(V - 1), op.IgnoreIndex, int32(V), -1} }

// wantLoss computes the expected losses and gradients with the oracle. A row with an invalid target
// has loss NaN and the plain softmax as gradient.
func wantLoss(logits, losses []float64, targets []int32, V int, scale float64, f lossForm, forwardOnly bool) {
	for t, target := range targets {
		row, known := logits[t*V:(t+1)*V], []int32{target}
		wrong := target != op.IgnoreIndex && (target < 0 || int(target) >= V)
		if wrong {
			known[0] = 0
		}
		_, slope := oracle.Softcap(row[0], f.limit)
		oracle.CrossEntropy(row, known, losses[t:t+1], V, scale, f.limit, f.smoothing, f.z, forwardOnly)
		if wrong {
			losses[t] = math.NaN()
			if !forwardOnly {
				row[0] += (1 - f.smoothing) * scale * slope
			}
		}
	}
}

// lossBound adds 32 roundings to the error of a sum over V: arguments of exponentials are up to 30,
// whose half ulp is 16·2⁻²⁴ relative to the result. A capped logit is only up to 4, with 8
// roundings.
func lossBound(V int) float64 { return summing(V) + 32*uF32 }

func (e *elements) loss(V int, f lossForm, forwardOnly bool) {
	const scale = 0.125
	targets := lossTargets(V)
	T := len(targets)
	logits, ids, losses := e.normal(e.dt, T*V, 3), e.i32(targets), e.f32(T)
	want, wantL := logits.copy(), losses.copy()
	wantLoss(want, wantL, targets, V, scale, f, forwardOnly)
	weights := e.rowWeights(f, want, V, forwardOnly)
	if !forwardOnly {
		logits.expect(want, lossBound(V))
	}
	losses.expect(wantL, lossBound(V))
	kernels.CrossEntropy(e.s, &op.CrossEntropy{Logits: logits.t, Targets: ids.t, Losses: losses.t, Weights: weights, T: T, V: V, Scale: scale,
		Softcap: float32(f.limit), Terms: f.terms(), ForwardOnly: forwardOnly})
}

// shards tests CrossEntropyShard with the vocabulary in two shards: two sweeps for the losses, then
// two for the gradients.
func (e *elements) shards(V int, f lossForm) {
	const scale = 0.125
	targets, cut := lossTargets(V), V/3+1
	T := len(targets)
	whole, wantL := make([]float64, T*V), make([]float64, T)
	ids, lse, losses := e.i32(targets), e.f32(T), e.f32(T)
	var parts [2]*vector
	for i, width := range []int{cut, V - cut} {
		parts[i] = e.normal(e.dt, T*width, 3)
		for t := range T {
			copy(whole[t*V+i*cut:], parts[i].v[t*width:(t+1)*width])
		}
	}
	wantLSE := make([]float64, T)
	for t := range T {
		for _, x := range whole[t*V : (t+1)*V] {
			x, _ = oracle.Softcap(x, f.limit)
			wantLSE[t] += math.Exp(x)
		}
		wantLSE[t] = math.Log(wantLSE[t])
	}
	wantLoss(whole, wantL, targets, V, scale, f, false)
	weights := e.rowWeights(f, whole, V, false)
	lse.expect(wantLSE, lossBound(V))
	losses.expect(wantL, lossBound(V))
	for i, part := range parts {
		width := len(part.v) / T
		want := make([]float64, len(part.v))
		for t := range T {
			copy(want[t*width:(t+1)*width], whole[t*V+i*cut:])
		}
		part.expect(want, summing(V)+64*uF32) // the log-sum-exp, up to 20, is rounded
	}
	for sweep := range 4 {
		i := sweep % 2
		kernels.CrossEntropyShard(e.s, &op.CrossEntropyShard{Logits: parts[i].t, Targets: ids.t, LSE: lse.t, Losses: losses.t, Weights: weights, T: T,
			V: len(parts[i].v) / T, From: i * cut, Scale: scale, Softcap: float32(f.limit), Terms: f.terms(), Vocab: V, First: sweep == 0, Last: sweep == 1, Gradient: sweep > 1})
	}
}

// TestWrongIndex: an index outside its table reads and writes nothing there, and the result is NaN.
func TestWrongIndex(t *testing.T) {
	const C, half = 24, 8
	dev, nan := newRig(), math.NaN()
	forms(t, dev, "GatherRows", func(e *elements) {
		src, dst, ids := e.act(2*C), e.act(3*C), e.i32([]int32{2, 1, -1})
		want := dst.copy()
		for i := range want {
			want[i] = nan
		}
		copy(want[C:2*C], src.v[C:])
		dst.expect(want, 0)
		kernels.GatherRows(e.s, &op.GatherRows{Dst: dst.t, Src: src.t, Index: ids.t, T: 3, C: C})
	})
	forms(t, dev, "ScatterAddRows", func(e *elements) {
		drows, dy, start, pos := e.f32(3*C), e.act(2*C), e.i32([]int32{-4, 1, 9, 9}), e.i32([]int32{1, 2})
		want := drows.copy()
		for i := range C {
			want[i], want[C+i] = want[i]+dy.v[C+i], nan
		}
		drows.expect(want, 2*uF32)
		kernels.ScatterAddRows(e.s, &op.ScatterAddRows{DRows: drows.t, DY: dy.t, Start: start.t, Pos: pos.t, U: 3, T: 2, C: C})
	})
	for _, interleaved := range []bool{false, true} {
		forms(t, dev, fmt.Sprintf("RoPE/%v", interleaved), func(e *elements) {
			x, cos, sin, pos := e.act(3*2*half), e.f32(2*half), e.f32(2*half), e.i32([]int32{-1, 0, 2})
			want := x.copy()
			oracle.RoPE(want, cos.v, sin.v, []int32{0, 0, 0}, 3, 1, 2*half, 2*half, 2*half, false, interleaved)
			for i := range 2 * half {
				want[i], want[4*half+i] = nan, nan
			}
			x.expect(want, 4*uF32)
			kernels.RoPE(e.s, &op.RoPE{X: x.t, Cos: cos.t, Sin: sin.t, Pos: pos.t, T: 3, Heads: 1, Dim: 2 * half,
				Rotary: 2 * half, Stride: 2 * half, Interleaved: interleaved})
		})
	}
}

// TestNonFinite: a NaN among the logits reaches the loss of its own row and of no other, whichever
// shard it is in.
func TestNonFinite(t *testing.T) {
	const T, V = 3, 40
	dev := newRig()
	for bad := range 2 {
		forms(t, dev, fmt.Sprintf("CrossEntropyShard/%d", bad), func(e *elements) {
			ids, lse, losses := e.i32([]int32{1, 50, 2}), e.f32(T), e.f32(T)
			var parts [2]*vector
			for i := range parts {
				v := make([]float64, T*V)
				if i == bad {
					v[V+7] = math.NaN()
				}
				parts[i] = e.put(e.dt, v)
			}
			want := math.Log(2 * V)
			lse.expect([]float64{want, math.NaN(), want}, 8*uF32)
			losses.expect([]float64{want, math.NaN(), want}, 8*uF32)
			for i, part := range parts {
				kernels.CrossEntropyShard(e.s, &op.CrossEntropyShard{Logits: part.t, Targets: ids.t, LSE: lse.t, Losses: losses.t, T: T,
					V: V, From: i * V, Scale: 1, First: i == 0, Last: i == 1})
			}
		})
	}
	forms(t, dev, "CrossEntropy", func(e *elements) {
		v := make([]float64, T*V)
		v[V+7], v[2*V] = math.NaN(), math.Inf(-1) // the latter is a logit like others
		logits, ids, losses := e.put(e.dt, v), e.i32([]int32{1, 39, 2}), e.f32(T)
		losses.expect([]float64{math.Log(V), math.NaN(), math.Log(V - 1)}, 8*uF32)
		kernels.CrossEntropy(e.s, &op.CrossEntropy{Logits: logits.t, Targets: ids.t, Losses: losses.t, T: T, V: V, Scale: 1,
			ForwardOnly: true})
	})
}
