package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// Spec is what a run fixes about all its layers.
type Spec struct {
	Config *model.Config
	Act    device.DType // compute dtype of activations and matrices
	Keep   Keeps        // no result depends on it
	// MaxTokens is the largest micro-batch, MaxSeqs its largest number of
	// sequences.
	MaxTokens int
	// ChunkTokens is how many tokens go at once through everything but
	// attention; HeadChunk the same for the head, whose logits are (HeadChunk, V).
	// Chunks start at multiples of these from the micro-batch's first token. 0 is
	// a whole micro-batch. The order of sums depends on them, so a run that is resumed
	// keeps them.
	ChunkTokens, HeadChunk int
	// HeadShards is into how many parts the head is cut: ranges of the vocabulary,
	// each with a visit of its own in either sweep; 0 and 1 leave it whole. The order
	// of sums depends on it too.
	HeadShards int
	// Terms are what the losses of training have beside −log p; those of an evaluation have nothing.
	Terms op.LossTerms
	// Noise is what training adds to the embedding's output; evaluation and generation add nothing.
	Noise op.Noise
	// Preference, unless none, makes training one on pairs of documents, whose losses are these.
	Preference op.PreferenceLoss
	// NoBackward is how many blocks, the first ones, have no backward, because they and what is below them is frozen.
	NoBackward int
	// OnHost says that hidden states lie on the host, that a launch has chunks of them on the
	// device, and that attention goes one group of key/value heads at a time (groups.go). No
	// result depends on it. Nothing is kept for the backward then (Keep), and there are no experts.
	OnHost bool
	// Fused says that attention's backward has memory for sums where its shape uses some (op.AttentionBackward.Sums); the
	// last bits depend on it.
	Fused bool
	// Scratch is the host memory of ScratchBytes that launches work with where OnHost is set. One
	// serves all launches of a stream.
	Scratch []byte
	// Positions is the length of the longest document that the RoPE tables serve.
	Positions int
	// Cos and Sin f32 are those tables on the device: Config.RopeTables(Positions).
	Cos, Sin device.Tensor
}

// RopePositions writes to dst (T) which row of the RoPE tables each token uses. positions
// (T) are the tokens' positions in their documents, cu the documents' bounds. The row is the
// position, shifted where the document's length asks for other frequencies. dst may be
// positions itself.
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

// ChunkBounds are the bounds of the documents, cu, and those of the stretches that they are cut into in some
// blocks; nil where the model cuts none.
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

// Templates are the layer templates of one run: stateless, so one value serves
// all layers and all streams. Every method enqueues on the stream it is given
// and returns; errors stick to the stream. The workspace ws of a launch is at
// least Spec.WorkspaceBytes of device memory with undefined content before and
// after; one serves all launches of a stream. Buffers must outlive an event
// recorded after the launch.
type Templates struct {
	spec         Spec
	dims         dims
	ropes        []ropeTable
	queryScaling ropeTable     // Config.QueryScaling's, which turns all of a head by no angle
	ones         device.Tensor // the weights of a q/k norm that has none
	dev          device.Device
}

// ropeTable is one of the model's rotary embeddings: cos and sin (P, rotary/2)
// f32.
type ropeTable struct {
	cos, sin device.Tensor
	rotary   int
}

// viewTables views Spec.Cos and Spec.Sin, which hold one after the other what Config.RopeTables says.
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
	if c.QKNormPlain && !s.Cos.None() {
		t.ones = s.Cos.Slice(off, int64(c.HeadDim))
	}
}

// New makes the templates of a run on a device.
func New(spec Spec, dev device.Device) *Templates {
	t := &Templates{spec: spec, dims: newDims(spec), dev: dev}
	t.viewTables()
	return t
}

// Weights are the parameters of one layer on the device, by role.
type Weights map[model.Role]device.Tensor

// Grads are the fp32 gradients of one layer on the device, by role.
type Grads map[model.Role]device.Tensor

// MicroBatch is a data.MicroBatch on the device; all tensors i32. Pos are rows of
// the RoPE tables, see Spec.RopePositions, and ChunkBounds what Spec.ChunkBounds returns.
//
// With Spec.Preference documents 2p and 2p+1 are pair p, and Reference (Seqs) f32 is log p of every document by the reference;
// a token of a chosen document counts Likelihood times by itself, beside what its pair's loss makes of it.
type MicroBatch struct {
	Tokens, Seqs, MaxSeqlen int
	Index, Targets, Pos, Cu device.Tensor
	RowStart, RowPos        device.Tensor
	ChunkBounds             device.Tensor
	UniqueRows              int
	First                   int // its first token is that of the step
	Reference               device.Tensor
	Likelihood              float32
}
