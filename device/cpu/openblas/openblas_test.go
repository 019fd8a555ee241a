package openblas

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"mt/base/parallel"
	"mt/device/cpu/gemm"
	"mt/internal/testkit"
)

// fill returns n values in [-1, 1] that repeat with no short period.
func fill(n int, seed uint32) []float32 {
	x := make([]float32, n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(int32(seed)) / (1 << 31)
	}
	return x
}

// product returns a Product with operands of its own, for tests.
func product(m, n, k int, transA, transB, accumulate bool) *Product {
	return &Product{
		M: m, N: n, K: k, TransA: transA, TransB: transB, Accumulate: accumulate,
		A: fill(m*k, 1), B: fill(k*n, 2), D: fill(m*n, 3),
	}
}

// want returns the result of p computed in float64.
func want(p *Product) []float64 {
	out := make([]float64, p.M*p.N)
	for i := range p.M {
		for j := range p.N {
			var sum float64
			if p.Accumulate {
				sum = float64(p.D[i*p.N+j])
			}
			for l := range p.K {
				a, b := i*p.K+l, l*p.N+j
				if p.TransA {
					a = l*p.M + i
				}
				if p.TransB {
					b = j*p.K + l
				}
				sum += float64(p.A[a]) * float64(p.B[b])
			}
			out[i*p.N+j] = sum
		}
	}
	return out
}

// check compares p.D with sums, the result in float64. A sum of K products of numbers up to 1,
// added to a number up to 1, has K+1 roundings of numbers up to K+1, each 2^-24 relative.
func check(t *testing.T, p *Product, sums []float64) {
	t.Helper()
	bound := float64(p.K+1) * float64(p.K+1) * 0x1p-24
	for i, v := range p.D {
		if d := math.Abs(float64(v) - sums[i]); !(d <= bound) {
			t.Fatalf("element %d is %g, want %g within %g", i, v, sums[i], bound)
		}
	}
}

// eachProduct runs f for every combination of transposing and accumulating.
func eachProduct(t *testing.T, f func(t *testing.T, p *Product)) {
	for bits := range 8 {
		p := product(5, 7, 11, bits&1 != 0, bits&2 != 0, bits&4 != 0)
		t.Run(fmt.Sprintf("transA=%t transB=%t accumulate=%t", p.TransA, p.TransB, p.Accumulate), func(t *testing.T) {
			f(t, p)
		})
	}
}

func TestGemm(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	ws := new(gemm.Workspace)
	eachProduct(t, func(t *testing.T, p *Product) {
		sums := want(p)
		p.Gemm(pool, ws)
		check(t, p, sums)
	})
}

func TestMultiply(t *testing.T) {
	l, err := Open()
	if errors.Is(err, ErrNotFound) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	for _, threads := range []int{1, 2} {
		l.SetThreads(threads)
		eachProduct(t, func(t *testing.T, p *Product) {
			sums := want(p)
			l.Multiply(p)
			check(t, p, sums)
		})
	}
}

func TestOpenNamesWhatItCannotLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.so")
	t.Setenv(Variable, path)
	_, err := Open()
	if err == nil || !strings.Contains(err.Error(), Variable+"="+path) {
		t.Errorf("error %v does not name %s=%s", err, Variable, path)
	}
}

func TestProductTooShort(t *testing.T) {
	p := product(2, 2, 2, false, false, false)
	p.D = p.D[:3]
	defer func() {
		if recover() == nil {
			t.Error("no panic with a result of 3 elements for 2 by 2")
		}
	}()
	p.check()
}
