package bench

import (
	"fmt"
	"math"
)

// StepRecord holds the results of one training step.
type StepRecord struct {
	Loss     float64 // mean over the supervised tokens
	GradNorm float64 // global gradient norm before clipping
}

// recorder is a side of a comparison (TrainRunner) that returns the results of all its steps, with
// warm-up and untimed steps included.
type recorder interface{ Records() []StepRecord }

// Agreement has the largest relative differences between the losses and the gradient norms of two sides. Steps is the
// number of compared steps.
type Agreement struct {
	Steps    int     `json:"steps"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
}

// bounds has, by dtype, the largest differences that count as equal training. They leave room above the differences
// between mt and PyTorch, FSDP2 or ZeRO-3, measured with small shapes on a CPU. Those are 2e-7 (loss) and 3e-7 (norm)
// in fp32, 3e-5 and 6e-4 in bf16. Faults cause larger differences: a missing row gives 1e-3 (loss) and 2e-1 (norm),
// another batch 5e-3 and 6e-2, other rotary frequencies 1e-5 and 2e-4. See docs/decisions/2026-11-comparisons.md.
var bounds = map[string]Agreement{
	"fp32": {Loss: 1e-5, GradNorm: 1e-4},
	"bf16": {Loss: 1e-3, GradNorm: 1e-2},
}

// compare returns the differences between the steps of a and b. Different numbers of steps, or a difference beyond
// bounds[dtype], are an error: the sides then train with another model, other data or another algorithm.
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
