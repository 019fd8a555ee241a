package layers

import (
	"cmp"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file computes queries, keys and values from latent vectors (multi-head latent attention, if
// Config.MLA is set). They are written to the packed rows that attention reads in every model. A
// head has D elements there: the larger of the widths of keys and values. Zeros pad the narrower of
// the two at a head's end; they do not change scores. Attention's output, its gradient and the
// gradients of packed rows have the same padding, and products see rows without it. So the code
// that keeps, caches, moves or attends to packed rows is the same as for other models. Source:
// arXiv:2405.04434, section 2.1.

// mlaBuffers are a launch's buffers for a chunk of C tokens. In a head's query or key, N elements are not rotated and R
// are rotated; K = N+R. A value has V elements.
//
//	qa (C, QRank), kva (C, KVRank+R) act: the latent vectors; kva also has the rotated elements
//	  of keys, at the end
//	qn (C, QRank), kvn (C, KVRank) act: normed; in the backward later their gradients
//	q (C, H·K), kv (C, H·(N+V)) act: queries; per head key and value; then their gradients.
//	  Later kv has attention's output (C, H·V), or its gradient; absorbed, nothing else
//
// In the backward:
//
//	dkva (C, KVRank+R) act, rstdQA (C), rstdKVA (C) f32
type mlaBuffers struct{ qa, kva, qn, kvn, q, kv, dkva, rstdQA, rstdKVA rows }

// mlaBuffers takes a launch's buffers for latent attention from ws, which may also only count
// bytes.
func (s Spec) mlaBuffers(d dims, tokens int, backward bool, ws *allotter) mlaBuffers {
	l, chunk := d.mla, chunkOf(s.ChunkTokens, tokens)
	b := mlaBuffers{kva: ws.chunkRows(d.act, chunk, l.KVRank+l.RopeDim), kvn: ws.chunkRows(d.act, chunk, l.KVRank),
		q: ws.chunkRows(d.act, chunk, d.heads*d.keyDim), kv: ws.chunkRows(d.act, chunk, d.latent)}
	if l.QRank > 0 {
		b.qa, b.qn = ws.chunkRows(d.act, chunk, l.QRank), ws.chunkRows(d.act, chunk, l.QRank)
	}
	if !backward {
		return b
	}
	b.dkva, b.rstdKVA = ws.chunkRows(d.act, chunk, l.KVRank+l.RopeDim), ws.chunkRows(device.F32, chunk, 1)
	if l.QRank > 0 {
		b.rstdQA = ws.chunkRows(device.F32, chunk, 1)
	}
	return b
}

// projectMLA writes l.qkv, the packed rows of q, k and v, for the tokens of chunk c from l.normed, the normed input.
func (l *launch) projectMLA(c span) {
	d, at := l.dims, l.dims.mla
	l.narrow(c)
	l.projectIndex(c)
	qkv, b := l.qkv.of(c), l.mla
	l.queries(c)
	if d.indexer != nil {
		l.absorb(c)
		return
	}
	l.linear(l.s, b.kv.of(c), b.kvn.of(c), l.w[model.RoleKVB], device.Tensor{}, device.Tensor{}, c.n, at.KVRank, b.kv.width)
	op.Do(l.dev, l.s, op.CopyHeads{Dst: qkv, Src: b.q.of(c), T: c.n, Heads: d.heads, C: d.keyDim, Zeros: d.headDim - d.keyDim,
		DstStride: d.qkv, DstHead: d.headDim, SrcStride: b.q.width, SrcHead: d.keyDim})
	keys, values, turning := l.bothHeads(from(qkv, d.q), c)
	op.Do(l.dev, l.s, keys)
	op.Do(l.dev, l.s, values)
	op.Do(l.dev, l.s, turning)
}

// queries writes l.mla.q, the projected queries of chunk c.
func (l *launch) queries(c span) {
	q := l.mla.q
	l.linear(l.s, q.of(c), l.queriesFrom(c), l.w[model.RoleQB], device.Tensor{}, device.Tensor{}, c.n, cmp.Or(l.dims.mla.QRank, l.dims.hidden), q.width)
}

// narrow projects l.normed, the normed input, to the latent vectors of the tokens of chunk c, and norms these. It
// writes qa, qn, kva and kvn of l.mla.
func (l *launch) narrow(c span) {
	d, b, at := l.dims, l.mla, l.dims.mla
	if at.QRank > 0 {
		l.linear(l.s, b.qa.of(c), l.normed.y.of(c), l.w[model.RoleQA], device.Tensor{}, l.w[model.RoleQABias], c.n, d.hidden, at.QRank)
		op.Do(l.dev, l.s, l.narrowNorm(b.qn.of(c), b.rstdQA.of(c), b.qa.of(c), l.w[model.RoleQANorm], at.QRank, at.QRank, c.n))
	}
	l.linear(l.s, b.kva.of(c), l.normed.y.of(c), l.w[model.RoleKVA], device.Tensor{}, l.w[model.RoleKVABias], c.n, d.hidden, b.kva.width)
	op.Do(l.dev, l.s, l.narrowNorm(b.kvn.of(c), b.rstdKVA.of(c), b.kva.of(c), l.w[model.RoleKVANorm], at.KVRank, b.kva.width, c.n))
}

// queriesFrom returns the input of the query projection for chunk c: the normed latent vectors, or the normed input if
// queries have none (QRank 0).
func (l *launch) queriesFrom(c span) device.Tensor {
	if l.dims.mla.QRank > 0 {
		return l.mla.qn.of(c)
	}
	return l.normed.y.of(c)
}

func (l *launch) narrowNorm(y, rstd, x, w device.Tensor, rank, stride, n int) op.RMSNorm {
	return op.RMSNorm{Y: y, RStd: rstd, X: x, W: w, Rows: n, Groups: 1, Dim: rank, XStride: stride, YStride: rank,
		Eps: l.dims.mla.NormEps, Offset: l.spec.Config.NormOffset}
}

// bothHeads returns the three copies that fill the keys and values of chunk c's packed rows. keys and values copy from
// l.mla.kv. turning copies the rotated elements of keys from l.mla.kva; they are the same for all heads. The tensor kv
// begins at the first key of the packed rows.
func (l *launch) bothHeads(kv device.Tensor, c span) (keys, values, turning op.CopyHeads) {
	d, b, at := l.dims, l.mla, l.dims.mla
	all := op.CopyHeads{T: c.n, Heads: d.heads, DstStride: d.qkv, DstHead: d.headDim, SrcStride: b.kv.width, SrcHead: at.NopeDim + at.ValueDim}
	keys, values, turning = all, all, all
	keys.Dst, keys.Src, keys.C = kv, b.kv.of(c), at.NopeDim
	values.Dst, values.Src, values.C, values.Zeros = from(kv, d.kv), from(b.kv.of(c), at.NopeDim), at.ValueDim, d.headDim-at.ValueDim
	turning.Dst, turning.Src, turning.C = from(kv, at.NopeDim), from(b.kva.of(c), at.KVRank), at.RopeDim
	turning.SrcStride, turning.SrcHead, turning.Zeros = b.kva.width, 0, d.headDim-d.keyDim
	return keys, values, turning
}

// mlaOutputs removes the padding of attention's output, whose values may be narrower than a head.
type mlaOutputs struct{}

// of returns attention's output for the tokens of chunk c without the padding at the end of each head.
func (mlaOutputs) of(l *launch, c span) device.Tensor {
	d, narrow := l.dims, l.narrowOutput(c)
	op.Do(l.dev, l.s, op.CopyHeads{Dst: narrow, Src: l.o.of(c), T: c.n, Heads: d.heads, C: d.mla.ValueDim,
		DstStride: d.out, DstHead: d.mla.ValueDim, SrcStride: d.q, SrcHead: d.headDim})
	return narrow
}

// narrowOutput returns the memory for attention's output or its gradient without padding, for the tokens of chunk c. It
// reuses l.mla.kv.
func (l *launch) narrowOutput(c span) device.Tensor {
	return l.mla.kv.t.Slice(0, int64(c.n)*int64(l.dims.out))
}

func (mlaOutputs) grad(l *launch, dy device.Tensor, c span) {
	d, do, narrow := l.dims, l.do.of(c), l.narrowOutput(c)
	l.inputGrad(l.s, narrow, dy, l.w[model.RoleO], c.n, d.hidden, d.out)
	op.Do(l.dev, l.s, op.CopyHeads{Dst: do, Src: narrow, T: c.n, Heads: d.heads, C: d.mla.ValueDim, Zeros: d.headDim - d.mla.ValueDim,
		DstStride: d.q, DstHead: d.headDim, SrcStride: d.out, SrcHead: d.mla.ValueDim})
}

// projectMLABackward overwrites l.normed, the normed input of chunk c, with its gradient. dqkv has the gradients of q, k
// and v before the rotation. The latent vectors are computed again, which is cheap compared with the projections from them.
func (l *launch) projectMLABackward(dqkv device.Tensor, c span) {
	d, s, b, at, n := l.dims, l.s, l.mla, l.dims.mla, l.normed.y.of(c)
	l.narrow(c)
	dq, source := b.q.of(c), l.queriesFrom(c)
	if d.indexer != nil {
		l.absorbBackward(dqkv, c)
	} else {
		op.Do(l.dev, s, op.CopyHeads{Dst: dq, Src: dqkv, T: c.n, Heads: d.heads, C: d.keyDim, DstStride: b.q.width, DstHead: d.keyDim,
			SrcStride: d.qkv, SrcHead: d.headDim})
		l.bothHeadsBackward(from(dqkv, d.q), c)
	}
	dkva := b.dkva.of(c)
	op.Do(l.dev, s, l.narrowNormBackward(dkva, b.kvn.of(c), b.kva.of(c), b.rstdKVA.of(c), model.RoleKVANorm, at.KVRank, b.kva.width, c.n))
	l.weightGrad(s, l.g[model.RoleQB], dq, source, c.n, b.q.width, cmp.Or(at.QRank, d.hidden), l.overwrites(c))
	if at.QRank > 0 {
		l.inputGrad(s, source, dq, l.w[model.RoleQB], c.n, b.q.width, at.QRank)
		op.Do(l.dev, s, l.narrowNormBackward(source, source, b.qa.of(c), b.rstdQA.of(c), model.RoleQANorm, at.QRank, at.QRank, c.n))
		l.weightGrad(s, l.g[model.RoleQA], source, n, c.n, at.QRank, d.hidden, l.overwrites(c))
		l.biasGrad(model.RoleQABias, source, c.n, at.QRank)
	}
	l.weightGrad(s, l.g[model.RoleKVA], dkva, n, c.n, b.dkva.width, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleKVABias, dkva, c.n, b.dkva.width)
	if at.QRank > 0 {
		l.inputGrad(s, n, source, l.w[model.RoleQA], c.n, at.QRank, d.hidden)
	} else {
		l.inputGrad(s, n, dq, l.w[model.RoleQB], c.n, b.q.width, d.hidden)
	}
	op.Do(l.dev, s, op.MatMul{M: c.n, N: d.hidden, K: b.dkva.width, A: dkva, B: l.w[model.RoleKVA], C: n, D: n})
}

// bothHeadsBackward writes the gradients of l.mla.kv, of l.mla.kvn and of the rotated elements in l.mla.dkva for chunk c.
// dkv begins at the gradient of the first key in the packed rows. It also accumulates the gradient of the key/value
// projection.
func (l *launch) bothHeadsBackward(dkv device.Tensor, c span) {
	d, s, b, at := l.dims, l.s, l.mla, l.dims.mla
	keys, values, turning := l.bothHeads(dkv, c)
	for _, a := range [...]op.CopyHeads{keys, values} {
		op.Do(l.dev, s, op.CopyHeads{Dst: a.Src, Src: a.Dst, T: a.T, Heads: a.Heads, C: a.C, DstStride: a.SrcStride, DstHead: a.SrcHead,
			SrcStride: a.DstStride, SrcHead: a.DstHead})
	}
	kv, kvn := b.kv.of(c), b.kvn.of(c)
	l.weightGrad(s, l.g[model.RoleKVB], kv, kvn, c.n, b.kv.width, at.KVRank, l.overwrites(c))
	l.inputGrad(s, kvn, kv, l.w[model.RoleKVB], c.n, b.kv.width, at.KVRank)
	op.Do(l.dev, s, op.SumHeads{Dst: from(b.dkva.of(c), at.KVRank), Src: turning.Dst, T: c.n, Heads: d.heads, C: at.RopeDim,
		DstStride: b.dkva.width, SrcStride: d.qkv, SrcHead: d.headDim})
}

// narrowNormBackward returns the backward of a latent vector's norm over n rows: dx from dy. r is the role of the
// norm's weight and rank the length of a vector. The rows of dx and x are stride elements apart.
func (l *launch) narrowNormBackward(dx, dy, x, rstd device.Tensor, r model.Role, rank, stride, n int) op.RMSNormBackward {
	return op.RMSNormBackward{DX: dx, DW: l.g[r], DY: dy, X: x, W: l.w[r], RStd: rstd, Rows: n, Groups: 1, Dim: rank,
		DXStride: stride, DYStride: rank, XStride: stride, Offset: l.spec.Config.NormOffset}
}
