package kernels

import "mt/device/op"

// Summed reports whether the kernels with sums compute a, on GPUs without kernels of their own.
func Summed(a *op.AttentionBackward) bool { return gradientsTake(a) != nil }
