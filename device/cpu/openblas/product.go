package openblas

import (
	"fmt"
	"unsafe"

	"mt/base/parallel"
	"mt/device/cpu/gemm"
)

// Product is D (M,N) = op(A) (M,K) · op(B) (K,N) for dense row-major fp32 matrices. With Accumulate the product is
// added to D.
type Product struct {
	M, N, K int
	// TransA: A is stored (K,M). TransB: B is stored (N,K).
	TransA, TransB bool
	Accumulate     bool
	A, B, D        []float32
}

// FLOPs returns the number of multiplications and additions that computing p takes.
func (p *Product) FLOPs() float64 { return 2 * float64(p.M) * float64(p.N) * float64(p.K) }

// check panics if a slice is shorter than the extents need.
func (p *Product) check() {
	if min(p.M, p.N, p.K) < 1 || len(p.A) < p.M*p.K || len(p.B) < p.K*p.N || len(p.D) < p.M*p.N {
		panic(fmt.Sprintf("openblas: M %d, N %d, K %d with %d, %d and %d elements",
			p.M, p.N, p.K, len(p.A), len(p.B), len(p.D)))
	}
}

// Gemm computes p with package gemm on the threads of pool.
func (p *Product) Gemm(pool *parallel.Pool, ws *gemm.Workspace) {
	p.check()
	a := gemm.Args{
		M: p.M, N: p.N, K: p.K, TransA: p.TransA, TransB: p.TransB,
		A: unsafe.Pointer(&p.A[0]), B: unsafe.Pointer(&p.B[0]), D: unsafe.Pointer(&p.D[0]),
	}
	if p.Accumulate {
		a.C = a.D
	}
	gemm.Run(pool, ws, a)
}
