package layers

import (
	"mt/device"
	"mt/layers/schedule"
)

// Launch is one launch of a visit, which a Kind enqueues: of one micro-batch or, at a visit to an expert, of all. Who launches
// sets what the visit uses (schedule.Visit.Uses), and whatever else there is in the run; a kind reads what it needs.
type Launch struct {
	Stream      device.Stream
	Visit       schedule.Visit
	Block       int  // of a decoder block, its number in the model
	First, Last bool // launch of the visit
	Step        int  // of training, by which noise is drawn

	Weights Weights // of the visit's tile
	Grads   Grads   // to which the gradient of the tile is added; the first launch of the visit overwrites them
	In, Out Hidden  // the layer's input and output. Where a part of the head makes the gradient of its input, Out is that
	// Grad is the gradient of the layer's output, and becomes that of its input. A whole head finds its input there, if it has
	// no In.
	Grad      Hidden
	Saved     device.Mem // what the forward keeps for the backward; an evaluation keeps nothing
	Workspace device.Mem

	MicroBatch
	At int // its first token in the batch

	// Of the batch: the embedding's rows (unique ids, hidden) act, the losses and log-sum-exps (tokens) f32, the number of
	// tokens, and the factor of every token's gradient.
	Rows        device.Tensor
	Losses, LSE device.Tensor
	BatchTokens int
	Scale       float32

	// Of a layer with experts: the state, the first pair of the expert's in the list by expert and how many it has, whether the
	// loss balances the load, and by what an expert's count is multiplied for the gradient of that part of the loss.
	Experts     MoEState
	From, Pairs int
	Balances    bool
	AuxScale    float32

	// Of a sequence that is generated: the tokens that it grows by, the block's cache, and room for the logits (V) of the last
	// token.
	Cached CacheStep
	Cache  device.Mem
	Logits device.Tensor
}

// losses and lse are those of the micro-batch.
func (x *Launch) losses() device.Tensor { return x.Losses.Slice(int64(x.At), int64(x.Tokens)) }
func (x *Launch) lse() device.Tensor    { return x.LSE.Slice(int64(x.At), int64(x.Tokens)) }
