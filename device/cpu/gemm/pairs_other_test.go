//go:build !amd64 || noasm

package gemm

// pairsLevel is the level that multiplies pairs; nil: this machine cannot.
func pairsLevel() *level { return nil }
