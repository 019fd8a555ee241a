package kernels

import "mt/device/op"

// Summed says whether the kernels with sums take a, on GPUs that no other kernels are for.
func Summed(a *op.AttentionBackward) bool { return gradientsTake(a) != nil }
