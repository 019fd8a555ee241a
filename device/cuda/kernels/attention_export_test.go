package kernels

import "mt/device/op"

// Summed reports whether, on GPUs without kernels for sm_90a, the backward a runs on the kernel
// that computes all gradients with memory for sums.
func Summed(a *op.AttentionBackward) bool { return gradientsTake(a) != nil }
