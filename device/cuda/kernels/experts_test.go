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

// TestExperts: the kernels for mixtures of experts (scaling rows, router, sorting by expert) and
// for Newton-Schulz agree with the oracle in every form, over several blocks each. Afterwards each
// of these kernels must have run.
func TestExperts(t *testing.T) {
	testkit.NotShort(t)
	dev := newRig()
	for _, sh := range [][2]int{{1, 8}, {5, 768}, {3, 4104}, {2, 33 * 256}} {
		forms(t, dev, fmt.Sprintf("ScaleRows/%v", sh), func(e *elements) { e.scaleRows(sh[0], sh[1]) })
		forms(t, dev, fmt.Sprintf("Scale/%v", sh), func(e *elements) {
			x := e.act(sh[0] * sh[1])
			want := x.copy()
			oracle.Scale(want, -0.75)
			x.expect(want, uF32)
			kernels.Scale(e.s, &op.Scale{X: x.t, N: x.t.Len, Factor: -0.75})
		})
		forms(t, dev, fmt.Sprintf("Scale/columns of %v", sh), func(e *elements) {
			x, columns := e.act(sh[0]*sh[1]), sh[1]/2
			want := x.copy()
			for r := range sh[0] {
				oracle.Scale(want[r*sh[1]:r*sh[1]+columns], -0.75)
			}
			x.expect(want, uF32)
			kernels.Scale(e.s, &op.Scale{X: x.t, N: int64(columns), Factor: -0.75, Rows: sh[0], Stride: sh[1]})
		})
	}
	for _, n := range []int{8, 4104, 5000, 1<<20 + 4104} { // the last size has more than one block for each sum of squares
		forms(t, dev, fmt.Sprintf("NewtonSchulz/%d", n), func(e *elements) { e.newtonSchulz(n) })
	}
	// Each shape is T tokens, E experts and K chosen ones. The largest T gives some warps more than
	// one token.
	for _, sh := range [][3]int{{8300, 5, 2}, {30, 32, 32}, {9, 64, 6}, {17, 128, 8}, {9, 200, 8}, {3, 1000, 32}} {
		inFP32(t, dev, fmt.Sprintf("Router/%v", sh), func(e *elements) { e.router(sh[0], sh[1], sh[2], false, op.RouterRule{}) })
	}
	groups := op.RouterRule{Sigmoid: true, Groups: 4, OpenGroups: 2, GroupBest: 2, Scale: 2.5, Shared: true}
	gated := op.RouterRule{Shared: true, Gated: true}
	for _, z := range []struct {
		T, E, K int
		bias    bool
		rule    op.RouterRule
	}{{8300, 8, 3, true, groups}, {9, 32, 4, false, gated}, {9, 60, 4, true, op.RouterRule{}}, {9, 64, 6, true, groups}, {9, 128, 8, false, op.RouterRule{Sigmoid: true}},
		{9, 160, 6, false, op.RouterRule{Groups: 8, OpenGroups: 3, GroupBest: 1, Scale: 16}}, {5, 256, 8, true, groups}, {3, 1000, 31, true, groups}, {3, 384, 8, false, gated}} {
		inFP32(t, dev, fmt.Sprintf("Router/%+v", z), func(e *elements) { e.router(z.T, z.E, z.K, z.bias, z.rule) })
	}
	// Each shape is N pairs, K choices of a token and E experts. The largest N does not fit in
	// pieces of the smallest size.
	for _, sh := range [][3]int{{131072 + 640, 2, 6}, {700, 7, 1024}} {
		inFP32(t, dev, fmt.Sprintf("SortByExpert/%v", sh), func(e *elements) { e.sort(sh[0], sh[1], sh[2]) })
	}
	everyKernel(t, dev, "scale", "router", "sort", "newtonschulz")
}

// newtonSchulz tests DivideByNorm and WeightedSum, the operations of Newton-Schulz iterations
// besides matrix products. For a million elements it checks only the norm, because the interpreter
// is slow.
func (e *elements) newtonSchulz(n int) {
	x := e.act(n)
	want := x.copy()
	oracle.DivideByNorm(want, 1e-7)
	x.expect(want, summing(n)+bound16(e.dt))
	kernels.DivideByNorm(e.s, &op.DivideByNorm{X: x.t, N: x.t.Len, Eps: 1e-7})
	if n > 1<<20 {
		return
	}
	d, z, y := e.act(n), e.act(n), e.f32(n)
	sum := make([]float64, n)
	oracle.WeightedSum(sum, z.v, y.v, -4.775, 2.0315)
	d.expect(sum, 4*uF32)
	kernels.WeightedSum(e.s, &op.WeightedSum{D: d.t, X: z.t, Y: y.t, N: d.t.Len, A: -4.775, B: 2.0315})
}

// bound16 returns the error of rounding the norm to bf16, if dt is bf16.
func bound16(dt device.DType) float64 {
	if dt == device.BF16 {
		return 1.01 * uBF16
	}
	return 0
}

func (e *elements) scaleRows(T, C int) {
	index := make([]int32, T)
	for i, p := range e.rng.Perm(T + 2)[:T] {
		index[i] = int32(p)
	}
	w, dw, ids, x, y, dy := e.f32(T+2), e.f32(T+2), e.i32(index), e.act(T*C), e.act(T*C), e.act(T*C)
	wantX, wantY, wantDY, wantW := x.copy(), y.copy(), dy.copy(), dw.copy()
	oracle.ScaleRows(wantX, w.v, index, C)
	oracle.ScaleRowsBackward(wantDY, wantY, w.v, wantW, index, C)
	x.expect(wantX, uF32)
	y.expect(wantY, uF32)
	dy.expect(wantDY, uF32)
	dw.expect(wantW, summing(C))
	kernels.ScaleRows(e.s, &op.ScaleRows{X: x.t, W: w.t, Index: ids.t, T: T, C: C, P: T + 2})
	kernels.ScaleRowsBackward(e.s, &op.ScaleRowsBackward{DY: dy.t, Y: y.t, W: w.t, DW: dw.t, Index: ids.t, T: T, C: C, P: T + 2})
}

// router tests the router forward, then backward in place over the logits. Unaligned tensors also
// test normalized weights and sums of scores. Arguments of exponentials are up to 20. Half an ulp
// of them is the error of a probability, and a gradient has a few of these errors.
func (e *elements) router(T, E, K int, bias bool, rule op.RouterRule) {
	normalize, n, k := e.at > 0, T*rule.Logits(E), T*rule.Chosen(K)
	logits, sums, weights, dw := e.normal(device.F32, n, 2), e.f32(E), e.f32(k), e.f32(k)
	ids, counts, keys := e.i32(make([]int32, k)), make([]int32, E), &vector{}
	if bias {
		keys = e.normal(device.F32, E, 0.25)
	}
	for i := range counts {
		counts[i] = int32(e.rng.IntN(9))
	}
	chosen, wantW, wantS, want := make([]int32, k), weights.copy(), sums.copy(), logits.copy()
	oracle.Router(logits.v, keys.v, chosen, wantW, wantS, E, K, normalize, oracle.RouterRule(rule))
	oracle.RouterBackward(want, logits.v, chosen, dw.v, counts, E, K, normalize, oracle.RouterRule(rule), 0.25)
	wantIDs := make([]float64, k)
	for i, id := range chosen {
		wantIDs[i] = float64(id)
	}
	bound := summing(E) + 16*uF32
	ids.expect(wantIDs, 0)
	weights.expect(wantW, bound)
	logits.expect(want, 4*bound)
	a := op.Router{Logits: logits.t, Bias: keys.t, IDs: ids.t, Weights: weights.t, T: T, E: E, K: K, Normalize: normalize, Rule: rule}
	if normalize {
		a.ProbSum = sums.t
		sums.expect(wantS, bound+summing(T))
	}
	kernels.Router(e.s, &a)
	kernels.RouterBackward(e.s, &op.RouterBackward{DLogits: logits.t, Logits: logits.t, IDs: ids.t, DWeights: dw.t,
		Counts: e.i32(counts).t, T: T, E: E, K: K, Normalize: normalize, Rule: rule, AuxScale: 0.25})
}

// sort tests SortByExpert. Only unaligned tensors also ask for the counts of experts.
func (e *elements) sort(N, K, E int) {
	ids := make([]int32, N)
	for i := range ids {
		ids[i] = int32(e.rng.IntN(E) * e.rng.IntN(2)) // half of them expert 0
	}
	order, rows, offsets, counts := make([]int32, N), make([]int32, N), make([]int32, E+1), make([]int32, E)
	oracle.SortByExpert(ids, order, rows, offsets, counts, E, K)
	vector := func(want []int32) *vector {
		v, f := e.i32(make([]int32, len(want))), make([]float64, len(want))
		for i, x := range want {
			f[i] = float64(x)
		}
		v.expect(f, 0)
		return v
	}
	a := op.SortByExpert{IDs: e.i32(ids).t, Order: vector(order).t, Rows: vector(rows).t, Offsets: vector(offsets).t, N: N, K: K, E: E}
	if c := vector(counts); e.at > 0 {
		a.Counts = c.t
	} else {
		c.want = nil
	}
	kernels.SortByExpert(e.s, &a)
}

// TestStrangeLogits: for any logits, infinite and NaN ones included, a router chooses K different
// experts. The logits of one token do not affect another token.
func TestStrangeLogits(t *testing.T) {
	const T, E, K = 5, 40, 6
	inf, nan := math.Inf(1), math.NaN()
	dev := newRig()
	for name, strange := range map[string]func(e int) float64{
		"all NaN":          func(int) float64 { return nan },
		"some NaN":         func(e int) float64 { return []float64{nan, 1, -1}[e%3] },
		"all -Inf":         func(int) float64 { return -inf },
		"few finite":       func(e int) float64 { return []float64{-inf, float64(e)}[min(1, e/38)] },
		"Inf":              func(e int) float64 { return []float64{float64(e), inf}[min(1, e/37)] },
		"zeros, both":      func(e int) float64 { return math.Copysign(0, float64(e%2)-0.5) },
		"NaN of one token": func(e int) float64 { return []float64{0, nan}[min(1, e/39)] },
	} {
		for _, rule := range []op.RouterRule{{}, {Sigmoid: true, Groups: 4, OpenGroups: 2, GroupBest: 2}} {
			forms(t, dev, fmt.Sprintf("%s, %+v", name, rule), func(e *elements) {
				v := make([]float64, T*E)
				for i := range v {
					v[i] = float64(i % 7)
					if i/E == 2 {
						v[i] = strange(i % E)
					}
				}
				logits, ids, weights := e.put(device.F32, v), e.i32(make([]int32, T*K)), e.f32(T*K)
				kernels.Router(e.s, &op.Router{Logits: logits.t, IDs: ids.t, Weights: weights.t, T: T, E: E, K: K, Rule: rule})
				for i := range T {
					seen := map[float64]bool{}
					for k := range K {
						id, _ := e.get(ids.t, i*K+k)
						w, _ := e.get(weights.t, i*K+k)
						if id < 0 || id >= E || seen[id] || i != 2 && w != w {
							t.Fatalf("token %d: choice %d is expert %v with the weight %v", i, k, id, w)
						}
						seen[id] = true
						if name == "zeros, both" && i == 2 && id != float64(k) {
							t.Fatalf("choice %d of equal logits is expert %v", k, id)
						}
					}
				}
				e.vectors = nil // nothing else is expected
			})
		}
	}
}

// TestWrongExpert: SortByExpert drops the pairs whose expert does not exist.
func TestWrongExpert(t *testing.T) {
	forms(t, newRig(), "SortByExpert", func(e *elements) {
		ids := e.i32([]int32{1, -1, 0, 2, 1, 0x7fffffff})
		order, rows, offsets := e.i32(make([]int32, 6)), e.i32(make([]int32, 6)), e.i32(make([]int32, 3))
		order.expect([]float64{2, 0, 4, 0, 0, 0}, 0)
		rows.expect([]float64{1, 0, 2, 0, 0, 0}, 0)
		offsets.expect([]float64{0, 1, 3}, 0)
		kernels.SortByExpert(e.s, &op.SortByExpert{IDs: ids.t, Order: order.t, Rows: rows.t, Offsets: offsets.t, N: 6, K: 2, E: 2})
	})
}

// TestWrongRow: AddRows writes no row with an invalid index. A row scaled by a weight with an
// invalid index becomes NaN.
func TestWrongRow(t *testing.T) {
	const C = 24
	nan, dev := math.NaN(), newRig()
	forms(t, dev, "AddRows", func(e *elements) {
		dst, src, ids := e.f32(2*C), e.act(3*C), e.i32([]int32{2, 1, -1})
		want := dst.copy()
		for i := range C {
			want[C+i] += src.v[C+i]
		}
		dst.expect(want, uF32)
		kernels.AddRows(e.s, &op.AddRows{Dst: dst.t, Src: src.t, Index: ids.t, U: 2, T: 3, C: C})
	})
	forms(t, dev, "ScaleRows", func(e *elements) {
		w, dw, ids := e.f32(2), e.f32(2), e.i32([]int32{2, 1, -1})
		var x [3]*vector
		for i := range x {
			x[i] = e.act(3 * C)
			want := x[i].copy()
			for c := range C {
				want[c], want[C+c], want[2*C+c] = nan, want[C+c]*w.v[1], nan
			}
			x[i].expect(want, uF32)
		}
		wantW := dw.copy()
		wantW[1] = 0
		for c := C; c < 2*C; c++ {
			wantW[1] += x[1].v[c] * x[2].v[c]
		}
		dw.expect(wantW, summing(C))
		kernels.ScaleRows(e.s, &op.ScaleRows{X: x[0].t, W: w.t, Index: ids.t, T: 3, C: C, P: 2})
		kernels.ScaleRowsBackward(e.s, &op.ScaleRowsBackward{DY: x[1].t, Y: x[2].t, W: w.t, DW: dw.t, Index: ids.t, T: 3, C: C, P: 2})
	})
}
