package oracle

import "math"

// Preference returns the loss of a pair of documents, and its derivatives by the two documents' log-probabilities.
// Element 0 of each array is the chosen document, and element 1 the rejected one. sums are the sums of −log p(target),
// reference the log-probabilities by the reference model, and targets the numbers of targets. kind is
// op.PreferenceKind.
func Preference(kind int, beta, smoothing float64, sums, reference [2]float64, targets [2]int) (loss float64, by [2]float64) {
	c, r := -sums[0]-reference[0], -sums[1]-reference[1]
	logSigmoid := func(x float64) float64 { return -LogSumExp([]float64{0, -x}) }
	switch x := beta * (c - r); kind {
	case 1:
		slope := -beta * ((1-smoothing)*math.Exp(logSigmoid(-x)) - smoothing*math.Exp(logSigmoid(x)))
		return -(1-smoothing)*logSigmoid(x) - smoothing*logSigmoid(-x), [2]float64{-slope, slope}
	case 2:
		if x >= 1 {
			return 0, by
		}
		return 1 - x, [2]float64{beta, -beta}
	default:
		nc, nr := float64(max(targets[0], 1)), float64(max(targets[1], 1))
		off := c/nc - r/nr - 1/(2*beta)
		return off * off, [2]float64{-2 * off / nc, 2 * off / nr}
	}
}

// PreferenceWeights writes the factor on every token's gradient, as op.PreferenceWeights does.
func PreferenceWeights(weights, losses []float64, targets, cu []int32, reference []float64, kind int, beta, smoothing, likelihood float64) {
	for p := range len(cu) / 2 {
		var sums [2]float64
		var counts [2]int
		for side := range sums {
			for t := cu[2*p+side]; t < cu[2*p+side+1]; t++ {
				if targets[t] != -100 {
					sums[side], counts[side] = sums[side]+losses[t], counts[side]+1
				}
			}
		}
		_, by := Preference(kind, beta, smoothing, sums, [2]float64{reference[2*p], reference[2*p+1]}, counts)
		if math.IsNaN(reference[2*p]) {
			by = [2]float64{}
		}
		for side, w := range [2]float64{by[0] + likelihood, by[1]} {
			for t := cu[2*p+side]; t < cu[2*p+side+1]; t++ {
				weights[t] = w
			}
		}
	}
}
