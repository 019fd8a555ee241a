// Package bf16 converts between float32 and bfloat16, which is the upper half of
// a float32.
//
// It may import the standard library only.
//
// Invariant: all plain Go code that rounds to bfloat16 does so with this package,
// so that it agrees even on NaNs. Assembly and the GPU's kernels round by
// themselves, and are tested against it.
package bf16
