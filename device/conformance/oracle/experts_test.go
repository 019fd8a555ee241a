package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSlopes: the slopes of Softcap and of the activations are the derivatives of their values.
func TestSlopes(t *testing.T) {
	for name, f := range map[string]Activation{"SiLU": SiLU, "GELUTanh": GELUTanh,
		"Softcap": func(x float64) (y, slope float64) { return Softcap(x, 1.5) },
		"no cap":  func(x float64) (y, slope float64) { return Softcap(x, 0) }} {
		for x := -6.0; x < 6; x += 0.37 {
			const h = 1e-5
			up, _ := f(x + h)
			down, _ := f(x - h)
			if _, slope := f(x); math.Abs(slope-(up-down)/(2*h)) > 1e-8 {
				t.Errorf("%s: the slope at %v is %v, differences give %v", name, x, slope, (up-down)/(2*h))
			}
		}
	}
}

func TestScaleRowsBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	const T, C, P = 3, 4, 6
	index, x, w, weights := []int32{4, 0, 3}, random(r, T*C), random(r, P), random(r, T*C)
	f := func() float64 {
		y := clone(x)
		ScaleRows(y, w, index, C)
		return dot(y, weights)
	}
	y, dy, dw := clone(x), clone(weights), make([]float64, P)
	ScaleRowsBackward(dy, y, w, dw, index, C)
	checkGrad(t, "dx", x, dy, f)
	checkGrad(t, "dw", w, dw, f)
	scaled := clone(x)
	ScaleRows(scaled, w, index, C)
	if !slices.Equal(y, scaled) {
		t.Errorf("scaled rows are %v, want %v", y, scaled)
	}
}

// TestRouter: among equal logits the lower index is chosen. Weights are the softmax probabilities;
// with normalize those of the chosen experts sum to 1.
func TestRouter(t *testing.T) {
	logits := []float64{0, math.Log(2), 0, math.Log(2), 0}
	for _, normalize := range []bool{false, true} {
		ids, weights, sum := make([]int32, 3), make([]float64, 3), []float64{1, 0, 0, 0, 0}
		Router(logits, nil, ids, weights, sum, 5, 3, normalize, RouterRule{})
		want := []float64{2.0 / 7, 2.0 / 7, 1.0 / 7}
		if normalize {
			want = []float64{0.4, 0.4, 0.2}
		}
		for k := range want {
			if math.Abs(weights[k]-want[k]) > 1e-15 {
				t.Errorf("normalize %v: weights %v, want %v", normalize, weights, want)
			}
		}
		if !slices.Equal(ids, []int32{1, 3, 0}) || math.Abs(sum[0]-8.0/7) > 1e-15 || math.Abs(sum[1]-2.0/7) > 1e-15 {
			t.Errorf("experts %v, sum of probabilities %v", ids, sum)
		}
	}
}

// TestRouterRule: keys (score plus bias) choose the experts, only among the best groups, and scores
// without bias weight them. A shared expert comes last.
func TestRouterRule(t *testing.T) {
	logit := func(p float64) float64 { return math.Log(p / (1 - p)) }
	logits := []float64{logit(0.9), logit(0.1), logit(0.6), logit(0.5), logit(0.2), logit(0.3), logit(0.75)}
	bias := []float64{0, 0, 0, 0, 0.6, 0.25}
	for _, c := range []struct {
		rule    RouterRule
		ids     []int32
		weights []float64
	}{
		// The keys by group are 0.9 0.1 | 0.6 0.5 | 0.8 0.55. With GroupBest 2 the groups rank by
		// 1, 1.1 and 1.35; with GroupBest 1 by 0.9, 0.6 and 0.8.
		{RouterRule{Sigmoid: true, Groups: 3, OpenGroups: 2, GroupBest: 2}, []int32{4, 2}, []float64{0.25, 0.75}},
		{RouterRule{Sigmoid: true, Groups: 3, OpenGroups: 2, GroupBest: 1}, []int32{0, 4}, []float64{0.9 / 1.1, 0.2 / 1.1}},
		{RouterRule{Sigmoid: true, Scale: 2.5}, []int32{0, 4}, []float64{2.5 * 0.9 / 1.1, 2.5 * 0.2 / 1.1}},
	} {
		for _, shared := range []string{"", "shared", "gated"} {
			rule, row, ids, want := c.rule, logits[:6], c.ids, c.weights
			switch shared {
			case "shared":
				rule.Shared = true
				ids, want = append(slices.Clone(ids), 6), append(slices.Clone(want), 1)
			case "gated":
				rule.Shared, rule.Gated = true, true
				row, ids, want = logits, append(slices.Clone(ids), 6), append(slices.Clone(want), 0.75)
			}
			got, weights := make([]int32, len(ids)), make([]float64, len(ids))
			Router(row, bias, got, weights, make([]float64, 6), 6, 2, true, rule)
			for k, w := range weights {
				if math.Abs(w-want[k]) > 1e-15 || got[k] != ids[k] {
					t.Errorf("%+v: experts %v with weights %v, want %v with %v", rule, got, weights, ids, want)
					break
				}
			}
		}
	}
}

func TestRouterBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	const T, E, K, aux = 4, 6, 2, 0.25
	counts, bias := []int32{3, 0, 1, 2, 2, 1}, random(r, E)
	for _, rule := range []RouterRule{{}, {Sigmoid: true, Scale: 1.5}, {Sigmoid: true, Groups: 3, OpenGroups: 2, GroupBest: 2, Shared: true},
		{Shared: true, Gated: true}, {Sigmoid: true, Shared: true, Gated: true}, {Scale: 2}, {Near: 0.5, Scale: 2}} {
		for _, normalize := range []bool{false, true} {
			t.Run(fmt.Sprintf("normalize %v, %+v", normalize, rule), func(t *testing.T) {
				wide, chosenOf := rule.widths(E, K)
				logits, dw := random(r, T*wide), random(r, T*chosenOf)
				ids, weights := make([]int32, T*chosenOf), make([]float64, T*chosenOf)
				f := func() float64 {
					sum := make([]float64, E)
					Router(logits, bias, ids, weights, sum, E, K, normalize, rule)
					s := dot(weights, dw)
					for e, p := range sum {
						s += aux * float64(counts[e]) * p
					}
					return s
				}
				f()
				chosen := slices.Clone(ids)
				grad := clone(logits)
				RouterBackward(grad, grad, chosen, dw, counts, E, K, normalize, rule, aux)
				checkGrad(t, "dlogits", logits, grad, f)
				if !slices.Equal(ids, chosen) {
					t.Fatal("other experts were chosen: differences say nothing")
				}
			})
		}
	}
}

func TestSortByExpert(t *testing.T) {
	ids := []int32{2, 0, 2, 3, 0, 2}
	order, rows, offsets, counts := make([]int32, 6), make([]int32, 6), make([]int32, 5), []int32{10, 20, 30, 40}
	SortByExpert(ids, order, rows, offsets, counts, 4, 2)
	for name, got := range map[string][2][]int32{
		"order": {order, {1, 4, 0, 2, 5, 3}}, "rows": {rows, {0, 2, 0, 1, 2, 1}}, "offsets": {offsets, {0, 2, 2, 5, 6}}, "counts": {counts, {12, 20, 33, 41}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s is %v, want %v", name, got[0], got[1])
		}
	}
}

// TestSinksGrad: AttentionBackward, given the O and LSE that Sinks leaves, and SinksGrad together
// give the gradients of attention with sinks.
func TestSinksGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	s := Shape{CuQ: []int32{0, 3, 5}, CuK: []int32{0, 3, 5}, TQ: 5, Heads: 2, KVHeads: 1, Dim: 3, Scale: 0.7, QStride: 6, KStride: 3,
		DQStride: 6, DKStride: 3}
	q, k, v, do, sinks := random(r, 30), random(r, 15), random(r, 15), random(r, 30), random(r, 2)
	o, lse := make([]float64, 30), make([]float64, 10)
	f := func() float64 {
		Attention(o, lse, q, k, v, s)
		Sinks(o, lse, sinks, s.TQ, s.Dim)
		return dot(o, do)
	}
	f()
	dq, dk, dv, ds, delta := make([]float64, 30), make([]float64, 15), make([]float64, 15), make([]float64, 2), make([]float64, 10)
	AttentionBackward(dq, dk, dv, do, clone(o), clone(lse), q, k, v, s)
	for h := range 2 {
		for row := range s.TQ {
			at := (row*2 + h) * s.Dim
			delta[h*s.TQ+row] = dot(o[at:at+s.Dim], do[at:at+s.Dim])
		}
	}
	SinksGrad(ds, clone(lse), delta, sinks, s.TQ)
	checkGrad(t, "q", q, dq, f)
	checkGrad(t, "k", k, dk, f)
	checkGrad(t, "v", v, dv, f)
	checkGrad(t, "sinks", sinks, ds, f)
}

func TestWeightedBiasGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	b, w, dy, index, src := random(r, 4), random(r, 5), random(r, 12), []int32{4, 0, 2}, make([]float64, 12)
	f := func() float64 {
		y := make([]float64, 12)
		AddWeightedRows(y, src, b, w, []int32{0, 1, 2}, index, 4)
		return dot(y, dy)
	}
	db, dw := make([]float64, 4), make([]float64, 5)
	WeightedBiasGrad(db, dw, dy, b, w, index)
	checkGrad(t, "b", b, db, f)
	checkGrad(t, "w", w, dw, f)
}

func TestCutGLUBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	gu, dy, y := random(r, 60), random(r, 30), make([]float64, 30)
	f := func() float64 {
		CutGLU(1.7, 0.8, y, gu, 3, 10)
		return dot(y, dy)
	}
	dgu, again := make([]float64, 60), make([]float64, 30)
	CutGLUBackward(1.7, 0.8, dgu, again, dy, gu, 3, 10)
	checkGrad(t, "gu", gu, dgu, f)
	if f(); dot(again, dy) != dot(y, dy) {
		t.Error("the result that the backward writes is another")
	}
}
