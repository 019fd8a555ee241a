package operations

import (
	"fmt"

	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("CrossEntropy", lossCases) }

func lossCases(add func(string, func(*rig))) {
	for _, sh := range [][2]int{{1, 1}, {3, 5}, {70, 17}, {9, 256}, {4, 1003}, {0, 6}} {
		for _, form := range []struct{ size, limit float64 }{{3, 0}, {40, 0}, {3, 2}, {40, 30}} {
			for _, forwardOnly := range []bool{false, true} {
				name := fmt.Sprintf("%dx%d,size %v,forward only %v", sh[0], sh[1], form.size, forwardOnly)
				if form.limit > 0 {
					name += fmt.Sprintf(",softcap %v", form.limit)
				}
				add(name, func(r *rig) { lossCase(r, sh[0], sh[1], form.size, form.limit, forwardOnly) })
			}
		}
	}
}

// exponents bounds the error of exp(x − log Σ exp x) for V numbers of some size,
// relative to 1. The argument is up to 8·size, and half an ulp of it becomes the
// relative error of the exponential. A capped logit was divided, turned into its
// tanh and multiplied before, each of which costs an ulp.
func exponents(V int, size, limit float64) float64 {
	if limit > 0 {
		size += 4 * min(size, limit)
	}
	return summing(V) + 8*size*uF32
}

func lossCase(r *rig, T, V int, size, limit float64, forwardOnly bool) {
	targets := make([]int32, T)
	for i := range targets {
		targets[i] = int32(r.rng.IntN(V))
		if i%4 == 3 {
			targets[i] = op.IgnoreIndex
		}
	}
	logits, ids, losses := r.values("Logits", r.dt, scaled(r.normal(T*V), size)), r.i32("Targets", targets), r.f32("Losses", T)
	want, wantL := logits.copy(), losses.copy()
	const scale = 0.125
	oracle.CrossEntropy(want, targets, wantL, V, scale, limit, forwardOnly)
	if !forwardOnly {
		logits.expect(want, exponents(V, size, limit), 1)
		if limit > 0 { // 1 − tanh² is as inexact as a number near 1
			logits.least = scale
		}
	}
	losses.expect(wantL, exponents(V, size, limit), 0)
	if V == 1 { // the loss is exactly 0
		losses.expect(wantL, 0, 0)
	}
	enqueue(r, op.CrossEntropy{Logits: logits.t, Targets: ids.t, Losses: losses.t, T: T, V: V,
		Scale: scale, Softcap: float32(limit), ForwardOnly: forwardOnly})
}
