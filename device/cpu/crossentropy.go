package cpu

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, crossEntropy) }

// crossEntropy does all steps of a row (maximum, sum of exponentials, gradient) while the row is in
// the cache.
func crossEntropy(s *stream, a *op.CrossEntropy) error {
	if raceEnabled {
		reads(a.Targets, 1, 0, a.T)
		writes(a.Losses, 1, 0, a.T)
		reads(a.Weights, 1, 0, a.T)
		if a.ForwardOnly {
			reads(a.Logits, 1, 0, a.T*a.V)
		} else {
			writes(a.Logits, 1, 0, a.T*a.V)
		}
	}
	targets := i32s(a.Targets, a.T)
	for t, v := range targets {
		if v != op.IgnoreIndex && (v < 0 || int(v) >= a.V) {
			return fmt.Errorf("target of row %d is %d: want less than %d, or %d", t, v, a.V, op.IgnoreIndex)
		}
	}
	losses, logits := f32s(a.Losses, a.T), actOf(a.Logits)
	s.forRows(a.T, a.V, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			losses[t] = lossRow(a, logits, sc, t, int(targets[t]))
		}
	})
	return nil
}

// lossRow returns the loss of row t. Unless the operation is ForwardOnly, it overwrites the row's
// logits with their gradient.
func lossRow(a *op.CrossEntropy, logits act, sc *scratch, t, target int) float32 {
	if target == op.IgnoreIndex {
		if !a.ForwardOnly {
			if logits.bf16 {
				clear(logits.u16(t*a.V, a.V))
			} else {
				clear(logits.f32(t*a.V, a.V))
			}
		}
		return 0
	}
	row := logits.load(sc, 0, t*a.V, a.V)
	seen := capped(sc, row, a.Softcap)
	terms := termsOf(a.Terms, a.V)
	top, taken := vec.Max(seen), terms.takes(seen, target)
	if a.ForwardOnly {
		return terms.loss(logSum(vec.SumExp(seen, 1, top), top), taken)
	}
	sum := vec.ExpSum(row, seen, 1, top)
	lse, scale := logSum(sum, top), a.Scale*weightOf(a.Weights, t)
	terms.gradient(row, scale/sum, scale, lse, target)
	if a.Softcap > 0 {
		vec.SoftcapGrad(row, seen, a.Softcap)
	}
	logits.store(t*a.V, row)
	return terms.loss(lse, taken)
}

// weightOf returns the factor on the gradient of row t: element t of weights, or 1 if there are no
// weights.
func weightOf(weights device.Tensor, t int) float32 {
	if weights.None() {
		return 1
	}
	return f32s(weights, t+1)[t]
}

// lossTerms holds op.LossTerms as coefficients. The loss of a row is lse − target·x(target) −
// column·Σx + z·lse², where x are the logits and lse is their log-sum-exp.
type lossTerms struct{ target, column, z float64 }

func termsOf(t op.LossTerms, vocab int) lossTerms {
	l := lossTerms{target: 1 - float64(t.Smoothing), z: float64(t.Z)}
	if t.Smoothing > 0 {
		l.column = float64(t.Smoothing) / float64(vocab)
	}
	return l
}

// takes returns the amount that the loss subtracts from the log-sum-exp: target·logits[target] plus column times the
// sum of all logits. With a vocabulary in shards, logits are one shard's columns. A target outside them adds only the
// second term.
func (l lossTerms) takes(logits []float32, target int) (sum float64) {
	if target >= 0 && target < len(logits) {
		sum = l.target * float64(logits[target])
	}
	if l.column > 0 {
		all := 0.0
		for _, x := range logits {
			all += float64(x)
		}
		sum += l.column * all
	}
	return sum
}

// loss returns the loss of a row with log-sum-exp lse. taken is the result of takes, summed over
// the shards of the vocabulary.
func (l lossTerms) loss(lse, taken float64) float32 { return float32(lse - taken + l.z*lse*lse) }

// gradient overwrites row, which holds exponentials of the logits, with the gradient of the logits. An exponential
// times k is its probability times scale, the factor on the whole gradient. target may be outside these columns.
func (l lossTerms) gradient(row []float32, k, scale float32, lse float64, target int) {
	vec.Scale(row, row, k*float32(1+2*l.z*lse))
	if l.column > 0 {
		c := float32(l.column) * scale
		for i := range row {
			row[i] -= c
		}
	}
	if target >= 0 && target < len(row) {
		row[target] -= float32(l.target) * scale
	}
}

// capped returns the logits after the softcap with this limit. If limit is 0 there is no softcap, and it returns logits
// itself. Otherwise the result is a copy in buffer 1 of sc.
func capped(sc *scratch, logits []float32, limit float32) []float32 {
	if limit == 0 {
		return logits
	}
	y := sc.f32(1, len(logits))
	vec.Softcap(y, logits, 1, limit)
	return y
}

// logSum returns log(sum · e^top): a log-sum-exp, given the largest logit and the sum of exponentials relative to it.
func logSum(sum, top float32) float64 { return math.Log(float64(sum)) + float64(top) }
