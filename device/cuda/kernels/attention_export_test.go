package kernels

import "mt/device/op"

// Summed reports whether the backward pass `a` runs on a kernel that computes all gradients in one launch and adds the
// gradients of queries up in the memory Sums.
func Summed(a *op.AttentionBackward) bool { return gradientsTake(a) != nil }
