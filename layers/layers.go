package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/layers/schedule"
	"mt/model"
)

// Spec has the settings that a run fixes for all its layers.
type Spec struct {
	Config *model.Config
	Act    device.DType // compute dtype of activations and matrices
	Keep   Keeps        // does not change any result
	// KeptOnHost tells for each decoder block whether what its forward keeps travels to the host and back; nil: none
	// does. Such a block keeps nothing of micro-batches that are not in KeptOf.
	KeptOnHost []bool
	KeptOf     schedule.Share
	// MaxTokens and MaxSeqs are the largest numbers of tokens and of sequences of a micro-batch.
	MaxTokens int
	// ChunkTokens is how many tokens everything but attention processes at once; 0: the whole micro-batch. HeadChunk is
	// the same for the head, whose logits are (HeadChunk, V). Chunks begin at multiples of these numbers, counted from
	// the micro-batch's first token. The order in which gradients are summed depends on both, and so do their bits, so
	// a resumed run keeps them.
	ChunkTokens, HeadChunk int
	// HeadShards is the number of parts of the head, each a range of the vocabulary; 0 and 1: a whole head. Training
	// visits all parts once for the losses and once more for the gradients. The order of sums, and thus the bits of
	// results, depends on HeadShards.
	HeadShards int
	// HeadLanes has the lane of each part of the head, if parts are on several lanes; nil: all are on one. A lane's parts
	// follow each other. No result depends on it.
	HeadLanes []int
	// Terms are added to −log p in the training loss, but not in an evaluation.
	Terms op.LossTerms
	// AheadWeight is the weight of multi-token prediction's loss in the training loss.
	AheadWeight float64
	// Noise is added to the embedding's output in training, but not in evaluation and generation.
	Noise op.Noise
	// Preference is the loss on pairs of documents; none: training is not on pairs.
	Preference op.PreferenceLoss
	// NoBackward is the number of leading blocks without a backward, because they and all layers before them are
	// frozen.
	NoBackward int
	// OnHost keeps hidden states on the host. A launch has chunks of them on the device, and attention processes one
	// group of key/value heads at a time (groups.go). No result depends on it. It excludes Keep.
	OnHost bool
	// Fused: attention's backward gets memory in which some kernels sum gradients
	// (op.AttentionBackward.Sums). The order of these sums, and with it the last bits of the
	// gradients, depends on Fused.
	Fused bool
	// Scratch is the host memory, ScratchBytes long, that launches use with OnHost. All launches of a stream share it.
	Scratch []byte
	// Positions is the length of the longest document that the RoPE tables cover.
	Positions int
	// Document is the most tokens of a document; 0: Positions. An indexer has memory if documents may be longer than its
	// choice.
	Document int
	// Cos and Sin f32 are the RoPE tables on the device: Config.RopeTables(Positions).
	Cos, Sin device.Tensor
}

// RopePositions writes to dst (T) each token's row in the RoPE tables. positions (T) are the tokens' positions in
// their documents, and cu the documents' bounds. The row is the position, shifted if the document's length needs other
// frequencies. dst may be positions itself.
func (s Spec) RopePositions(dst, positions, cu []int32) {
	copy(dst, positions)
	for i, first := range cu[:len(cu)-1] {
		shift := int32(s.Config.RopeShift(int(cu[i+1] - first)))
		if shift == 0 {
			continue
		}
		for t := first; t < cu[i+1]; t++ {
			dst[t] += shift
		}
	}
}

// ChunkBounds returns the bounds of attention chunks within documents with bounds cu, for blocks with chunked
// attention; nil if the model has none. The documents' bounds are among them.
func (s Spec) ChunkBounds(cu []int32) []int32 {
	size := int32(s.Config.ChunkSize)
	if size == 0 {
		return nil
	}
	out := []int32{0}
	for i, first := range cu[:len(cu)-1] {
		for at := first + size; at < cu[i+1]; at += size {
			out = append(out, at)
		}
		out = append(out, cu[i+1])
	}
	return out
}

// Templates are the layer templates of one run. They are stateless, so one value serves all layers and all streams.
// Every method enqueues on the stream it is given and returns; errors stick to the stream. A launch's workspace ws is
// at least Spec.WorkspaceBytes of device memory, with undefined content before and after. All launches of a stream can
// share ws. The caller may free or reuse buffers only when an event recorded after the launch has passed.
type Templates struct {
	spec         Spec
	dims         dims
	ropes        []ropeTable
	queryScaling ropeTable     // the table of Config.QueryScaling, which scales without rotating
	ones         device.Tensor // the weights of norms without weights
	dev          device.Device
}

// ropeTable is the table of one of the model's rotary embeddings: cos and sin (P, rotary/2) f32, with a row for each of
// P positions.
type ropeTable struct {
	cos, sin device.Tensor
	rotary   int
}

// viewTables sets t's RoPE tables (one for each of the model's rotary embeddings) to views of
// Spec.Cos and Spec.Sin, which hold them in the order of Config.RopeTables.
func (t *Templates) viewTables() {
	s := t.spec
	c, off := s.Config, int64(0)
	view := func(rotary int) ropeTable {
		r, n := ropeTable{rotary: rotary}, int64(c.RopeRows(s.Positions))*int64(rotary/2)
		if !s.Cos.None() {
			r.cos, r.sin = s.Cos.Slice(off, n), s.Sin.Slice(off, n)
		}
		off += n
		return r
	}
	for i := range c.Ropes() {
		t.ropes = append(t.ropes, view(c.Rotary(i)))
	}
	if c.QueryScaling != nil {
		t.queryScaling = view(c.HeadDim)
	}
	if n := c.Ones(); n > 0 && !s.Cos.None() {
		t.ones = s.Cos.Slice(off, int64(n))
	}
}

// New returns the templates of a run on a device.
func New(spec Spec, dev device.Device) *Templates {
	t := &Templates{spec: spec, dims: newDims(spec), dev: dev}
	t.viewTables()
	return t
}

// Weights are the parameters of one layer on the device, by role.
type Weights map[model.Role]device.Tensor

// Grads are the fp32 gradients of one layer on the device, by role.
type Grads map[model.Role]device.Tensor

// MicroBatch is a data.MicroBatch on the device; all tensors are i32 except Reference. Pos are rows of the RoPE tables
// (see Spec.RopePositions), and ChunkBounds is the result of Spec.ChunkBounds.
//
// With Spec.Preference documents 2p and 2p+1 are pair p. Reference (Seqs) f32 is each document's log p under the
// reference model. Likelihood is the weight of a chosen document's token in its own log-likelihood loss, in addition
// to the pair's loss.
type MicroBatch struct {
	Tokens, Seqs, MaxSeqlen int
	Index, Targets, Pos, Cu device.Tensor
	IDs, UniqueIDs          device.Tensor // token ids of the micro-batch, and the batch's distinct ids; with per-layer inputs
	RowStart, RowPos        device.Tensor
	ChunkBounds             device.Tensor
	UniqueRows              int
	First                   int // index in the step of its first token
	Reference               device.Tensor
	Likelihood              float32
	// With multi-token prediction: the rows of the next and the previous token (AheadRows), and of all rows of the head the
	// targets i32 and the factors f32 on their gradients. Rows for the token after the next come first.
	Next, Previous           device.Tensor
	HeadTargets, HeadWeights device.Tensor
}
