package gemm

import (
	"fmt"
	"testing"
	"unsafe"

	"mt/base/parallel"
)

// BenchmarkRun reports GFLOP/s and, for a single row of A, the GB/s at which B is
// read.
func BenchmarkRun(b *testing.B) {
	type shape struct {
		name    string
		m, n, k int
		ta, tb  bool
		add     bool
		bf16    bool
	}
	const tokens = 2048
	shapes := []shape{
		{name: "square", m: 512, n: 512, k: 512},
		{name: "square", m: 1024, n: 1024, k: 1024},
		{name: "square", m: 2048, n: 2048, k: 2048},
		{name: "decode", m: 1, n: 4096, k: 4096, tb: true},
		{name: "decode-bf16", m: 1, n: 4096, k: 4096, tb: true, bf16: true},
	}
	for _, s := range [][2]int{{256, 256}, {256, 704}, {1024, 1024}, {1024, 2816}} {
		k, n := s[0], s[1]
		shapes = append(shapes,
			shape{name: "forward", m: tokens, n: n, k: k, tb: true},
			shape{name: "dX", m: tokens, n: k, k: n},
			shape{name: "dW", m: n, n: k, k: tokens, ta: true, add: true})
	}
	pool := parallel.New(0)
	defer pool.Close()
	ws := &Workspace{}
	for _, s := range shapes {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, s.m, s.n, s.k), func(b *testing.B) {
			left, right, d := ones(s.m*s.k), ones(s.k*s.n), ones(s.m*s.n)
			a := Args{
				M: s.m, N: s.n, K: s.k, TransA: s.ta, TransB: s.tb, BBF16: s.bf16,
				A: unsafe.Pointer(&left[0]), B: unsafe.Pointer(&right[0]), D: unsafe.Pointer(&d[0]),
			}
			if s.add {
				a.C = a.D
			}
			for b.Loop() {
				Run(pool, ws, a)
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)/seconds/1e9, "GFLOP/s")
			if s.m == 1 {
				_, stored, _ := a.operands()
				b.ReportMetric(float64(s.n*s.k*stored.size())/seconds/1e9, "GB/s")
			}
		})
	}
}

// ones returns n ones. It writes the memory, because reads of memory that was never written would
// come from the cache.
func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	return x
}
