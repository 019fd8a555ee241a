package kernels

import "mt/device/op"

// SelectKeysBy launches SelectKeys with at most most queries in a segment.
func SelectKeysBy(l Launcher, a *op.SelectKeys, most int) { selectSegments(l, a, most) }
