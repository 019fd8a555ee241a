package cpu

import (
	"fmt"
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, crossEntropy) }

// crossEntropy takes the steps of one row while the row is in the cache: maximum,
// sum of exponentials, gradient.
func crossEntropy(s *stream, a *op.CrossEntropy) error {
	if raceEnabled {
		reads(a.Targets, 1, 0, a.T)
		writes(a.Losses, 1, 0, a.T)
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

// lossRow returns the loss of row t and turns its logits into their gradient.
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
	top, chosen := vec.Max(seen), seen[target]
	if a.ForwardOnly {
		return loss(vec.SumExp(seen, 1, top), top, chosen)
	}
	sum := vec.ExpSum(row, seen, 1, top)
	vec.Scale(row, row, a.Scale/sum)
	row[target] -= a.Scale
	if a.Softcap > 0 {
		vec.SoftcapGrad(row, seen, a.Softcap)
	}
	logits.store(t*a.V, row)
	return loss(sum, top, chosen)
}

// capped is the logits that the softmax sees: without a limit they are logits
// itself, else a copy in buffer 1 of sc.
func capped(sc *scratch, logits []float32, limit float32) []float32 {
	if limit == 0 {
		return logits
	}
	y := sc.f32(1, len(logits))
	vec.Softcap(y, logits, 1, limit)
	return y
}

// loss is −log(exp(chosen − top) / sum).
func loss(sum, top, chosen float32) float32 {
	return float32(math.Log(float64(sum)) + float64(top) - float64(chosen))
}
