package layers

import (
	"math"

	"mt/device"
	"mt/model"
)

// BlockForward overwrites y with the decoder block's output.
//
//	x, y (T, h) act, not overlapping
//	saved: Spec.SavedBytes(T) bytes that BlockBackward reads; the zero Mem keeps
//	nothing, as in an evaluation
//
// Source: arXiv:2302.13971 (Llama); with q/k norm arXiv:2505.09388 (Qwen3).
func (t *Templates) BlockForward(s device.Stream, w Weights, y, x device.Tensor, mb MicroBatch, saved, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, w, mb, saved, ws, false)
	l.x, l.y = whole(x, t.dims.hidden), whole(y, t.dims.hidden)
	for c := range l.chunks() {
		l.project(c)
		l.rotate(c)
	}
	l.attend()
	for c := range l.chunks() {
		l.mlp(c)
	}
}

// launch is one visit of a micro-batch to a block: what its steps share.
type launch struct {
	*Templates
	buffers
	s    device.Stream
	w    Weights
	g    Grads // backward only
	mb   MicroBatch
	keep Keep
	x, y rows // input; output, or in the backward the gradient in place
	// first: the parameters' gradients are overwritten.
	first bool
}

func (t *Templates) newLaunch(s device.Stream, w Weights, mb MicroBatch, saved, ws device.Mem, backward bool) *launch {
	keep := t.spec.Keep
	if saved.Bytes == 0 {
		keep = KeepNothing
	}
	l := &launch{Templates: t, s: s, w: w, mb: mb, keep: keep}
	l.buffers = t.spec.blockBuffers(t.dims, keep, mb.Tokens, backward, &arena{mem: saved}, &arena{mem: ws})
	return l
}

func (l *launch) chunks() func(func(span) bool) {
	return spans(l.mb.Tokens, chunkOf(l.spec.ChunkTokens, l.mb.Tokens))
}

// linear is D (n, out) = A (n, in) · Wᵀ [+ C] [+ bias] for W (out, in).
func (t *Templates) linear(s device.Stream, d, a, w, c, bias device.Tensor, n, in, out int) {
	t.ops.MatMul(s, device.MatMul{M: n, N: out, K: in, TransB: true, A: a, B: w, C: c, D: d, Bias: bias})
}

// norm is y (n, h) = RMSNorm(x); rstd (n) f32 or none.
func (t *Templates) norm(s device.Stream, y, rstd, x, w device.Tensor, n int) {
	h := t.dims.hidden
	t.ops.RMSNorm(s, device.RMSNorm{Y: y, RStd: rstd, X: x, W: w, Rows: n, Groups: 1, Dim: h,
		XStride: h, YStride: h, Eps: t.spec.Config.RMSNormEps})
}

// project writes qkv of a chunk: norm(x)·Wqkvᵀ + bias.
func (l *launch) project(c span) {
	d := l.dims
	l.norm(l.s, l.n.of(c), device.Tensor{}, l.x.of(c), l.w[model.RoleAttnNorm], c.n)
	l.linear(l.s, l.qkv.of(c), l.n.of(c), l.w[model.RoleQKV], device.Tensor{}, l.w[model.RoleQKVBias], c.n, d.hidden, d.qkv)
}

// rotate applies q/k norm, which reads qkv and writes rot, and RoPE to a chunk.
func (l *launch) rotate(c span) {
	to := l.qkv.of(c)
	if l.dims.qkNorm {
		to = l.rot.of(c)
		l.normQK(l.s, l.w, to, l.qkv.of(c), l.rstdQ.of(c), l.rstdK.of(c), c.n)
	}
	l.rope(l.s, to, l.mb.Pos.Slice(int64(c.at), int64(c.n)), c.n, false)
}

// normQK norms the q and k heads of n packed rows; y may be x, the rstd none.
func (t *Templates) normQK(s device.Stream, w Weights, y, x, rstdQ, rstdK device.Tensor, n int) {
	d := t.dims
	a := device.RMSNorm{Y: y, RStd: rstdQ, X: x, W: w[model.RoleQNorm], Rows: n, Groups: d.heads, Dim: d.headDim,
		XStride: d.qkv, YStride: d.qkv, Eps: t.spec.Config.RMSNormEps}
	t.ops.RMSNorm(s, a)
	a.Y, a.X, a.RStd, a.W, a.Groups = from(y, d.q), from(x, d.q), rstdK, w[model.RoleKNorm], d.kvHeads
	t.ops.RMSNorm(s, a)
}

// rope rotates the q and k heads of n packed rows in place, or back.
func (t *Templates) rope(s device.Stream, x, pos device.Tensor, n int, inverse bool) {
	d := t.dims
	t.ops.RoPE(s, device.RoPE{X: x, Cos: t.spec.Cos, Sin: t.spec.Sin, Pos: pos, T: n, Heads: d.heads + d.kvHeads,
		Dim: d.headDim, Rotary: d.headDim, Stride: d.qkv, Inverse: inverse})
}

// from is the elements of t from off on: a column of packed rows.
func from(t device.Tensor, off int) device.Tensor { return t.Slice(int64(off), t.Len-int64(off)) }

// heads are q, k and v as attention reads them, all with rows of dims.qkv
// elements.
func (l *launch) heads() (q, k, v device.Tensor) {
	d := l.dims
	q = l.qkv.t
	if d.qkNorm {
		q = l.rot.t
	}
	return q, from(q, d.q), from(l.qkv.t, d.q+d.kv)
}

// shape is the attention of the micro-batch's sequences over themselves.
func (l *launch) shape() device.AttentionShape {
	a := l.attentionShape()
	a.CuQ, a.CuK, a.Seqs = l.mb.Cu, l.mb.Cu, l.mb.Seqs
	a.TQ, a.TK, a.MaxQ, a.MaxK = l.mb.Tokens, l.mb.Tokens, l.mb.MaxSeqlen, l.mb.MaxSeqlen
	return a
}

func (t *Templates) attentionShape() device.AttentionShape {
	d := t.dims
	return device.AttentionShape{Heads: d.heads, KVHeads: d.kvHeads, Dim: d.headDim,
		Scale: float32(1 / math.Sqrt(float64(d.headDim)))}
}

// attend writes o, and lse where something reads it later.
func (l *launch) attend() {
	q, k, v := l.heads()
	l.ops.Attention(l.s, device.Attention{AttentionShape: l.shape(), O: l.o.t, LSE: l.lse, Q: q, K: k, V: v,
		QStride: l.dims.qkv, KStride: l.dims.qkv})
}

// mlp writes y of a chunk from attention's output. The residual input lies in y
// itself where it is not kept.
func (l *launch) mlp(c span) {
	x2 := l.y
	if !l.x2.t.None() {
		x2 = l.x2
	}
	l.residual(x2, c)
	l.norm(l.s, l.n.of(c), device.Tensor{}, x2.of(c), l.w[model.RoleMLPNorm], c.n)
	l.gateUp(c)
	l.ops.SwiGLU(l.s, l.act.of(c), l.gu.of(c), c.n, l.dims.ffn)
	l.linear(l.s, l.y.of(c), l.act.of(c), l.w[model.RoleDown], x2.of(c), l.w[model.RoleDownBias], c.n, l.dims.ffn, l.dims.hidden)
}

// residual writes x2 = x + o·Woᵀ + bias of a chunk.
func (l *launch) residual(x2 rows, c span) {
	l.linear(l.s, x2.of(c), l.o.of(c), l.w[model.RoleO], l.x.of(c), l.w[model.RoleOBias], c.n, l.dims.q, l.dims.hidden)
}

// gateUp writes gu of a chunk from the normed n.
func (l *launch) gateUp(c span) {
	l.linear(l.s, l.gu.of(c), l.n.of(c), l.w[model.RoleGateUp], device.Tensor{}, l.w[model.RoleGateUpBias], c.n,
		l.dims.hidden, 2*l.dims.ffn)
}
