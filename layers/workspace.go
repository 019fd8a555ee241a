package layers

import (
	"fmt"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// dims are the widths of a model's rows, in elements.
type dims struct {
	act            device.DType
	hidden         int // h
	heads, kvHeads int
	headDim        int             // D: of packed rows and attention kernels
	keyDim         int             // K: width of a query or key without padding; K < D only if values are wider
	q, kv          int             // H·D and KV·D
	o              int             // H·D: a row of attention's output
	qkv            int             // (H+2·KV)·D: a packed row of q, k, v; H·D more with an output gate
	latent         int             // H·(N+V): of a row of mlaBuffers.kv
	cached         int             // qkv: a row in the cache of generation
	valueProducts  int             // absorbed.go: multiply-adds per token of the products by W_UV
	raw            int             // width of a row of the projection: qkv, (H+KV)·D if values are keys, or H·D if both are another block's
	out            int             // H·D, with MLA H·V: input width of the output projection
	outRole        model.Role      // of the output projection's weight
	outBias        model.Role      // of its bias, if there is one
	output         attentionOutput // turns attention's output into the projection's input
	mla            *model.MLA
	indexer        *model.Indexer // chooses the keys that attention reads, in the form of absorbed.go; nil: attention reads all
	ropeAt         int            // a head's first rotated element
	ffn            int            // F
	up             int            // width of the MLP activation's input: 2·F, gate and up, or F without a gate
	vocab          int            // V
	qkNorm         bool           // in a launch: of its block; else: some block has q/k norm
	rotatesFirst   bool           // q/k norm follows the rotation, in all blocks
	qGroups        int            // number of groups that q/k norm divides a token's q into: one per head, or 1
	kGroups        int
	normsV         bool // values are normed, head by head
	normIn         bool // inputs of attention and MLP are normed
	normOut        bool // outputs of attention and MLP are normed
	sinks          bool // every head has an attention sink
	parallel       bool // attention and MLP have the same input, or there is no attention
	stats          int  // statistics of a norm per row: rstd, or mean and rstd
	gated          bool // the output has a gate, in the last columns of qkv
	groups         bool // attention processes one group of heads at a time, see groups.go
	recurrent      bool // the recurrence replaces attention, see forRecurrent
	recurrence     recurrence
	beside         bool // the recurrence runs beside attention
	shared         bool // keys and values are another block's
	lends          bool // other blocks read the keys and values
}

// newDims returns the widths of the model's blocks, with heads as Config.HeadDim and Config.NumKVHeads say. Blocks with
// other heads differ (Spec.dims).
func newDims(s Spec) dims {
	return s.attentionDims(model.Heads{Dim: s.Config.HeadDim, KV: s.Config.NumKVHeads})
}

// attentionDims returns the widths of a block whose attention has the given size and number of
// key/value heads.
func (s Spec) attentionDims(heads model.Heads) dims {
	c := s.Config
	d := dims{act: s.Act, hidden: c.HiddenSize, heads: c.NumHeads, kvHeads: heads.KV, headDim: heads.Dim, keyDim: heads.Dim, indexer: s.Chooses(),
		ffn: c.IntermediateSize, vocab: c.VocabSize, out: c.NumHeads * heads.Dim, mla: c.MLA, qkNorm: c.QKNorm, rotatesFirst: c.QKNormRotated,
		normsV: c.NormsValues, qGroups: c.NumHeads, kGroups: heads.KV, ropeAt: c.RopeAt(), normIn: c.NormsInputs(), normOut: c.NormsOutputs(),
		sinks: c.Sinks, parallel: c.Parallel, up: 2 * c.IntermediateSize, stats: 1, gated: c.OutputGate, groups: s.OnHost, recurrence: recurrenceOf(c), beside: c.Beside}
	if c.QKNormWhole {
		d.qGroups, d.kGroups = 1, 1
	}
	if c.Ungated {
		d.up = d.ffn
	}
	if c.LayerNorm {
		d.stats = 2
	}
	if d.mla != nil {
		d.headDim, d.out, d.latent = c.PackedHeadDim(), c.NumHeads*c.ValueDim(), c.NumHeads*(d.mla.NopeDim+d.mla.ValueDim)
	}
	d.q, d.kv = d.heads*d.headDim, d.kvHeads*d.headDim
	d.o, d.qkv = d.q, d.q+2*d.kv
	if d.gated {
		d.qkv += d.q
	}
	d.raw, d.cached = d.qkv, d.qkv
	switch d.shared = heads.Shared; {
	case d.shared:
		d.raw = d.q
	case heads.KeysAreValues:
		d.raw -= d.kv
	}
	d.outRole, d.outBias, d.output = model.RoleO, model.RoleOBias, plainOutput{}
	switch {
	case d.gated:
		d.output = gatedOutputs{activation: op.SigmoidGate}
	case d.indexer != nil:
		return d.absorbed()
	case d.mla != nil:
		d.output = mlaOutputs{}
	}
	return d
}

// dims returns the widths of a block.
func (s Spec) dims(block int) dims {
	if s.Config.IsRecurrent(block) {
		return newDims(s).forRecurrent()
	}
	d := s.attentionDims(s.Config.Heads(block))
	d.groups = d.groups && s.Config.Mixes(block)
	d.qkNorm, d.lends = s.Config.NormsQK(block), s.Config.LendsKV(block)
	if wide := s.Config.MLPSize(block); wide != d.ffn {
		d.ffn, d.up = wide, d.up/d.ffn*wide
	}
	return d
}

// allotter hands out tensors of the memory mem, one after the other. With dry it only counts bytes. Sizes and places
// thus come from the same code, and a buffer computed by a dry run always fits.
type allotter struct {
	mem  device.Mem
	dry  bool
	used int64 // bytes
}

// take returns the next n elements of type dt. It panics if the memory is too small, which means that it was not sized
// by a dry run of the same code.
func (a *allotter) take(dt device.DType, n int) device.Tensor {
	off := a.used
	a.used = (off + int64(n)*dt.Size() + device.Align - 1) / device.Align * device.Align
	if a.dry {
		return device.Tensor{}
	}
	return a.mem.Tensor(dt, off, int64(n))
}

// span is a chunk of a micro-batch: the n tokens from token at on.
type span struct{ at, n int }

// spans returns an iterator over the chunks of the given tokens. All chunks have the given size, but the last may be
// shorter.
func spans(tokens, chunk int) func(yield func(span) bool) {
	return func(yield func(span) bool) {
		for at := 0; at < tokens; at += chunk {
			if !yield(span{at, min(chunk, tokens-at)}) {
				return
			}
		}
	}
}

// chunkOf returns how many tokens are processed at once: chunk, but not more than tokens. A chunk of 0 means all
// tokens.
func chunkOf(chunk, tokens int) int {
	if chunk <= 0 {
		return tokens
	}
	return min(chunk, tokens)
}

// rows is a matrix with one row per token. Its tensor t has the rows of the whole micro-batch or, with chunk, only
// those of the current chunk; host then has all rows.
type rows struct {
	t     device.Tensor
	width int
	chunk bool
	host  []byte // of the whole micro-batch; nil: not on the host
}

// whole views t as rows of a whole micro-batch; width is the number of elements of a row.
func whole(t device.Tensor, width int) rows { return rows{t: t, width: width} }

// of returns the part of r.t with the rows of the tokens in chunk c; none if r has no tensor.
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

// wholeRows and chunkRows take a matrix of rows from a: with a row for every token of a micro-batch, or of a chunk.
func (a *allotter) wholeRows(dt device.DType, tokens, width int) rows {
	return rows{t: a.take(dt, tokens*width), width: width}
}

func (a *allotter) chunkRows(dt device.DType, chunk, width int) rows {
	return rows{t: a.take(dt, chunk*width), width: width, chunk: true}
}

// tallRows takes a matrix with a row for every token of a micro-batch or, if attention processes one group of heads at a
// time, of a chunk.
func (s Spec) tallRows(d dims, a *allotter, dt device.DType, tokens, width int) rows {
	if d.groups {
		return a.chunkRows(dt, chunkOf(s.ChunkTokens, tokens), width)
	}
	return a.wholeRows(dt, tokens, width)
}

// WorkspaceBytes returns the device workspace in bytes that suffices for every launch: the largest need of any layer,
// for MaxTokens tokens. The computation needs no device.
func (s Spec) WorkspaceBytes() int64 { return max(s.workspaceBytes(true), s.workspaceBytes(false)) }

// ForwardWorkspaceBytes is WorkspaceBytes for evaluation and generation, which have no backward.
func (s Spec) ForwardWorkspaceBytes() int64 { return s.workspaceBytes(false) }

func (s Spec) workspaceBytes(backward bool) (n int64) {
	for _, k := range kinds {
		n = max(n, k.WorkspaceBytes(s, backward))
	}
	return n
}

// BlockForwardBytes returns the workspace of a decoder block's forward that keeps nothing, for MaxTokens tokens. It
// does not depend on Keep.
func (s Spec) BlockForwardBytes() (n int64) {
	for _, k := range kinds {
		switch k.(type) {
		case blockKind, mlpKind:
			n = max(n, k.WorkspaceBytes(s, false))
		}
	}
	return n
}

// HeadBytes returns the workspace of the head, or of its largest part, for MaxTokens tokens.
func (s Spec) HeadBytes() int64 {
	ws := allotter{dry: true}
	s.headBuffers(newDims(s), s.ShardRows(), s.Config.Streams()*s.MaxTokens, &ws)
	return ws.used
}

// fitsHead is fits for the rows of a launch of the head.
func (s Spec) fitsHead(rows int) { s.fits(rows / s.Config.Streams()) }

// fits panics if a launch has no tokens or more than MaxTokens, for which the workspace is sized. The run then violates
// its plan.
func (s Spec) fits(tokens int) {
	if tokens < 1 || tokens > s.MaxTokens {
		panic(fmt.Sprintf("layers: a launch of %d tokens where 1 to %d are planned", tokens, s.MaxTokens))
	}
}
