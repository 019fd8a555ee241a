package cpu

import "mt/device/op"

func init() { op.Add(&table, preferenceWeights) }

// preferenceWeights computes the weights pair by pair on one thread, because there is little to
// compute.
func preferenceWeights(s *stream, a *op.PreferenceWeights) error {
	reads(a.Losses, 1, 0, a.T)
	reads(a.Targets, 1, 0, a.T)
	reads(a.Cu, 1, 0, 2*a.Pairs+1)
	reads(a.Reference, 1, 0, 2*a.Pairs)
	writes(a.Weights, 1, 0, a.T)
	weights, losses, targets := f32s(a.Weights, a.T), f32s(a.Losses, a.T), i32s(a.Targets, a.T)
	cu, err := tokensOf(i32s(a.Cu, 2*a.Pairs+1), a.T)
	if err != nil {
		return err
	}
	reference := f32s(a.Reference, 2*a.Pairs)
	for pair := range a.Pairs {
		var ratio [2]float64
		var count [2]int
		for side := range ratio {
			from, to := cu[2*pair+side], cu[2*pair+side+1]
			p, n := op.LogP(losses[from:to], targets[from:to])
			ratio[side], count[side] = float64(p)-float64(reference[2*pair+side]), n
		}
		_, byC, byR := a.Loss.Of(ratio[0], ratio[1], count[0], count[1])
		if same := reference[2*pair]; same != same { // op.SameDocuments
			byC, byR = 0, 0
		}
		// byC and byR are the derivatives of the pair's loss by the log-probabilities of the chosen
		// and the rejected document. A token's loss is −log p, so its weight has the opposite sign.
		for side, w := range [2]float32{float32(-byC) + a.Likelihood, float32(-byR)} {
			for t := cu[2*pair+side]; t < cu[2*pair+side+1]; t++ {
				weights[t] = w
			}
		}
	}
	return nil
}
