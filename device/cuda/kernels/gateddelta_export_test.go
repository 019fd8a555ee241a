package kernels

import "mt/device/op"

// GatedDeltaBy launches GatedDelta in segments of at most most chunks.
func GatedDeltaBy(l Launcher, a *op.GatedDelta, most int) { gatedDelta(l, a, most) }

// GatedDeltaBackwardBy launches GatedDeltaBackward in segments of at most most chunks.
func GatedDeltaBackwardBy(l Launcher, a *op.GatedDeltaBackward, most int) {
	gatedDeltaBackward(l, a, most)
}
