package reference

import "mt/model"

// Pair is two answers to a prompt, each with the prompt before it, and what a reference model finds the log p of their targets
// to be.
type Pair struct {
	Chosen, Rejected Sequence
	Reference        [2]float64
}

// PreferenceLoss is the mean of the losses of pairs, and likelihood times the mean of −log p over the targets of all chosen
// answers. lossOf is the loss of a pair whose answers have these sums of −log p and so many targets.
func PreferenceLoss(cfg *model.Config, w Weights, pairs []Pair, lossOf func(p Pair, sums [2]float64, targets [2]int) float64, likelihood float64) float64 {
	var loss, nats float64
	tokens := 0
	for _, p := range pairs {
		var sums [2]float64
		var counts [2]int
		for side, s := range [2]Sequence{p.Chosen, p.Rejected} {
			sums[side], counts[side] = SumOfLosses(cfg, w, s)
		}
		loss, nats, tokens = loss+lossOf(p, sums, counts), nats+sums[0], tokens+counts[0]
	}
	return loss/float64(len(pairs)) + likelihood*nats/float64(tokens)
}

// SumOfLosses is the sum of −log p over the targets of a sequence, and their number.
func SumOfLosses(cfg *model.Config, w Weights, s Sequence) (sum float64, n int) {
	logits := logits(cfg, w, s)
	for t, target := range s.Targets {
		if target < 0 {
			continue
		}
		row := logits[t*cfg.VocabSize : (t+1)*cfg.VocabSize]
		sum, n = sum+logSumExp(row)-row[target], n+1
	}
	return sum, n
}
