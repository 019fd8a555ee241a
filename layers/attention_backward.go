package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// AttentionBackward is the backward of AttentionForward.
//
//	dxdy (T, h) act: dy before, dx after; x (T, h) act: the layer's input
//	g: overwritten if first is set, else accumulated
//	saved: written by AttentionForward of the same micro-batch; undefined afterwards
func (t *Templates) AttentionBackward(s device.Stream, block int, w Weights, g Grads, dxdy, x Hidden, mb MicroBatch, saved, ws device.Mem, first bool) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, withoutMLP, block, w, mb, saved, ws, true)
	l.startBackward(g, dxdy, x, first)
	for c := range l.chunks() {
		fetch(s, c, l.x, l.y)
		l.link.getO(l, c)
		if l.dims.normOut {
			l.attentionOut(l.a, c)
		}
		l.outBackward(c)
		l.link.putDO(l, c)
		store(s, c, l.y)
	}
	l.attentionBackward()
}

// startBackward sets l.g, l.first and the rows of x and dxdy for a backward. It then recomputes the tensors that the
// backward reads and the forward did not keep.
func (l *launch) startBackward(g Grads, dxdy, x Hidden, first bool) {
	l.g, l.first = g, first
	l.between(x, dxdy)
	if first {
		zeroVectors(l.s, g)
	}
	l.recompute()
	if l.side != nil {
		l.side.g, l.side.first = g, first
		l.side.recompute()
	}
}

// recompute computes the inputs of attention's backward that the forward did not keep. Normed and
// rotated q and k are never kept, because recomputing them is cheap for their size.
func (l *launch) recompute() {
	project := l.keep < KeepQKV
	if project || l.dims.qkNorm {
		for c := range l.chunks() {
			fetch(l.s, c, l.x)
			if project {
				l.project(c)
			}
			if !l.dims.recurrent {
				l.rotate(c)
			}
			l.link.putQKV(l, c)
		}
	}
	switch {
	case l.keep < KeepAttention:
		l.attend()
	case l.dims.recurrent: // the convolution's output is never kept either
		l.dims.recurrence.convolve(l, device.Tensor{})
	}
}

// outBackward computes l.do, the gradient of attention's output, for the tokens of chunk c. l.y holds the gradient of x
// + attention. If the model norms attention's output, l.a holds the output before the norm.
func (l *launch) outBackward(c span) {
	d, s, dy := l.dims, l.s, l.y.of(c)
	if d.normOut {
		dy = l.outNormBackward(model.RolePostAttnNorm, l.a.of(c), c)
	}
	l.weightGrad(s, l.g[l.dims.outRole], dy, l.dims.output.of(l, c), c.n, d.hidden, d.out, l.overwrites(c))
	l.dims.output.grad(l, dy, c)
	l.biasGrad(l.dims.outBias, dy, c.n, d.hidden)
	if l.side != nil {
		l.side.outBackward(c)
	}
}

// attentionBackward adds to l.y, the gradient of the residual stream, the gradient that comes through attention.
func (l *launch) attentionBackward() {
	l.attendBackward()
	if l.side != nil {
		l.side.attendBackward()
	}
	for c := range l.chunks() {
		fetch(l.s, c, l.x, l.y)
		l.link.getDQKV(l, c)
		l.projectBackward(c)
		if l.side != nil {
			l.side.projectBackward(c)
		}
		store(l.s, c, l.y)
	}
}

// attendBackward writes l.dqkv: the gradients of v and of q and k as attention reads them, after norm and rotation.
func (l *launch) attendBackward() {
	if l.dims.groups {
		l.attendGroupsBackward()
		return
	}
	if l.dims.recurrent {
		l.dims.recurrence.backward(l)
		return
	}
	d := l.dims
	q, k, v := l.heads()
	dq := l.dqkv.t
	a := op.AttentionBackward{AttentionShape: l.shape(),
		DQ: dq, DK: from(dq, d.q), DV: from(dq, d.q+d.kv), DO: l.do.t, O: l.o.t, LSE: l.lse, Q: q, K: k, V: v,
		QStride: d.qkv, KStride: d.qkv, DQStride: d.qkv, DKStride: d.qkv, Delta: l.delta, Sums: l.sums}
	if d.indexer != nil {
		op.Do(l.dev, l.s, op.SparseAttentionBackward{SparseShape: l.chosen(a.AttentionShape), DQ: a.DQ, DK: a.DK, DO: a.DO, O: a.O, LSE: a.LSE,
			Q: a.Q, K: a.K, QStride: a.QStride, KStride: a.KStride, DQStride: a.DQStride, DKStride: a.DKStride, Delta: a.Delta, Sums: a.Sums})
	} else {
		op.Do(l.dev, l.s, a)
	}
	l.sinkGrad(l.lse, 0, d.heads)
}

// sinkGrad accumulates the gradients of the attention sinks of heads first to first+heads−1. It
// runs after the heads' attention backward, which has written l.delta (for each row the sum of
// output times output gradient). lse is the heads' log-sum-exp.
func (l *launch) sinkGrad(lse device.Tensor, first, heads int) {
	sum, ok := l.g[model.RoleSinks]
	if !ok {
		return
	}
	part := func(t device.Tensor) device.Tensor { return t.Slice(int64(first), int64(heads)) }
	op.Do(l.dev, l.s, op.SinksGrad{DSinks: part(sum), LSE: lse, Delta: l.delta, Sinks: part(l.w[model.RoleSinks]),
		T: l.mb.Tokens, Heads: heads})
}

// projectBackward computes the gradient of the block's input from l.dqkv for the tokens of chunk c and adds it to l.y.
func (l *launch) projectBackward(c span) {
	d, s := l.dims, l.s
	dqkv := l.dqkv.of(c)
	l.shareKVGrad(dqkv, c)
	if d.rotatesFirst {
		dqkv = l.normHeadsBackward(dqkv, c)
	}
	if !d.recurrent {
		l.rope(dqkv, c, true)
		l.scaleValues(dqkv, c)
	}
	if d.qkNorm && !d.rotatesFirst {
		dqkv = l.normHeadsBackward(dqkv, c)
	}
	in := l.input(model.RoleAttnNorm, l.x, l.rstd, c)
	if d.mla != nil || d.recurrent {
		if d.recurrent {
			d.recurrence.projectBackward(l, c)
		} else {
			l.projectMLABackward(dqkv, c)
		}
		l.normBackward(model.RoleAttnNorm, l.normed.y, l.x.of(c), c)
		return
	}
	l.weightGrad(s, l.g[model.RoleQKV], dqkv, in, c.n, d.raw, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleQKVBias, dqkv, c.n, d.raw)
	l.inputBackward(model.RoleQKV, model.RoleAttnNorm, dqkv, l.x, d.raw, c)
}

// normHeadsBackward returns the gradient of the qkv projection's output for chunk c. dqkv has the gradients of q and k
// after their norms, and of v. The result overwrites dqkv, except if keys also serve as values: then it is in l.draw,
// because a key sums the gradients of two norms.
func (l *launch) normHeadsBackward(dqkv device.Tensor, c span) device.Tensor {
	d, raw, dx := l.dims, l.qkv.of(c), dqkv
	if d.raw < d.qkv {
		dx = l.draw.of(c)
	}
	a := op.RMSNormBackward{DX: dx, DY: dqkv, X: raw, DW: l.g[model.RoleQNorm], W: l.headNorm(model.RoleQNorm),
		RStd: l.rstdQ.of(c), Rows: c.n, Groups: d.qGroups, Dim: d.q / d.qGroups, DXStride: d.raw, DYStride: d.qkv, XStride: d.raw,
		Offset: l.headOffset()}
	op.Do(l.dev, l.s, a)
	if d.shared {
		return dx
	}
	a.DX, a.DY, a.X = from(dx, d.q), from(dqkv, d.q), from(raw, d.q)
	a.DW, a.W, a.RStd = l.g[model.RoleKNorm], l.headNorm(model.RoleKNorm), l.rstdK.of(c)
	a.Groups, a.Dim = d.kGroups, d.kv/d.kGroups
	op.Do(l.dev, l.s, a)
	if d.normsV {
		a.DX, a.DY, a.X = from(dx, d.rawV()), from(dqkv, d.q+d.kv), from(raw, d.rawV())
		a.DW, a.W, a.RStd = device.Tensor{}, l.headOnes(), l.rstdV.of(c)
		a.Groups, a.Dim, a.Offset, a.Add = d.kvHeads, d.headDim, 0, d.raw < d.qkv
		op.Do(l.dev, l.s, a)
	}
	return dx
}
