package synchronous

import (
	"math"

	"mt/data"
	"mt/device/op"
)

// This file has the additional work of a step that trains on pairs of a chosen and a rejected answer.

// references returns, for each document of a micro-batch, its log p under the reference model. The float32 values are
// passed as their bits in int32.
func (t *Trainer) references(m data.MicroBatch) []int32 {
	out := make([]int32, len(m.CuSeqlens)-1)
	for _, p := range m.Pairs {
		ref := t.Reference(p.ID)
		if m.Same(p) {
			ref = op.SameDocuments
		}
		out[p.Chosen], out[p.Rejected] = int32(math.Float32bits(ref[0])), int32(math.Float32bits(ref[1]))
	}
	return out
}

// pairsLoss returns the mean loss of the batch's pairs, plus the likelihood loss of chosen answers. losses has −log p
// of every token of the batch, as float32 in little-endian order.
func (t *Trainer) pairsLoss(losses []byte) float64 {
	var loss, nats float64
	first := 0
	for _, m := range t.batch.MicroBatches {
		logP := func(doc int32) (float64, int) {
			var all []float32
			for i := m.CuSeqlens[doc]; i < m.CuSeqlens[doc+1]; i++ {
				all = append(all, math.Float32frombits(word(losses, first+int(i))))
			}
			p, n := op.LogP(all, m.Targets[m.CuSeqlens[doc]:m.CuSeqlens[doc+1]])
			return float64(p), n
		}
		for _, p := range m.Pairs {
			ref := t.Reference(p.ID)
			chosen, n := logP(p.Chosen)
			rejected, k := logP(p.Rejected)
			of, _, _ := t.spec.Preference.Of(chosen-float64(ref[0]), rejected-float64(ref[1]), n, k)
			loss, nats = loss+of, nats-chosen
		}
		first += m.Tokens
	}
	return loss/float64(t.batch.Pairs) + t.Likelihood*nats/float64(max(t.batch.Chosen, 1))
}
