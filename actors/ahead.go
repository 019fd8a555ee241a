package actors

import (
	"math"
	"slices"

	"mt/data"
	"mt/device"
	"mt/layers"
)

// This file has the inputs and losses of a batch for multi-token prediction (model.Config.Ahead).

// fillAhead adds the inputs for multi-token prediction to `to`, the micro-batch m of b as launches see it. The loss of
// the tokens after the next is divided by their own number, as in multi_token_prediction.py of Megatron-Core, and
// weighed by AheadWeight.
func (r *lane) fillAhead(b *data.Batch, m *data.MicroBatch, to *layers.MicroBatch, place func([]int32) device.Tensor) {
	if r.plan.Spec.Config.Ahead == 0 {
		return
	}
	next, previous := layers.AheadRows(m.CuSeqlens)
	to.Next, to.Previous = place(next), place(previous)
	to.HeadTargets = place(append(m.AheadTargets(), m.Targets...))
	to.HeadWeights = place(slices.Concat(slices.Repeat([]int32{int32(math.Float32bits(aheadFactor(b, r.plan.Spec.AheadWeight)))}, m.Tokens),
		slices.Repeat([]int32{int32(math.Float32bits(1))}, m.Tokens)))
	to.HeadWeights.DType = device.F32
}

// aheadFactor returns the factor on the gradient of a token after the next, beside lossScale.
func aheadFactor(b *data.Batch, weight float64) float32 {
	return float32(weight * float64(max(b.AllSupervised(), 1)) / float64(max(b.AllSupervisedAhead(), 1)))
}

// sumLosses returns two sums over the losses that have landed on the host: of the next tokens, and of the tokens after
// the next.
func (r *lane) sumLosses(b *data.Batch, landed []byte) (sum, ahead float64) {
	if r.plan.Spec.Config.Ahead == 0 {
		return sumF32(landed), 0
	}
	for _, m := range b.MicroBatches {
		n := 4 * m.Tokens
		ahead, sum, landed = ahead+sumF32(landed[:n]), sum+sumF32(landed[n:2*n]), landed[2*n:]
	}
	return sum, ahead
}
