package synchronous

import (
	"math"
	"slices"

	"mt/data"
	"mt/device"
	"mt/host/optim"
	"mt/layers"
	"mt/layers/schedule"
)

// Step trains the model by one batch. The caller sets LR and Step of rate. maxNorm bounds the gradient norm, or with
// LayerNorms the norm of each layer's gradient; 0: no clipping. If the loss or the norm is not finite, no weight
// changes. An error is the device's.
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
	if head.Tied { // the embedding's and the head's gradients of the same table are added up in the head's
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

// sweep calls f for all micro-batches, one after the other. With the order schedule.Zigzag, a sweep with an odd number
// turn begins with the last micro-batch. Sums over micro-batches follow this order, so their bits depend on it.
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

// forward computes the output of layer l, x[l+1], from its input x[l]. Only inputs of layers are kept for the backward.
// A head that is not in parts computes its losses in the backward.
func (t *Trainer) forward(l int, at layer) {
	for _, v := range at.stages.Forward {
		v.Phase = schedule.Forward
		t.visit(l, at, v)
	}
}

// backward turns dx, the gradient of layer l's output, into the gradient of its input, and accumulates the gradients of
// the layer's weights.
func (t *Trainer) backward(l int, at layer) {
	for _, v := range at.stages.Backward {
		v.Phase = schedule.Backward
		t.visit(l, at, v)
	}
}

// visit launches the work of a visit: for each micro-batch or, at an expert, for all at once.
func (t *Trainer) visit(l int, at layer, v schedule.Visit) {
	x := layers.Launch{Stream: t.stream, Visit: v, Block: at.Block, First: true, Step: t.batch.Step, Weights: at.weights[v.Part], Grads: at.grads[v.Part], Workspace: t.workspace,
		Rows: t.rows, Losses: t.lossTensor(t.losses), LSE: t.lossTensor(t.lse), BatchTokens: int(t.batch.Tokens), Scale: t.scale,
		Experts: t.experts, Balances: t.balances, AuxScale: t.auxScale}
	if v.Stage == schedule.Expert {
		x.From, x.Pairs = t.pairs[v.Part-1].from, t.pairs[v.Part-1].n
		layers.KindOf(at.Kind).Launch(t.ops, &x)
		return
	}
	left := len(t.micro)
	t.sweep(at.turn+v.Turn, func(m micro) {
		left--
		x.MicroBatch, x.At, x.First, x.Last = m.MicroBatch, m.at, m.first, left == 0
		x.Saved = m.saved[l]
		x.In, x.Out, x.Grad = layers.OnDevice(m.x[l]), layers.OnDevice(m.dx), layers.OnDevice(m.dx)
		if v.Phase == schedule.Forward && l+1 < len(m.x) {
			x.Out = layers.OnDevice(m.x[l+1])
		}
		layers.KindOf(at.Kind).Launch(t.ops, &x)
	})
	if v.Stage == schedule.Route {
		t.pairs = t.pairsByExpert(v.Phase == schedule.Forward && t.balances)
	}
}

// lossTensor returns m as a tensor with one fp32 number for each token of the batch.
func (t *Trainer) lossTensor(m device.Mem) device.Tensor {
	return m.Tensor(device.F32, 0, int64(t.spec.Config.Streams())*t.batch.Tokens)
}
