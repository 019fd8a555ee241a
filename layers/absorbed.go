package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has the absorbed form of latent attention, in which all heads share one row of keys, so attention reads the rows
// of chosen keys alone. Blocks have it if an indexer may run (dims.indexer). W_UK (N, R) and W_UV (V, R) are a head's
// rows of the key/value projection; R = KVRank, N = NopeDim, V = ValueDim, r = RopeDim. Instead of keys and values, the
// queries and outputs of a head are projected:
//
//	query (R+r): q·W_UK of the elements that are not rotated, then the rotated ones
//	key (R+r), of all heads: the normed latent vector, then the rotated elements. Its first R elements are the value
//	output (V): o·W_UVᵀ of attention's output o (R)
//
// A packed row has the H queries and the key; the cache has keys. Source: arXiv:2405.04434, section 2.1.2.

// absorbed returns the widths of absorbed latent attention. d has those of the other form.
func (d dims) absorbed() dims {
	r, wide := d.mla.KVRank, d.mla.KVRank+d.mla.RopeDim
	d.kvHeads, d.headDim, d.ropeAt, d.q, d.kv, d.cached, d.qkv = 1, wide, r, d.heads*wide, wide, wide, (d.heads+1)*wide
	d.raw, d.o, d.latent, d.valueProducts, d.output = d.qkv, d.heads*r, d.out, d.out*r, absorbedOutputs{}
	return d
}

// packedAt, projectedAt, attendedAt and narrowedAt return the places of heads in rows of l.qkv, l.mla.q, l.o and l.mla.kv,
// upAt those in the rows of the key/value projection.
func (d dims) packedAt() op.Place    { return op.Place{Row: d.qkv, Next: d.headDim} }
func (d dims) projectedAt() op.Place { return op.Place{Row: d.heads * d.keyDim, Next: d.keyDim} }
func (d dims) attendedAt() op.Place  { return op.Place{Row: d.o, Next: d.mla.KVRank} }
func (d dims) narrowedAt() op.Place  { return op.Place{Row: d.out, Next: d.mla.ValueDim} }
func (d dims) upAt() op.Place {
	return op.Place{Row: d.mla.KVRank, Next: (d.mla.NopeDim + d.mla.ValueDim) * d.mla.KVRank}
}

// byHead enqueues the product m of every head; a, b and to are the places of the heads' matrices.
func (l *launch) byHead(m op.MatMul, a, b, to op.Place) {
	m.Batch = op.Batch{N: l.dims.heads, A: a, B: b, D: to}
	op.Do(l.dev, l.s, m)
}

// upGrad accumulates the gradient dy (n, rows)ᵀ·x (n, R) of W_UK or W_UV, which begins at row first of the key/value
// projection.
func (l *launch) upGrad(first, rows int, dy, x device.Tensor, dyAt, xAt op.Place, c span) {
	dw, rank := l.g[model.RoleKVB], l.dims.mla.KVRank
	if dw.None() {
		return // frozen
	}
	m := op.MatMul{M: rows, N: rank, K: c.n, TransA: true, A: dy, B: x, D: from(dw, first*rank)}
	if !l.overwrites(c) {
		m.C = m.D
	}
	l.byHead(m, dyAt, xAt, l.dims.upAt())
}

// absorb writes l.qkv for the tokens of chunk c from the buffers of l.mla.
func (l *launch) absorb(c span) {
	d, b, m, qkv := l.dims, l.mla, l.dims.mla, l.qkv.of(c)
	l.byHead(op.MatMul{M: c.n, N: m.KVRank, K: m.NopeDim, A: b.q.of(c), B: l.w[model.RoleKVB], D: qkv}, d.projectedAt(), d.upAt(), d.packedAt())
	op.Do(l.dev, l.s, op.CopyHeads{Dst: from(qkv, m.KVRank), Src: from(b.q.of(c), m.NopeDim), T: c.n, Heads: d.heads, C: m.RopeDim,
		DstStride: d.qkv, DstHead: d.headDim, SrcStride: b.q.width, SrcHead: d.keyDim})
	l.columns(l.s, from(qkv, d.q), b.kvn.of(c), c.n, m.KVRank, d.qkv, m.KVRank)
	l.columns(l.s, from(qkv, d.q+m.KVRank), from(b.kva.of(c), m.KVRank), c.n, m.RopeDim, d.qkv, b.kva.width)
}

// absorbBackward writes the gradients of l.mla.q, of l.mla.kvn and of the rotated elements in l.mla.dkva for chunk c, and
// accumulates that of W_UK. dqkv has the gradients of the packed rows before the rotation. The queries, which W_UK's
// gradient reads, are computed again.
func (l *launch) absorbBackward(dqkv device.Tensor, c span) {
	d, b, m, dq := l.dims, l.mla, l.dims.mla, l.mla.q.of(c)
	l.queries(c)
	l.upGrad(0, m.NopeDim, dq, dqkv, d.projectedAt(), d.packedAt(), c)
	l.byHead(op.MatMul{M: c.n, N: m.NopeDim, K: m.KVRank, TransB: true, A: dqkv, B: l.w[model.RoleKVB], D: dq}, d.packedAt(), d.upAt(), d.projectedAt())
	op.Do(l.dev, l.s, op.CopyHeads{Dst: from(dq, m.NopeDim), Src: from(dqkv, m.KVRank), T: c.n, Heads: d.heads, C: m.RopeDim,
		DstStride: b.q.width, DstHead: d.keyDim, SrcStride: d.qkv, SrcHead: d.headDim})
	l.columns(l.s, b.kvn.of(c), from(dqkv, d.q), c.n, m.KVRank, m.KVRank, d.qkv)
	l.columns(l.s, from(b.dkva.of(c), m.KVRank), from(dqkv, d.q+m.KVRank), c.n, m.RopeDim, b.dkva.width, d.qkv)
}

// absorbedOutputs projects attention's output by W_UV.
type absorbedOutputs struct{}

func (absorbedOutputs) of(l *launch, c span) device.Tensor {
	d, m, narrow := l.dims, l.dims.mla, l.narrowOutput(c)
	l.byHead(op.MatMul{M: c.n, N: m.ValueDim, K: m.KVRank, TransB: true, A: l.o.of(c), B: from(l.w[model.RoleKVB], m.NopeDim*m.KVRank), D: narrow},
		d.attendedAt(), d.upAt(), d.narrowedAt())
	return narrow
}

// grad also accumulates the gradient of W_UV.
func (absorbedOutputs) grad(l *launch, dy device.Tensor, c span) {
	d, m, narrow := l.dims, l.dims.mla, l.narrowOutput(c)
	l.inputGrad(l.s, narrow, dy, l.w[model.RoleO], c.n, d.hidden, d.out)
	l.upGrad(m.NopeDim, m.ValueDim, narrow, l.o.of(c), d.narrowedAt(), d.attendedAt(), c)
	l.byHead(op.MatMul{M: c.n, N: m.KVRank, K: m.ValueDim, A: narrow, B: from(l.w[model.RoleKVB], m.NopeDim*m.KVRank), D: l.do.of(c)},
		d.narrowedAt(), d.upAt(), d.attendedAt())
}
