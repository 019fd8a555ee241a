package layers

import (
	"mt/device"
	"mt/layers/schedule"
)

// Launch is one launch of a visit, which a Kind enqueues: for one micro-batch or, at a visit to an expert, for all.
// The caller sets what the visit uses (schedule.Visit.Uses), and whatever else the run has; a Kind reads what it
// needs.
type Launch struct {
	Stream      device.Stream
	Visit       schedule.Visit
	Block       int  // the number of the decoder block in the model
	First, Last bool // of the visit's launches; First is false where a later round continues the gradient's sum
	Step        int  // the training step, which seeds the noise

	Weights Weights // of the visit's tile
	Grads   Grads   // the tile's gradient is accumulated here; the launch with First overwrites
	In, Out Hidden  // the layer's input and output. When a part of the head computes its input's gradient, Out is that gradient
	// Grad is the gradient of the layer's output, which the launch replaces by the gradient of its
	// input. A whole head computes loss and gradient in one launch. The head finds its input in
	// Grad and replaces it.
	Grad      Hidden
	Saved     Kept // kept by the forward for the backward; an evaluation keeps nothing
	Workspace device.Mem

	MicroBatch
	At int // index in the batch of the micro-batch's first token

	// The batch: the embedding's rows (unique ids, hidden) act, losses and log-sum-exps (rows of the head) f32, the
	// number of tokens, and the factor on every token's gradient.
	Rows        device.Tensor
	Losses, LSE device.Tensor
	BatchTokens int
	Scale       float32

	// These are for a layer with experts. Experts is the state that router and experts share. The
	// expert's pairs of token and choice begin at From in the list sorted by expert; Pairs is their
	// number. Balances: the loss has the load-balancing term. AuxScale times an expert's count of
	// pairs is the gradient of that term.
	Experts     MoEState
	From, Pairs int
	Balances    bool
	AuxScale    float32

	// These are for generation: the tokens added to a sequence, the block's cache, and memory for
	// the last token's logits (V).
	Cached CacheStep
	Cache  device.Mem
	Logits device.Tensor
}

// losses and lse return the parts of Losses and LSE that belong to the head's rows, as many streams of them for each
// token of the launch's micro-batch.
func (x *Launch) losses(streams int) device.Tensor {
	return x.Losses.Slice(int64(streams*x.At), int64(streams*x.Tokens))
}

func (x *Launch) lse(streams int) device.Tensor {
	return x.LSE.Slice(int64(streams*x.At), int64(streams*x.Tokens))
}
