package synchronous

import (
	"errors"
	"fmt"

	"mt/base/accounts"
	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
	"mt/plan"
)

// Trainer is a model with everything that a step needs on the device at once: weights, gradients and inputs of all
// layers.
type Trainer struct {
	// LayerNorms says that each layer's gradient is clipped by its own norm. Layers that share a
	// table count as one.
	LayerNorms bool
	// Reference and Likelihood are only for training on preference pairs. Reference returns the log p of a pair's two
	// answers under the reference model, and Likelihood is as in actors.Preferences.
	Reference  func(id int64) [2]float32
	Likelihood float64

	dev    device.Device
	store  *host.Store
	plan   *plan.Run
	spec   layers.Spec
	stream device.Stream
	ops    *layers.Templates

	layers      []layer
	x           [][]device.Mem // input of each layer from 1 on, by layer and micro-batch
	saved       [][]device.Mem // by layer and micro-batch; nil: the layer keeps only its input
	dx          []device.Mem   // by micro-batch
	workspace   device.Mem
	narrow      device.Mem // a gradient in bf16, before its copy to the host
	ints        device.Mem // the ids and places of a batch
	rowMem      device.Mem // the embedding rows that a batch uses
	losses, lse device.Mem // (tokens) f32; lse: log-sum-exps of a head in parts
	expertMem   device.Mem // the MoE state of the current layer with experts
	matrix      device.Mem // the matrix being orthogonalized, and the workspace for that
	matrixWork  device.Mem
	mems        []device.Mem // all of these, for Close
	err         error        // the first error of alloc

	// The current batch.
	batch   *data.Batch
	micro   []micro
	rows    device.Tensor // (unique ids, hidden) act
	scale   float32       // factor on every token's gradient: 1/(supervised tokens)
	experts layers.MoEState
	pairs   []pairs // of the current layer, by expert
	// probabilities has, for each expert, the sum of its router probabilities over all tokens and
	// the layers so far.
	probabilities []float64
	balances      bool    // the loss balances the experts' load
	aux           float64 // the load-balancing loss is aux·Σ counts·probabilities over the experts
	auxScale      float32 // aux as the gradient needs it; 0 without the load-balancing loss
}

// Result is the report of a step.
type Result struct {
	Loss, GradNorm float64 // the norm before clipping
	Skipped        bool    // one of them is not finite: nothing has changed
}

// layer is a layer: its weights and gradients on the device, and its gradient on the host.
type layer struct {
	model.Layout
	stages schedule.Layer
	turn   int // number of the layer's first sweep over the micro-batches; its later sweeps have the next numbers

	// The following slices have one item for each part of the layer; a layer without parts has one.
	tiles          []layers.Tile
	slots, buffers []device.Mem // weights and, fp32, their gradients
	weights        []layers.Weights
	grads          []layers.Grads

	slab        optim.Grad // memory for the gradient on the host
	grad, table optim.Grad // the gradient in slab; for a head, the range of it for lm_head
}

// micro is a micro-batch on the device.
type micro struct {
	layers.MicroBatch
	at    int             // index in the batch of its first token
	first bool            // it is the first of a sweep
	x     []device.Tensor // x[l] (tokens, hidden) act is the input of layer l, from 1 on
	dx    device.Tensor   // (tokens, hidden) act: the gradient in the backward
	saved []device.Mem    // by layer: what its forward must keep for its backward
}

// New allocates the memory for batches within p's limits. The caller owns dev and store. An error is the device's;
// after an error nothing stays allocated.
func New(dev device.Device, store *host.Store, p *plan.Run) (*Trainer, error) {
	t := &Trainer{dev: dev, store: store, plan: p, spec: p.Spec}
	t.spec.Keep, t.spec.OnHost = nil, false
	if t.stream, t.err = dev.NewStream("synchronous"); t.err != nil {
		return nil, fmt.Errorf("prepare a synchronous step: %w", t.err)
	}
	cos, sin := t.spec.Config.RopeTables(t.spec.Positions)
	n := int64(len(cos))
	t.spec.Cos, t.spec.Sin = t.alloc(4*n).Tensor(device.F32, 0, n), t.alloc(4*n).Tensor(device.F32, 0, n)
	t.ops = layers.New(t.spec, dev)
	t.workspace, t.narrow = t.alloc(t.spec.WorkspaceBytes()), t.alloc(2*p.SlabElems())
	t.ints, t.rowMem = t.alloc(p.BatchIntBytes()), t.alloc(p.RowBytes(p.Limits.UniqueIDs))
	t.losses, t.lse = t.alloc(p.LossBytes()), t.alloc(p.LossBytes())
	t.expertMem = t.alloc(p.ExpertStateBytes())
	if n := p.MatrixBytes(); n > 0 {
		t.matrix, t.matrixWork = t.alloc(n), t.alloc(p.MatrixWorkspaceBytes())
	}
	t.dx = t.states()
	t.makeLayers()
	if t.err == nil {
		t.stream.CopyH2D(t.spec.Cos.Mem(), bytesOf(cos))
		t.stream.CopyH2D(t.spec.Sin.Mem(), bytesOf(sin))
		t.err = t.stream.Sync()
	}
	if t.err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a synchronous step: %w", t.err), t.Close())
	}
	return t, nil
}

// Close frees all memory. The error is the stream's.
func (t *Trainer) Close() error {
	err := t.stream.Close()
	for _, m := range t.mems {
		t.dev.Free(m)
	}
	t.mems = nil
	return err
}

// alloc allocates device memory. t.err keeps the first error; after it alloc returns memory with a size and no
// address.
func (t *Trainer) alloc(bytes int64) device.Mem {
	bytes = max(bytes, device.Align)
	if t.err != nil {
		return device.Mem{Bytes: bytes}
	}
	m, err := t.dev.Alloc(accounts.Activations, bytes)
	if err != nil {
		t.err = err
		return device.Mem{Bytes: bytes}
	}
	t.mems = append(t.mems, m)
	return m
}

// states allocates device memory for one hidden state of each micro-batch.
func (t *Trainer) states() []device.Mem {
	out := make([]device.Mem, t.plan.Limits.MicroBatches)
	for i := range out {
		out[i] = t.alloc(t.plan.ActivationBytes(t.plan.Limits.MicroBatchTokens))
	}
	return out
}

// makeLayers fills t.layers. It allocates each layer's weights, gradient and input on the device, and the memory for
// its gradient on the host.
func (t *Trainer) makeLayers() {
	turn := 0
	for l, layout := range t.plan.Layouts {
		n := t.plan.GradElems(l)
		at := layer{Layout: layout, turn: turn, stages: layers.KindOf(layout.Kind).Stages(t.spec, layout),
			slab: optim.Grad{Data: make([]byte, n*t.plan.GradBytes()), BF16: t.plan.GradBF16, Elems: n}}
		turn += at.stages.Sweeps
		t.layers = append(t.layers, at)
		t.saved = append(t.saved, nil)
		if bytes := layers.KindOf(layout.Kind).SavedBytes(t.spec, layout.Block, layers.KeepNothing, t.plan.Limits.MicroBatchTokens); bytes > 0 {
			for range t.plan.Limits.MicroBatches {
				t.saved[l] = append(t.saved[l], t.alloc(bytes))
			}
		}
		if l == 0 { // its input is token ids
			t.x = append(t.x, nil)
			continue
		}
		t.x = append(t.x, t.states())
	}
	for _, tile := range layers.Tiles(t.plan.Layouts, t.plan.Spec) {
		at := &t.layers[tile.Layer]
		at.tiles = append(at.tiles, tile)
		if tile.Layer == 0 { // the device gets only rows of the embedding
			at.buffers = append(at.buffers, t.alloc(4*t.plan.GradElems(0)))
			at.weights, at.grads = make([]layers.Weights, 1), make([]layers.Grads, 1)
			continue
		}
		slot, buffer := t.alloc(tile.Layout.SlotBytes), t.alloc(4*tile.Layout.GradElems)
		at.slots, at.buffers = append(at.slots, slot), append(at.buffers, buffer)
		at.weights = append(at.weights, layers.BindWeights(tile.Layout, slot))
		at.grads = append(at.grads, layers.BindGrads(tile.Layout, buffer))
	}
}
