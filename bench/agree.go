package bench

import (
	"fmt"
	"math"
)

// StepRecord is what a side computed in a step.
type StepRecord struct {
	Loss     float64 // mean of the supervised tokens
	GradNorm float64 // of all gradients, before clipping
}

// recorder is a runner that tells what it computed in every step since its start, those of
// the warm-up and those that are not timed with the others.
type recorder interface{ Records() []StepRecord }

// Agreement is how far two sides' losses and norms were apart, as the largest relative
// difference, over the steps that both did.
type Agreement struct {
	Steps    int     `json:"steps"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
}

// bounds are the largest differences of sides that compute the same. Measured beside PyTorch, FSDP2
// and ZeRO-3 at small shapes on a CPU, and left room for sums of other lengths
// (docs/decisions/2026-11-comparisons.md has both): in fp32 2e-7 for losses and 3e-7 for norms, in
// bf16 3e-5 and 6e-4. A row that is missing changes them by 1e-3 and 2e-1, another batch by 5e-3
// and 6e-2, other rotary frequencies by 1e-5 and 2e-4.
var bounds = map[string]Agreement{
	"fp32": {Loss: 1e-5, GradNorm: 1e-4},
	"bf16": {Loss: 1e-3, GradNorm: 1e-2},
}

// compare is how far a and b are apart. The error says where they are further apart than what
// bounds has for dtype: they then train another model, other data or another way.
func compare(nameA, nameB, dtype string, a, b []StepRecord) (Agreement, error) {
	bound, most := bounds[dtype], Agreement{Steps: min(len(a), len(b))}
	if len(a) != len(b) {
		return most, fmt.Errorf("%s did %d steps and %s %d: they cannot be compared", nameA, len(a), nameB, len(b))
	}
	for i := range a {
		for _, v := range []struct {
			what         string
			x, y, bound  float64
			largestSoFar *float64
		}{
			{"loss", a[i].Loss, b[i].Loss, bound.Loss, &most.Loss},
			{"norm of the gradients", a[i].GradNorm, b[i].GradNorm, bound.GradNorm, &most.GradNorm},
		} {
			d := math.Abs(v.x-v.y) / max(math.Abs(v.x), math.SmallestNonzeroFloat64)
			if !(d <= v.bound) {
				return most, fmt.Errorf("step %d: the %s is %.6g in %s and %.6g in %s, which is no rounding of %s: "+
					"the sides do not train the same model on the same tokens in the same way", i+1, v.what, v.x, nameA, v.y, nameB, dtype)
			}
			*v.largestSoFar = max(*v.largestSoFar, d)
		}
	}
	return most, nil
}
