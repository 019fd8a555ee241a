package layers

import (
	"cmp"
	"math"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has the indexer of latent attention (model.Indexer), which chooses the keys that a query attends to. It runs
// in the forward alone: the choice has no gradient, so its parameters are frozen. In a micro-batch whose documents have
// at most TopK tokens, attention reads all keys and the indexer does not run. Source: arXiv:2512.02556, section 2.1; transformers,
// modeling_deepseek_v32.

// indexNormEps is the constant ε of the norm of an indexer's keys.
const indexNormEps = 1e-6

// indexBuffers are a launch's buffers for an indexer with H heads of D elements:
//
//	q (T, H·D), k (T, D), w (T, H) act: queries, keys and the heads' weights; none in a backward whose choice was kept
//	keys (T, TopK) i32: the choice
//	cached: k is in a cache, which needs the keys of short documents too
type indexBuffers struct {
	q, k, w, keys rows
	cached        bool
}

// chooses returns the indexer that may run; nil: none.
func (s Spec) chooses() *model.Indexer {
	if s.Config.Chooses(cmp.Or(s.Document, s.Positions)) {
		return s.Config.MLA.Indexer
	}
	return nil
}

// takeChoice takes from mem the memory of the choice.
func (b *indexBuffers) takeChoice(x *model.Indexer, tokens int, mem *allotter) {
	b.keys = mem.wholeRows(device.I32, tokens, x.TopK)
}

// take takes from ws what the choice is computed from.
func (b *indexBuffers) take(x *model.Indexer, act device.DType, tokens int, ws *allotter) {
	b.q, b.k, b.w = ws.wholeRows(act, tokens, x.Heads*x.HeadDim), ws.wholeRows(act, tokens, x.HeadDim), ws.wholeRows(act, tokens, x.Heads)
}

// projectIndex writes the indexer's queries, keys and weights for the tokens of chunk c, from the normed input and the
// normed latent vectors of queries.
func (l *launch) projectIndex(c span) {
	d, x, b := l.dims, l.dims.indexer, l.index
	if x == nil || b.q.t.None() || !b.cached && l.mb.MaxSeqlen <= x.TopK {
		return
	}
	q, k := b.q.of(c), b.k.of(c)
	l.linear(l.s, q, l.mla.qn.of(c), l.w[model.RoleIndexQ], device.Tensor{}, device.Tensor{}, c.n, d.mla.QRank, b.q.width)
	l.linear(l.s, k, l.n.of(c), l.w[model.RoleIndexK], device.Tensor{}, device.Tensor{}, c.n, d.hidden, b.k.width)
	l.linear(l.s, b.w.of(c), l.n.of(c), l.w[model.RoleIndexWeights], device.Tensor{}, device.Tensor{}, c.n, d.hidden, b.w.width)
	op.Do(l.dev, l.s, op.LayerNorm{Y: k, X: k, W: l.w[model.RoleIndexKNorm], B: l.w[model.RoleIndexKNormBias], Rows: c.n, Dim: x.HeadDim, Eps: indexNormEps})
	l.turnIndex(q, x.Heads, c)
	l.turnIndex(k, 1, c)
}

// turnIndex rotates the first elements of the indexer's heads, with the angles of attention.
func (l *launch) turnIndex(t device.Tensor, heads int, c span) {
	r, x := l.ropes[l.spec.Config.RopeOf(l.block)], l.dims.indexer
	op.Do(l.dev, l.s, op.RoPE{X: t, Cos: r.cos, Sin: r.sin, Pos: l.mb.Pos.Slice(int64(c.at), int64(c.n)), T: c.n, Heads: heads, Dim: x.HeadDim,
		Rotary: r.rotary, Stride: heads * x.HeadDim, Interleaved: x.Interleaved})
}

// choose writes l.index.keys. k has the indexer's keys of all keys of the shape.
func (l *launch) choose(a op.AttentionShape, k device.Tensor) {
	x := l.dims.indexer
	op.Do(l.dev, l.s, op.SelectKeys{Keys: l.index.keys.t, Q: l.index.q.t, K: k, W: l.index.w.t, CuQ: a.CuQ, CuK: a.CuK, Seqs: a.Seqs,
		TQ: a.TQ, TK: a.TK, MaxK: a.MaxK, Heads: x.Heads, Dim: x.HeadDim, TopK: x.TopK,
		Scale: float32(1 / math.Sqrt(float64(x.HeadDim))), WScale: float32(1 / math.Sqrt(float64(x.Heads)))})
}

// attendTo enqueues the attention `a`, or the same attention to the keys that the indexer chose. k has the indexer's keys, if one runs.
func (l *launch) attendTo(a op.Attention, k device.Tensor) {
	x := l.dims.indexer
	if x == nil || a.MaxK <= x.TopK {
		op.Do(l.dev, l.s, a)
		return
	}
	l.choose(a.AttentionShape, k)
	op.Do(l.dev, l.s, op.SparseAttention{Attention: a, Keys: l.index.keys.t, TopK: x.TopK})
}
