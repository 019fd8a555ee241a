// Package bf16 converts between float32 and bfloat16. A bfloat16 is the upper half of a float32.
//
// It may import the standard library only.
//
// Invariant: all plain Go code rounds to bfloat16 with this package, so results agree even on NaNs. Assembly and GPU
// kernels have their own rounding; tests compare their results with this package.
package bf16
