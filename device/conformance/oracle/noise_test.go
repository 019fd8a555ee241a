package oracle

import (
	"math"
	"testing"
)

// TestUniform: what is drawn is spread evenly and neighbours have nothing to do with each other, whether they are
// columns, places, steps or seeds. Of n independent numbers a mean is off by σ/√n; five times that is once in two million.
func TestUniform(t *testing.T) {
	const n = 1 << 16
	draw := map[string]func(i int) float64{
		"columns": func(i int) float64 { return Uniform(7, 3, 11, i) },
		"places":  func(i int) float64 { return Uniform(7, 3, i, 5) },
		"steps":   func(i int) float64 { return Uniform(7, i, 11, 5) },
		"seeds":   func(i int) float64 { return Uniform(uint64(i)<<20, 3, 11, 5) },
	}
	for name, f := range draw {
		var mean, square, product float64
		var eighths [8]float64
		last := f(n)
		for i := range n {
			u := f(i)
			if !(u > -1 && u < 1) {
				t.Fatalf("%s: %v", name, u)
			}
			mean, square, product = mean+u/n, square+u*u/n, product+u*last/n
			eighths[int((u+1)*4)] += 1.0 / n
			last = u
		}
		off := func(what string, got, want, deviation float64) {
			if math.Abs(got-want) > 5*deviation/math.Sqrt(n) {
				t.Errorf("%s: %s is %v, want %v", name, what, got, want)
			}
		}
		off("the mean", mean, 0, math.Sqrt(1.0/3))
		off("the mean square", square, 1.0/3, math.Sqrt(1.0/5-1.0/9))
		off("the product of neighbours", product, 0, 1.0/3)
		for i, share := range eighths {
			off("the share of eighth "+string(rune('1'+i)), share, 1.0/8, math.Sqrt(7.0/64))
		}
	}
}

// TestAddNoise: each document gets the size that its length asks for, and a token what its place in the step is drawn, wherever
// a part begins.
func TestAddNoise(t *testing.T) {
	const C = 6
	cu := []int32{0, 2, 2, 11}
	whole := make([]float64, 11*C)
	AddNoise(whole, cu, 0, 100, 4, C, 9, 2)
	for i, v := range whole {
		length := 2.0
		if i/C >= 2 {
			length = 9
		}
		if want := 2 / math.Sqrt(length) * Uniform(9, 4, 100+i/C, i%C); v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
	part := make([]float64, 3*C)
	AddNoise(part, cu, 5, 100, 4, C, 9, 2)
	for i, v := range part {
		if v != whole[5*C+i] {
			t.Fatalf("element %d of a part is %v, want %v", i, v, whole[5*C+i])
		}
	}
}
