package layers

import (
	"fmt"

	"mt/device"
	"mt/model"
)

// dims are the widths of a model's rows, in elements.
type dims struct {
	act            device.DType
	hidden         int // h
	heads, kvHeads int
	headDim        int             // D: of packed rows and attention's kernels
	keyDim         int             // K: of queries and keys without the zeros that wider values bring; else D
	q, kv          int             // H·D and KV·D
	qkv            int             // (H+2·KV)·D: a packed row of q, k, v; with an output gate H·D more, of that
	out            int             // H·D, or with latent attention H·V: a row of attention's output as its product takes it
	outRole        model.Role      // of the weights of that product
	output         attentionOutput // how the output becomes such a row
	mla            *model.MLA
	ffn            int  // F
	up             int  // a row of what the MLP's activation reads: 2·F, gate and up, or F without a gate
	vocab          int  // V
	qkNorm         bool // of a launch: in its block; else: in some blocks
	turnsFirst     bool // q/k norm is behind the rotation; then all blocks have it
	qGroups        int  // into how many groups q/k norm cuts the q of a token: one for each head, or 1
	kGroups        int
	normIn         bool // inputs of attention and MLP are normed
	normOut        bool // outputs of attention and MLP are normed
	sinks          bool // every head has one
	parallel       bool // attention and MLP read the same
	stats          int  // what a norm keeps of a row: rstd, or mean and rstd
	gated          bool // the output has a gate, the last columns of qkv
	recurrent      bool // there is a recurrence in the place of attention: see forRecurrent
	gdn            *model.GatedDeltaNet
}

func newDims(s Spec) dims {
	c := s.Config
	d := dims{act: s.Act, hidden: c.HiddenSize, heads: c.NumHeads, kvHeads: c.NumKVHeads, headDim: c.PackedHeadDim(), keyDim: c.HeadDim,
		ffn: c.IntermediateSize, vocab: c.VocabSize, out: c.OutputCols(), mla: c.MLA, qkNorm: c.QKNorm, turnsFirst: c.QKNormTurned,
		qGroups: c.NumHeads, kGroups: c.NumKVHeads, normIn: c.NormsInputs(), normOut: c.NormsOutputs(),
		sinks: c.Sinks, parallel: c.Parallel, up: 2 * c.IntermediateSize, stats: 1, gated: c.OutputGate, gdn: c.GatedDeltaNet}
	if c.QKNormWhole {
		d.qGroups, d.kGroups = 1, 1
	}
	if c.Ungated {
		d.up = d.ffn
	}
	if c.LayerNorm {
		d.stats = 2
	}
	d.q, d.kv = d.heads*d.headDim, d.kvHeads*d.headDim
	d.qkv = d.q + 2*d.kv
	if d.gated {
		d.qkv += d.q
	}
	d.outRole, d.output = model.RoleO, plainOutput{}
	switch {
	case d.gated:
		d.output = gatedOutputs{}
	case d.mla != nil:
		d.output = mlaOutputs{}
	}
	return d
}

// dims are the widths of a block, with attention or with a recurrence.
func (s Spec) dims(recurrent bool) dims {
	d := newDims(s)
	if recurrent {
		d = d.forRecurrent()
	}
	return d
}

// allotter hands out tensors of one range of memory, one after the other. Without
// memory (dry) it only counts, so that sizes and places come from the same code.
type allotter struct {
	mem  device.Mem
	dry  bool
	used int64 // bytes
}

// take returns the next n elements of type dt. It panics when the memory is too small: then
// it was not made with the size that counting gives.
func (a *allotter) take(dt device.DType, n int) device.Tensor {
	off := a.used
	a.used = (off + int64(n)*dt.Size() + device.Align - 1) / device.Align * device.Align
	if a.dry {
		return device.Tensor{}
	}
	return a.mem.Tensor(dt, off, int64(n))
}

// span is the tokens from at on, n of them, within a micro-batch.
type span struct{ at, n int }

// spans cuts tokens into chunks of a fixed size; the last may be shorter.
func spans(tokens, chunk int) func(yield func(span) bool) {
	return func(yield func(span) bool) {
		for at := 0; at < tokens; at += chunk {
			if !yield(span{at, min(chunk, tokens-at)}) {
				return
			}
		}
	}
}

// chunkOf is the chunk size for so many tokens: chunk, which they may be fewer than, or all
// of them where it is 0.
func chunkOf(chunk, tokens int) int {
	if chunk <= 0 {
		return tokens
	}
	return min(chunk, tokens)
}

// rows is a matrix with one row per token: of the whole micro-batch or, where
// chunk is set, of the chunk at work only. The others of a chunk's may be on the host.
type rows struct {
	t     device.Tensor
	width int
	chunk bool
	host  []byte // of the whole micro-batch; nil: there are none
}

// whole views t as the rows of a micro-batch.
func whole(t device.Tensor, width int) rows { return rows{t: t, width: width} }

// of returns the rows of the tokens in c; without a tensor it returns none.
func (r rows) of(c span) device.Tensor {
	if r.t.None() {
		return r.t
	}
	at := c.at
	if r.chunk {
		at = 0
	}
	return r.t.Slice(int64(at)*int64(r.width), int64(c.n)*int64(r.width))
}

// wholeRows and chunkRows take rows of type dt from a, for a micro-batch and for a chunk.
func (a *allotter) wholeRows(dt device.DType, tokens, width int) rows {
	return rows{t: a.take(dt, tokens*width), width: width}
}

func (a *allotter) chunkRows(dt device.DType, chunk, width int) rows {
	return rows{t: a.take(dt, chunk*width), width: width, chunk: true}
}

// tallRows takes rows of a micro-batch or, where these wait on the host, of a chunk.
func (s Spec) tallRows(a *allotter, dt device.DType, tokens, width int) rows {
	if s.OnHost {
		return a.chunkRows(dt, chunkOf(s.ChunkTokens, tokens), width)
	}
	return a.wholeRows(dt, tokens, width)
}

// WorkspaceBytes is the device memory that one launch needs, whichever layer it
// is of: the largest of all layers', for MaxTokens tokens. It needs no device.
func (s Spec) WorkspaceBytes() int64 { return max(s.workspaceBytes(true), s.workspaceBytes(false)) }

// ForwardWorkspaceBytes is WorkspaceBytes for evaluation and generation, where
// nothing goes backward.
func (s Spec) ForwardWorkspaceBytes() int64 { return s.workspaceBytes(false) }

func (s Spec) workspaceBytes(backward bool) (n int64) {
	for _, k := range kinds {
		n = max(n, k.WorkspaceBytes(s, backward))
	}
	return n
}

// BlockForwardBytes is the workspace of a decoder block's forward that keeps
// nothing, of MaxTokens tokens. It does not depend on Keep.
func (s Spec) BlockForwardBytes() (n int64) {
	for _, k := range kinds {
		if block, ok := k.(blockKind); ok {
			n = max(n, block.WorkspaceBytes(s, false))
		}
	}
	return n
}

// HeadBytes is the workspace of the head, or of its largest part, for MaxTokens
// tokens.
func (s Spec) HeadBytes() int64 {
	ws := allotter{dry: true}
	s.headBuffers(newDims(s), s.ShardRows(), s.MaxTokens, &ws)
	return ws.used
}

// fits panics when a launch has more tokens than the workspace was made for: then the run
// does not keep to its plan.
func (s Spec) fits(tokens int) {
	if tokens < 1 || tokens > s.MaxTokens {
		panic(fmt.Sprintf("layers: a launch of %d tokens where 1 to %d are planned", tokens, s.MaxTokens))
	}
}
