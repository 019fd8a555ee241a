// Package bfloat converts between float32 and bfloat16, the upper half of one.
//
// It may import the standard library only.
//
// Invariant: whatever plain Go code rounds to bfloat16 rounds here, so that all of
// it agrees, on NaNs too. Assembly and the GPU's kernels have their own and are
// held against it.
package bfloat
