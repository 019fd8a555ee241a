//go:build !amd64 || noasm

package gemm

// pairsLevel returns nil: only amd64 has kernels that multiply pairs of bf16.
func pairsLevel() *level { return nil }
