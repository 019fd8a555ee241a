package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// AttentionForward overwrites y with x + attention(norm(x)). It is the first half of decoder block number block, if
// the block's MLP is a layer of its own.
//
//	x, y (T, h) act, not overlapping
//	saved: SavedBytes of the Attention kind for T tokens, which AttentionBackward reads; the
//	zero Mem keeps nothing
func (t *Templates) AttentionForward(s device.Stream, block int, w Weights, y, x Hidden, mb MicroBatch, saved, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, withoutMLP, block, w, mb, saved, ws, false)
	l.between(x, y)
	l.passOn()
	l.attention()
	for c := range l.chunks() {
		fetch(s, c, l.x)
		l.link.getO(l, c)
		l.residual(l.y, l.n, c)
		store(s, c, l.y)
	}
}

// attention writes l.o, the output of attention before the output projection, for the whole micro-batch.
func (l *launch) attention() {
	for c := range l.chunks() {
		fetch(l.s, c, l.x)
		l.project(c)
		l.rotate(c)
		l.link.putQKV(l, c)
		if l.side != nil {
			l.side.project(c)
		}
	}
	l.attend()
	if l.side != nil {
		l.side.attend()
	}
}

// project writes l.qkv for the tokens of chunk c: norm(x)·Wqkvᵀ + bias. If the model does not norm inputs, it projects
// x itself. Blocks with MLA or a recurrence have projections of their own.
func (l *launch) project(c span) {
	d := l.dims
	in := l.input(model.RoleAttnNorm, l.x, rows{}, c)
	switch {
	case d.recurrent:
		d.recurrence.project(l, in, c)
		return
	case d.mla != nil:
		l.projectMLA(c)
		return
	}
	l.linear(l.s, l.qkv.of(c), in, l.w[model.RoleQKV], device.Tensor{}, l.w[model.RoleQKVBias], c.n, d.hidden, d.raw)
	if d.rotatesFirst {
		l.rope(l.qkv.of(c), c, false)
	}
	l.scaleValues(l.qkv.of(c), c)
}

// rotate applies q/k norm and RoPE to the tokens of chunk c. The norm reads l.qkv and writes l.rot; without it RoPE
// works in l.qkv.
func (l *launch) rotate(c span) {
	to := l.qkv.of(c)
	if l.dims.qkNorm {
		to = l.rot.of(c)
		l.normHeads(to, l.qkv.of(c), c)
	}
	if !l.dims.rotatesFirst {
		l.rope(to, c, false)
	}
	l.shareKV(to, c)
}

// normHeads applies the q/k norm to q and k, and the value norm to v if the model has one. Input x
// has packed rows (q, k and v side by side) of chunk c's tokens; the result is y, also packed. One
// norm covers one head or all heads of a row (Config.QKNormWhole). y may be x, unless values are
// normed.
func (l *launch) normHeads(y, x device.Tensor, c span) {
	d := l.dims
	a := op.RMSNorm{Y: y, RStd: l.rstdQ.of(c), X: x, W: l.headNorm(model.RoleQNorm), Rows: c.n, Groups: d.qGroups, Dim: d.q / d.qGroups,
		XStride: d.raw, YStride: d.qkv, Eps: l.spec.Config.RMSNormEps, Offset: l.headOffset()}
	op.Do(l.dev, l.s, a)
	if d.shared {
		return
	}
	a.Y, a.X, a.RStd, a.W = from(y, d.q), from(x, d.q), l.rstdK.of(c), l.headNorm(model.RoleKNorm)
	a.Groups, a.Dim = d.kGroups, d.kv/d.kGroups
	op.Do(l.dev, l.s, a)
	if d.normsV {
		a.Y, a.X, a.RStd, a.W = from(y, d.q+d.kv), from(x, d.rawV()), l.rstdV.of(c), l.headOnes()
		a.Groups, a.Dim, a.Offset = d.kvHeads, d.headDim, 0
		op.Do(l.dev, l.s, a)
	}
}

// rawV returns the column at which the values begin in a row of the qkv projection. If the model
// uses keys as values too, this is the keys' column.
func (d dims) rawV() int { return d.raw - d.kv }

// headOnes returns the weight of a norm of heads without weights.
func (l *launch) headOnes() device.Tensor { return l.onesOf(l.dims.headDim) }

// onesOf returns n ones, the weights of a norm without weights. It is empty in a prediction, which has no tables.
func (t *Templates) onesOf(n int) device.Tensor {
	if t.ones.None() {
		return t.ones
	}
	return t.ones.Slice(0, int64(n))
}

// headOffset returns the number that is added to the weights of the q/k norm.
func (l *launch) headOffset() float32 {
	if l.spec.Config.QKNormPlain {
		return 0
	}
	return l.spec.Config.NormOffset
}

// headNorm returns the weight of the q/k norm with role r: ones if the norm has no weights.
func (l *launch) headNorm(r model.Role) device.Tensor {
	if l.spec.Config.QKNormPlain {
		return l.headOnes()
	}
	return l.w[r]
}

// rope rotates the q and k heads of chunk c's packed rows x in place; with inverse it rotates them
// back, for gradients. Blocks without a rotary embedding skip the rotation. If the model scales
// queries by position, rope then multiplies q, or its gradient, by that scale.
func (l *launch) rope(x device.Tensor, c span, inverse bool) {
	d, cfg := l.dims, l.spec.Config
	pos := l.mb.Pos.Slice(int64(c.at), int64(c.n))
	if cfg.Turns(l.block) {
		r := l.ropes[cfg.RopeOf(l.block)]
		op.Do(l.dev, l.s, op.RoPE{X: from(x, d.ropeAt), Cos: r.cos, Sin: r.sin, Pos: pos, T: c.n, Heads: d.turned(),
			Dim: d.headDim, Rotary: r.rotary, Stride: d.qkv, Inverse: inverse, Interleaved: cfg.RopeInterleaved})
	}
	if r := l.queryScaling; cfg.ScalesQueries(l.block) {
		op.Do(l.dev, l.s, op.RoPE{X: x, Cos: r.cos, Sin: r.sin, Pos: pos, T: c.n, Heads: d.heads, Dim: d.headDim, Rotary: r.rotary,
			Stride: d.qkv, Inverse: inverse})
	}
}

// turned returns the number of heads that a block rotates: of queries, and of its own keys.
func (d dims) turned() int {
	if d.shared {
		return d.heads
	}
	return d.heads + d.kvHeads
}

// from returns the elements of t from index off to the end. In packed rows this is the view that begins at column off
// of the first row.
func from(t device.Tensor, off int) device.Tensor { return t.Slice(int64(off), t.Len-int64(off)) }

// heads returns q, k and v as attention reads them, each with a row stride of dims.qkv.
func (l *launch) heads() (q, k, v device.Tensor) {
	d := l.dims
	q, v = l.qkv.t, l.qkv.t
	if d.qkNorm {
		q = l.rot.t
	}
	if d.normsV {
		v = l.rot.t
	}
	return q, from(q, d.q), from(v, d.q+d.kv)
}

// shape returns the shape of self-attention over the micro-batch's sequences. With chunked attention (Config.ChunkSize)
// each attention chunk counts as a sequence, because tokens attend only within it; positions still count from the
// document's start.
func (l *launch) shape() op.AttentionShape {
	a := l.attentionShape()
	a.CuQ, a.Seqs, a.MaxQ = l.mb.Cu, l.mb.Seqs, l.mb.MaxSeqlen
	if size := l.spec.Config.AttentionChunk(l.block); size > 0 {
		a.CuQ, a.Seqs, a.MaxQ = l.mb.ChunkBounds, int(l.mb.ChunkBounds.Len)-1, min(a.MaxQ, size)
	}
	a.CuK, a.MaxK = a.CuQ, a.MaxQ
	a.TQ, a.TK = l.mb.Tokens, l.mb.Tokens
	return a
}

func (l *launch) attentionShape() op.AttentionShape {
	d, c := l.dims, l.spec.Config
	return op.AttentionShape{Heads: d.heads, KVHeads: d.kvHeads, Dim: d.headDim, Scale: float32(c.ScoreScale()),
		Window: c.Window(l.block), Softcap: float32(c.AttnSoftcap)}
}

// attend runs attention for the whole micro-batch. It writes l.o, attention's output, and l.lse,
// the log-sum-exp, if a later operation reads it. In a recurrent block it runs the recurrence
// instead.
func (l *launch) attend() {
	if l.dims.recurrent {
		l.recur(device.Tensor{}, device.Tensor{})
		return
	}
	if l.dims.groups {
		l.attendGroups()
		return
	}
	q, k, v := l.heads()
	l.attendTo(op.Attention{AttentionShape: l.shape(), O: l.o.t, LSE: l.lse, Q: q, K: k, V: v,
		QStride: l.dims.qkv, KStride: l.dims.qkv}, l.index.k.t)
	l.sink(l.o.t, l.lse, 0, l.dims.heads)
}

// sink applies attention sinks, if the model has them, to heads first to first+heads−1. o is their output and lse their
// log-sum-exp.
func (l *launch) sink(o, lse device.Tensor, first, heads int) {
	if l.dims.sinks {
		op.Do(l.dev, l.s, op.Sinks{O: o, LSE: lse, Sinks: l.w[model.RoleSinks].Slice(int64(first), int64(heads)), T: l.mb.Tokens,
			Heads: heads, Dim: l.dims.headDim})
	}
}

// residual adds attention to the residual stream for the tokens of chunk c: x2 = x + o·Woᵀ + bias. If the model norms
// outputs, it writes o·Woᵀ + bias to out and x2 = x + norm(out).
func (l *launch) residual(x2, out rows, c span) {
	if !l.dims.normOut {
		l.linear(l.s, x2.of(c), l.dims.output.of(l, c), l.w[l.dims.outRole], l.x.of(c), l.w[l.dims.outBias], c.n, l.dims.out, l.dims.hidden)
		if side := l.side; side != nil {
			l.linear(l.s, x2.of(c), side.dims.output.of(side, c), l.w[side.dims.outRole], x2.of(c), l.w[side.dims.outBias], c.n, side.dims.out, l.dims.hidden)
		}
		return
	}
	l.attentionOut(out, c)
	l.addNormed(l.s, x2.of(c), l.x.of(c), out.of(c), l.w[model.RolePostAttnNorm], c.n)
}

// attentionOut writes out = o·Woᵀ + bias for the tokens of chunk c.
func (l *launch) attentionOut(out rows, c span) {
	l.linear(l.s, out.of(c), l.dims.output.of(l, c), l.w[l.dims.outRole], device.Tensor{}, l.w[l.dims.outBias], c.n, l.dims.out, l.dims.hidden)
}

// addNormed writes y (n, h) = residual + RMSNorm(x) for n rows, by the norm with weight w; residual may be y.
func (t *Templates) addNormed(s device.Stream, y, residual, x, w device.Tensor, n int) {
	a := t.outNorm(y, device.Tensor{}, x, w, n)
	a.Residual = residual
	op.Do(t.dev, s, a)
}

// attentionOutput changes attention's output before the output projection, for example by a gate. Models without such a
// step use plainOutput.
type attentionOutput interface {
	// of returns the projection's input for the tokens of chunk c.
	of(l *launch, c span) device.Tensor
	// grad writes l.do for the tokens of chunk c, the gradient of attention's output, from dy, the gradient of the
	// projection's output.
	grad(l *launch, dy device.Tensor, c span)
}

// plainOutput is the attentionOutput of models whose output projection reads attention's output
// unchanged.
type plainOutput struct{}

func (plainOutput) of(l *launch, c span) device.Tensor { return l.o.of(c) }

func (plainOutput) grad(l *launch, dy device.Tensor, c span) {
	l.inputGrad(l.s, l.do.of(c), dy, l.w[l.dims.outRole], c.n, l.dims.hidden, l.dims.out)
}

// hiddenLink moves attention's inputs and outputs between device and host. Projections process one chunk of tokens at a
// time, attention all tokens.
type hiddenLink interface {
	putQKV(l *launch, c span)  // stores attention's inputs of a chunk
	getO(l *launch, c span)    // loads attention's output of a chunk
	putDO(l *launch, c span)   // stores the gradient of attention's output of a chunk
	getDQKV(l *launch, c span) // loads the gradients of attention's inputs of a chunk
}

// nearLink is the hiddenLink of a run with hidden states on the device. It copies nothing, because
// attention's inputs and outputs stay there.
type nearLink struct{}

func (nearLink) putQKV(*launch, span)  {}
func (nearLink) getO(*launch, span)    {}
func (nearLink) putDO(*launch, span)   {}
func (nearLink) getDQKV(*launch, span) {}
