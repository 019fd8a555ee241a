package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// TestPreferenceWeights: the weights agree with the oracle for documents that are shorter and
// longer than a thread block.
func TestPreferenceWeights(t *testing.T) {
	dev := newRig()
	for _, lengths := range [][]int32{{1, 1}, {3, 700, 257, 256}} {
		for _, kind := range []op.PreferenceKind{op.Sigmoid, op.Hinge, op.IPO} {
			forms(t, dev, fmt.Sprintf("%v,%d", lengths, kind), func(e *elements) { e.preference(lengths, kind) })
		}
	}
	everyKernel(t, dev, "preferenceweights")
}

// preference tests one kind of loss with documents of these lengths. The bound allows for the
// rounding of the log probabilities: they are up to 1000 nats, and half an ulp of each changes the
// argument of the sigmoid.
func (e *elements) preference(lengths []int32, kind op.PreferenceKind) {
	cu := []int32{0}
	for _, n := range lengths {
		cu = append(cu, cu[len(cu)-1]+n)
	}
	T, pairs := int(cu[len(cu)-1]), len(lengths)/2
	targets, losses, reference := make([]int32, T), make([]float64, T), make([]float64, 2*pairs)
	for i := range lengths {
		for t := cu[i]; t < cu[i+1]; t++ {
			if targets[t] = op.IgnoreIndex; t%3 > 0 {
				targets[t], losses[t] = 1, math.Abs(e.rng.NormFloat64())
			}
			reference[i] -= losses[t]
		}
		reference[i] += e.rng.NormFloat64()
	}
	const beta, smoothing, likelihood = 0.5, 0.125, 0.25
	weights, l, ref := e.f32(T), e.put(device.F32, losses), e.put(device.F32, reference)
	want := weights.copy()
	oracle.PreferenceWeights(want, l.v, targets, cu, ref.v, int(kind), beta, smoothing, likelihood)
	weights.expect(want, 1000*uF32)
	kernels.PreferenceWeights(e.s, &op.PreferenceWeights{Weights: weights.t, Losses: l.t, Targets: e.i32(targets).t, Cu: e.i32(cu).t, Reference: ref.t,
		T: T, Pairs: pairs, Loss: op.PreferenceLoss{Kind: kind, Beta: beta, Smoothing: smoothing}, Likelihood: likelihood})
}
