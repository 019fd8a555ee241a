package oracle

import "math"

// WeightedSum is d = a·x + b·y.
func WeightedSum(d, x, y []float64, a, b float64) {
	for i := range d {
		d[i] = a*x[i] + b*y[i]
	}
}

// DivideByNorm divides x by its norm, or by eps where that is more.
func DivideByNorm(x []float64, eps float64) {
	Scale(x, 1/max(math.Sqrt(dot(x, x)), eps))
}

// Coefficients are those of the Newton-Schulz iteration that torch.optim.Muon takes.
var Coefficients = [3]float64{3.4445, -4.775, 2.0315}

// NewtonSchulz brings the singular values of x (rows, cols) near 1, in so many steps: x is
// divided by its norm, and then x = a·x + (b·g + c·g²)·x with g = x·xᵀ again and again, on
// the transposed matrix where there are more rows than columns. round is what happens to
// everything that is stored. Source: torch.optim.Muon.
func NewtonSchulz(x []float64, rows, cols, steps int, eps float64, round func(float64) float64) {
	if rows > cols {
		t := transposed(x, rows, cols)
		NewtonSchulz(t, cols, rows, steps, eps, round)
		copy(x, transposed(t, cols, rows))
		return
	}
	store := func(v []float64) {
		for i := range v {
			v[i] = round(v[i])
		}
	}
	store(x)
	norm := max(round(math.Sqrt(dot(x, x))), eps)
	for i := range x {
		x[i] = round(x[i] / norm)
	}
	a, b, c := Coefficients[0], Coefficients[1], Coefficients[2]
	g, p, next := make([]float64, rows*rows), make([]float64, rows*rows), make([]float64, rows*cols)
	for range steps {
		MatMul(g, x, x, nil, nil, rows, rows, cols, false, true)
		store(g)
		MatMul(p, g, g, nil, nil, rows, rows, rows, false, false)
		WeightedSum(p, g, p, b, c)
		store(p)
		MatMul(next, p, x, nil, nil, rows, cols, rows, false, false)
		WeightedSum(x, x, next, a, 1)
		store(x)
	}
}

func transposed(x []float64, rows, cols int) []float64 {
	t := make([]float64, len(x))
	for r := range rows {
		for c := range cols {
			t[c*rows+r] = x[r*cols+c]
		}
	}
	return t
}
