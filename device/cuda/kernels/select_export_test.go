package kernels

import "mt/device/op"

// SelectKeysBy launches SelectKeys with at most most queries in a segment.
func SelectKeysBy(l Launcher, a *op.SelectKeys, most int) { selectSegments(l, a, most) }

// SparseAttentionBackwardBy launches SparseAttentionBackward with the given number of blocks for the gradient of keys.
func SparseAttentionBackwardBy(l Launcher, a *op.SparseAttentionBackward, blocks int) error {
	return sparseAttentionBackward(l, a, blocks)
}
