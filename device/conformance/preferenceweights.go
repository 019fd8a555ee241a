package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() { row("PreferenceWeights", preferenceCases) }

// preferenceLosses has a loss of every kind. With the hinge loss, one pair has a large margin and
// so the loss 0.
var preferenceLosses = []op.PreferenceLoss{{Kind: op.Sigmoid, Beta: 0.125}, {Kind: op.Sigmoid, Beta: 0.5, Smoothing: 0.25}, {Kind: op.Hinge, Beta: 0.25},
	{Kind: op.IPO, Beta: 0.5}}

func preferenceCases(add func(string, func(*rig))) {
	for _, lengths := range [][]int{{2, 2}, {5, 9, 1, 3, 40, 7}, {300, 2}, {700, 513, 2, 2, 0, 3}, {}} {
		for _, loss := range preferenceLosses {
			for _, likelihood := range []float32{0, 0.5} {
				add(fmt.Sprintf("%v,%+v,likelihood %v", lengths, loss, likelihood), func(r *rig) { preferenceCase(r, lengths, loss, likelihood) })
			}
		}
	}
}

// preferenceCase tests the weights of preference pairs, whose documents have the given lengths. A
// document's log-probabilities by the model and by the reference model are both rounded to fp32.
// Each rounding is half an ulp and changes the loss's argument, and so the weight, by Beta times as
// much.
func preferenceCase(r *rig, lengths []int, loss op.PreferenceLoss, likelihood float32) {
	cu, _ := bounds(lengths)
	T, pairs := int(cu[len(cu)-1]), len(lengths)/2
	targets, losses, reference := make([]int32, T), r.normal(T), make([]float64, 2*pairs)
	largest := 0.0
	for i := range lengths {
		for t := cu[i]; t < cu[i+1]; t++ {
			losses[t] = math.Abs(losses[t])
			if targets[t] = 1; t < cu[i]+(cu[i+1]-cu[i])/3 {
				targets[t], losses[t] = op.IgnoreIndex, 0
			}
			reference[i] -= losses[t]
		}
		largest = max(largest, -reference[i])
		reference[i] += 4 * r.rng.NormFloat64()
		if len(lengths) > 4 && i/2 == 1 {
			reference[i] = math.NaN() // op.SameDocuments
		}
	}
	w, l, ids := r.f32("Weights", T), r.values("Losses", device.F32, losses), r.i32("Targets", targets)
	ends, ref := r.i32("Cu", cu), r.values("Reference", device.F32, reference)
	want := w.copy()
	oracle.PreferenceWeights(want, l.v, targets, cu, ref.v, int(loss.Kind), float64(loss.Beta), float64(loss.Smoothing), float64(likelihood))
	w.least = float64(loss.Beta)
	w.expect(want, (32+4*float64(loss.Beta)*(largest+8))*uF32, 0)
	enqueue(r, op.PreferenceWeights{Weights: w.t, Losses: l.t, Targets: ids.t, Cu: ends.t, Reference: ref.t, T: T, Pairs: pairs, Loss: loss, Likelihood: likelihood})
}
