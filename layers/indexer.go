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
// at most TopK tokens, all keys are chosen and the indexer does not run. Source: arXiv:2512.02556, section 2.1; transformers,
// modeling_deepseek_v32.

// indexNormEps is the constant ε of the norm of an indexer's keys.
const indexNormEps = 1e-6

// indexBuffers are a launch's buffers for an indexer with H heads of D elements:
//
//	q (T, H·D), k (T, D), w (T, H) act: queries, keys and the heads' weights; none in a backward whose choice was kept
//	keys (T, TopK) i32: the choice; rows of TopK or, if that is less, of the longest document's tokens
//	cached: k is in a cache, which needs the keys of short documents too
type indexBuffers struct {
	q, k, w, keys rows
	cached        bool
}

// Chooses returns the indexer that may run; nil: none.
func (s Spec) Chooses() *model.Indexer {
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
	l.linear(l.s, k, l.normed.y.of(c), l.w[model.RoleIndexK], device.Tensor{}, device.Tensor{}, c.n, d.hidden, b.k.width)
	l.linear(l.s, b.w.of(c), l.normed.y.of(c), l.w[model.RoleIndexWeights], device.Tensor{}, device.Tensor{}, c.n, d.hidden, b.w.width)
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

// choose writes l.index.keys. k has the indexer's keys of all keys of the shape. If no query has more than TopK keys, all
// are chosen without a score.
func (l *launch) choose(a op.SparseShape, k device.Tensor) {
	x, heads := l.dims.indexer, l.dims.indexer.Heads
	if a.MaxK <= x.TopK {
		heads = 0
	}
	op.Do(l.dev, l.s, op.SelectKeys{Keys: a.Keys, Q: l.index.q.t, K: k, W: l.index.w.t, CuQ: a.CuQ, CuK: a.CuK, Seqs: a.Seqs,
		TQ: a.TQ, TK: a.TK, MaxK: a.MaxK, Heads: heads, Dim: x.HeadDim, TopK: a.TopK,
		Scale: float32(1 / math.Sqrt(float64(x.HeadDim))), WScale: float32(1 / math.Sqrt(float64(x.Heads)))})
}

// chosen returns the shape of attention `a` to the chosen keys.
func (l *launch) chosen(a op.AttentionShape) op.SparseShape {
	return op.SparseShape{AttentionShape: a, Values: l.dims.mla.KVRank, TopK: min(l.dims.indexer.TopK, a.MaxK), Keys: l.index.keys.t}
}

// attendTo enqueues the attention `a` or, if an indexer may run, the same attention to the keys that it chooses. k has
// the indexer's keys.
func (l *launch) attendTo(a op.Attention, k device.Tensor) {
	if l.dims.indexer == nil {
		op.Do(l.dev, l.s, a)
		return
	}
	few := l.chosen(a.AttentionShape)
	l.choose(few, k)
	op.Do(l.dev, l.s, op.SparseAttention{SparseShape: few, O: a.O, LSE: a.LSE, Q: a.Q, K: a.K, QStride: a.QStride, KStride: a.KStride})
}
