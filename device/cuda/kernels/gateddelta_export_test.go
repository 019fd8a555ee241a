package kernels

import "mt/device/op"

// GatedDeltaBy launches GatedDelta with at most most sequences at a time.
func GatedDeltaBy(l Launcher, a *op.GatedDelta, most int) { gatedDelta(l, a, most) }

// GatedDeltaBackwardBy launches GatedDeltaBackward with at most most sequences at a time.
func GatedDeltaBackwardBy(l Launcher, a *op.GatedDeltaBackward, most int) {
	gatedDeltaBackward(l, a, most)
}
