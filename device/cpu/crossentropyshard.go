package cpu

import (
	"fmt"
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, crossEntropyShard) }

// crossEntropyShard works on one shard of the vocabulary's columns. It is called twice for each shard. The first call
// merges the shard's log-sum-exp into LSE, and the second writes the gradient of the logits.
func crossEntropyShard(s *stream, a *op.CrossEntropyShard) error {
	if raceEnabled {
		announceShard(a)
	}
	targets := i32s(a.Targets, a.T)
	for t, v := range targets {
		if v != op.IgnoreIndex && v < 0 {
			return fmt.Errorf("target of row %d is %d: want a column of the vocabulary, or %d", t, v, op.IgnoreIndex)
		}
	}
	lse, losses, logits := f32s(a.LSE, a.T), f32s(a.Losses, a.T), actOf(a.Logits)
	s.forRows(a.T, a.V, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			if a.Gradient {
				shardGradient(a, logits, sc, t, int(targets[t]), lse[t])
			} else {
				shardLoss(a, logits, sc, t, int(targets[t]), &lse[t], &losses[t])
			}
		}
	})
	return nil
}

func announceShard(a *op.CrossEntropyShard) {
	reads(a.Targets, 1, 0, a.T)
	if a.Gradient {
		reads(a.LSE, 1, 0, a.T)
		reads(a.Weights, 1, 0, a.T)
		writes(a.Logits, 1, 0, a.T*a.V)
		return
	}
	writes(a.LSE, 1, 0, a.T)
	writes(a.Losses, 1, 0, a.T)
	reads(a.Logits, 1, 0, a.T*a.V)
}

// shardLoss merges row t of the shard into the row's log-sum-exp lse, and adds the shard's terms to the row's loss.
func shardLoss(a *op.CrossEntropyShard, logits act, sc *scratch, t, target int, lse, loss *float32) {
	row := capped(sc, logits.load(sc, 0, t*a.V, a.V), a.Softcap)
	top := vec.Max(row)
	sum, terms := logSum(vec.SumExp(row, 1, top), top), termsOf(a.Terms, a.Vocab)
	taken := terms.takes(row, target-a.From)
	if !a.First {
		sum, taken = logAdd(float64(*lse), sum), taken+float64(*loss)
	}
	*lse, *loss = float32(sum), float32(taken)
	switch {
	case a.Last && target == op.IgnoreIndex:
		*loss = 0
	case a.Last:
		*loss = terms.loss(sum, float64(*loss))
	}
}

// logAdd returns log(exp(a) + exp(b)), the log-sum-exp of two parts, without overflow.
func logAdd(a, b float64) float64 {
	return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b)))
}

// shardGradient overwrites the logits of row t of the shard with their gradient. lse is the row's log-sum-exp over the
// whole vocabulary.
func shardGradient(a *op.CrossEntropyShard, logits act, sc *scratch, t, target int, lse float32) {
	if target == op.IgnoreIndex {
		if logits.bf16 {
			clear(logits.u16(t*a.V, a.V))
		} else {
			clear(logits.f32(t*a.V, a.V))
		}
		return
	}
	row := logits.load(sc, 0, t*a.V, a.V)
	seen := capped(sc, row, a.Softcap)
	vec.ExpSum(row, seen, 1, lse)
	scale := a.Scale * weightOf(a.Weights, t)
	termsOf(a.Terms, a.Vocab).gradient(row, scale, scale, float64(lse), target-a.From)
	if a.Softcap > 0 {
		vec.SoftcapGrad(row, seen, a.Softcap)
	}
	logits.store(t*a.V, row)
}
