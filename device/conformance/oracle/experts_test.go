package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The slopes of Softcap and of the activations are those of their values.
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

// Of equal logits the first ones are chosen. Weights are probabilities, or are
// normalised and sum to 1.
func TestRouter(t *testing.T) {
	logits := []float64{0, math.Log(2), 0, math.Log(2), 0}
	for _, normalize := range []bool{false, true} {
		ids, weights, sum := make([]int32, 3), make([]float64, 3), []float64{1, 0, 0, 0, 0}
		Router(logits, ids, weights, sum, 5, 3, normalize)
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

func TestRouterBackward(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	const T, E, K, aux = 4, 5, 2, 0.25
	counts := []int32{3, 0, 1, 2, 2}
	for _, normalize := range []bool{false, true} {
		t.Run(fmt.Sprintf("normalize %v", normalize), func(t *testing.T) {
			logits, dw := random(r, T*E), random(r, T*K)
			ids, weights := make([]int32, T*K), make([]float64, T*K)
			f := func() float64 {
				sum := make([]float64, E)
				Router(logits, ids, weights, sum, E, K, normalize)
				s := dot(weights, dw)
				for e, p := range sum {
					s += aux * float64(counts[e]) * p
				}
				return s
			}
			f()
			chosen := slices.Clone(ids)
			grad := clone(logits)
			RouterBackward(grad, grad, chosen, dw, counts, E, K, normalize, aux)
			checkGrad(t, "dlogits", logits, grad, f)
			if !slices.Equal(ids, chosen) {
				t.Fatal("other experts were chosen: differences say nothing")
			}
		})
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
