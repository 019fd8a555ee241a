package synchronous

import (
	"math"
	"slices"

	"mt/data"
	"mt/host/optim"
	"mt/layers"
	"mt/model"
)

// Step trains the model by one batch. The caller sets LR and Step of rate; with maxNorm 0
// nothing is clipped, and with LayerNorms each layer by itself. Where the loss or the norm is not finite no weight changes. An error
// is one of the device.
func (t *Trainer) Step(b *data.Batch, o optim.Optimizer, rate optim.Rate, maxNorm float64) (Result, error) {
	t.load(b) // the batch and all weights are on the device
	for l, at := range t.layers {
		t.forward(l, at)
	}
	for l, at := range slices.Backward(t.layers) {
		t.backward(l, at)
	}
	loss, err := t.land() // losses and gradients are on the host
	if err != nil {
		return Result{}, err
	}
	embedding, head := t.layers[0], t.layers[len(t.layers)-1]
	if head.Tied { // one table, two gradients: the head's becomes that of both
		optim.AddRows(nil, head.table, b.UniqueIDs, embedding.grad, embedding.Tensors[0].Cols)
		t.layers[0].grad = optim.Grad{}
	}
	var squares float64
	for _, at := range t.layers {
		squares += at.sumSquares()
	}
	r := Result{Loss: loss, GradNorm: math.Sqrt(squares)}
	if r.Skipped = math.IsNaN(loss+r.GradNorm) || math.IsInf(loss+r.GradNorm, 0); r.Skipped {
		return r, nil
	}
	rate.Clip = 1
	if maxNorm > 0 && !t.LayerNorms {
		rate.Clip = float32(min(1, maxNorm/(r.GradNorm+1e-6)))
	}
	for l, at := range t.layers {
		if maxNorm > 0 && t.LayerNorms {
			of := at
			if l == 0 && head.Tied {
				of = head
			}
			rate.Clip = float32(min(1, maxNorm/(math.Sqrt(of.sumSquares())+1e-6)))
		}
		switch {
		case l > 0:
			t.store.Layers[l].Update(at.grad, o, rate)
			if err := t.updateMatrices(l, at.grad, o, rate); err != nil {
				return r, err
			}
		case head.Tied:
			t.store.Layers[0].UpdateTensor(0, head.table, o, rate)
		default: // rows that the batch does not use have gradient 0
			t.store.Layers[0].UpdateRows(b.UniqueIDs, at.grad, o, rate)
		}
	}
	return r, nil
}

// sweep calls f for the micro-batches one after the other, in a zigzag in every second turn
// from the last to the first. Sums over micro-batches are made in this order.
func (t *Trainer) sweep(turn int, f func(m micro)) {
	order := slices.Clone(t.micro)
	if t.plan.TurnsAround() && turn%2 == 1 {
		slices.Reverse(order)
	}
	for i, m := range order {
		m.first = i == 0
		f(m)
	}
}

// forward computes from x[l], the input of layer l, that of the next layer, x[l+1]. Nothing
// else is kept for the backward.
func (t *Trainer) forward(l int, at layer) {
	ops, s, w, ws, on := t.ops, t.stream, at.weights, t.workspace, layers.OnDevice
	switch at.Kind {
	case model.Embedding:
		t.sweep(at.turn, func(m micro) { ops.EmbedForward(s, on(m.x[l+1]), t.rows, m.MicroBatch, t.batch.Step, ws) })
	case model.Positions:
		t.sweep(at.turn, func(m micro) { ops.PositionsForward(s, w[0], on(m.x[l+1]), on(m.x[l]), m.MicroBatch, ws) })
	case model.Block, model.Attention, model.Recurrent, model.Mixer:
		t.sweep(at.turn, func(m micro) { at.forward(s, at.Block, w[0], on(m.x[l+1]), on(m.x[l]), m.MicroBatch, nothing, ws) })
	case model.MoE: // the router, its experts for all micro-batches at once, their sum
		s.Zero(t.experts.ProbSum.Mem())
		t.sweep(at.turn, func(m micro) { ops.MoERoute(s, w[0], m.x[l], m.at, m.MicroBatch, t.experts, ws, !t.balances) })
		for k, p := range t.pairsByExpert(t.balances) {
			ops.ExpertForward(s, w[1+k], t.experts, p.from, p.n, ws)
		}
		t.sweep(at.turn+1, func(m micro) { ops.MoECombine(s, m.x[l+1], m.at, m.MicroBatch, t.experts) })
	case model.Head: // part by part; a whole head computes its losses in the backward
		for k := 0; k < len(w) && len(w) > 1; k++ {
			t.sweep(at.turn+k, func(m micro) {
				ops.HeadShardForward(s, w[k], on(m.x[l]), m.losses, m.lse, m.MicroBatch, ws, t.spec.Shard(k), t.spec.Terms, k == 0, k == len(w)-1)
			})
		}
	}
}

// backward turns dx, which is the gradient of x[l+1], into that of x[l], and sums
// up the gradients of the layer's weights.
func (t *Trainer) backward(l int, at layer) {
	ops, s, w, g, ws, on := t.ops, t.stream, at.weights, at.grads, t.workspace, layers.OnDevice
	switch {
	case at.Kind == model.Head && len(w) == 1:
		t.sweep(at.turn, func(m micro) {
			ops.HeadForwardBackward(s, w[0], g[0], on(m.dx), on(m.x[l]), m.losses, m.MicroBatch, ws, t.scale, m.first)
		})
	case at.Kind == model.Head:
		for k := len(w) - 1; k >= 0; k-- {
			t.sweep(at.turn+k, func(m micro) {
				ops.HeadShardBackward(s, w[k], g[k], on(m.dx), on(m.x[l]), m.losses, m.lse, m.MicroBatch, ws, t.scale, t.spec.Shard(k), m.first, k == len(w)-1, k == 0)
			})
		}
	case at.Kind == model.MoE: // the same routing again, then the experts from the last to the first
		t.sweep(at.turn+1, func(m micro) { ops.MoERouteAgain(s, w[0], m.dx, m.x[l], m.at, m.MicroBatch, t.experts, ws) })
		for k, p := range slices.Backward(t.pairsByExpert(false)) {
			ops.ExpertBackward(s, w[1+k], g[1+k], t.experts, p.from, p.n, ws)
		}
		t.sweep(at.turn, func(m micro) {
			ops.MoERouteBackward(s, w[0], g[0], m.dx, m.x[l], m.at, m.MicroBatch, t.experts, ws, m.first, t.auxScale)
		})
	case at.Kind == model.Positions:
		t.sweep(at.turn, func(m micro) { ops.PositionsBackward(s, g[0], on(m.dx), m.MicroBatch, ws, m.first) })
	case at.Kind == model.Embedding:
		t.sweep(at.turn, func(m micro) { ops.EmbedBackward(s, at.rowGrads, on(m.dx), m.MicroBatch, ws, m.first) })
	default:
		t.sweep(at.turn, func(m micro) {
			at.backward(s, at.Block, w[0], g[0], on(m.dx), on(m.x[l]), m.MicroBatch, nothing, ws, m.first)
		})
	}
}
