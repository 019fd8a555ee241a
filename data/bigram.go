package data

import (
	"fmt"
	"math"
)

// bigramVocab is the largest vocabulary that BigramLoss takes: its table has one number
// for each pair of tokens.
const bigramVocab = 4096

// BigramLoss counts pairs of tokens in train's supervised tokens, with add-one
// smoothing, p(b|a) = (n(ab)+1) / (n(a)+V), and returns the mean loss of that model over
// eval's, in nats a token: what a model reaches that sees only the token before.
func BigramLoss(train, eval View) (float64, error) {
	if train.Rows() == 0 || eval.Rows() == 0 {
		return 0, fmt.Errorf("bigram loss: %d rows to fit and %d to score; both must be there", train.Rows(), eval.Rows())
	}
	vocab := max(train.d.VocabSize(), eval.d.VocabSize())
	if vocab > bigramVocab {
		return 0, fmt.Errorf("bigram loss: a vocabulary of %d is more than %d", vocab, bigramVocab)
	}
	pairs, firsts := make([]int64, vocab*vocab), make([]int64, vocab)
	err := train.eachPair(func(a, b int32) {
		pairs[int(a)*vocab+int(b)]++
		firsts[a]++
	})
	if err != nil {
		return 0, err
	}
	var sum float64
	var n int64
	err = eval.eachPair(func(a, b int32) {
		sum -= math.Log(float64(pairs[int(a)*vocab+int(b)]+1) / float64(firsts[a]+int64(vocab)))
		n++
	})
	return sum / float64(n), err
}

// eachPair calls f with each supervised token b and the token a before it, in
// order. The error is that of Dataset.Read.
func (v View) eachPair(f func(a, b int32)) error {
	return v.d.Read(func() { v.pairs(f) })
}

func (v View) pairs(f func(a, b int32)) {
	var r Row
	for i := range v.rows {
		v.fill(i, &r)
		first, labels := 0, r.labels()
		for n := range r.docs() {
			for t := first + 1; t < first+n; t++ {
				if labels[t] != IgnoreIndex {
					f(r.IDs[t-1], labels[t])
				}
			}
			first += n
		}
	}
}
