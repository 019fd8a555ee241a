package layers

import (
	"mt/device"
	"mt/model"
)

// BlockBackward turns the gradient of a block's output into that of its input,
// in place, and adds up the parameters' gradients.
//
//	dxdy (T, h) act: dy before, dx after; x (T, h) act: the block's input
//	g: overwritten where first is set, else accumulated
//	saved: as BlockForward of the same micro-batch left it; used up (KeepAll's
//	gate/up turn into their gradient), so one forward serves one backward
//
// What Spec.Keep does not keep is computed again by the same operations on the
// same chunks: the bits do not depend on Keep.
func (t *Templates) BlockBackward(s device.Stream, w Weights, g Grads, dxdy, x device.Tensor, mb MicroBatch, saved, ws device.Mem, first bool) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, w, mb, saved, ws, true)
	l.g, l.first = g, first
	l.x, l.y = whole(x, t.dims.hidden), whole(dxdy, t.dims.hidden)
	if first {
		zeroVectors(s, g)
	}
	l.recompute()
	for c := range l.chunks() {
		l.mlpBackward(c)
	}
	l.attendBackward()
	for c := range l.chunks() {
		l.projectBackward(c)
	}
}

// vectors are the roles whose gradients are sums that only accumulate: norms
// and biases, in a fixed order.
var vectors = [...]model.Role{model.RoleAttnNorm, model.RoleQKVBias, model.RoleQNorm, model.RoleKNorm, model.RoleOBias,
	model.RoleMLPNorm, model.RoleGateUpBias, model.RoleDownBias, model.RoleFinalNorm}

// zeroVectors clears the gradients of vectors that g has. Those of matrices are
// overwritten by their first product.
func zeroVectors(s device.Stream, g Grads) {
	for _, r := range vectors {
		if dv, ok := g[r]; ok {
			s.Zero(dv.Mem())
		}
	}
}

// recompute writes what attention's backward reads and was not kept. q/k norm
// and its rotation are repeated always: they cost less than their space.
func (l *launch) recompute() {
	project := l.keep < KeepQKV
	if project || l.dims.qkNorm {
		for c := range l.chunks() {
			if project {
				l.project(c)
			}
			l.rotate(c)
		}
	}
	if l.keep < KeepAttention {
		l.attend()
	}
}

// weightGrad is dW (out, in) += dYᵀ·X over a span of tokens, dW = … where
// overwrite is set.
//
//	dy (n, out), x (n, in) act; dw (out, in) f32
func (t *Templates) weightGrad(s device.Stream, dw, dy, x device.Tensor, n, out, in int, overwrite bool) {
	c := dw
	if overwrite {
		c = device.Tensor{}
	}
	t.ops.MatMul(s, device.MatMul{M: out, N: in, K: n, TransA: true, A: dy, B: x, C: c, D: dw})
}

// inputGrad is dx (n, in) = dy (n, out) · W for W (out, in).
func (t *Templates) inputGrad(s device.Stream, dx, dy, w device.Tensor, n, out, in int) {
	t.ops.MatMul(s, device.MatMul{M: n, N: in, K: out, A: dy, B: w, D: dx})
}

// biasGrad accumulates db (N) where the model has that bias.
func (l *launch) biasGrad(r model.Role, dy device.Tensor, n, width int) {
	if db, ok := l.g[r]; ok {
		l.ops.AddBiasGrad(l.s, db, dy, n, width)
	}
}

// overwrites says whether chunk c is the first that adds to a matrix.
func (l *launch) overwrites(c span) bool { return l.first && c.at == 0 }

// mlpBackward takes a chunk from dy to the gradient of the MLP's residual input,
// in y, and of attention's output, in do.
func (l *launch) mlpBackward(c span) {
	d, s := l.dims, l.s
	if l.keep < KeepAll {
		l.residual(l.x2, c)
	}
	l.norm(s, l.n.of(c), l.rstd.of(c), l.x2.of(c), l.w[model.RoleMLPNorm], c.n)
	if l.keep < KeepAll {
		l.gateUp(c)
	}
	dy, act, gu := l.y.of(c), l.act.of(c), l.gu.of(c)
	l.biasGrad(model.RoleDownBias, dy, c.n, d.hidden)
	l.inputGrad(s, act, dy, l.w[model.RoleDown], c.n, d.hidden, d.ffn)
	l.ops.SwiGLUBackward(s, gu, act, act, gu, c.n, d.ffn)
	// From here on act is silu(gate)·up again and gu its gradient.
	l.weightGrad(s, l.g[model.RoleDown], dy, act, c.n, d.hidden, d.ffn, l.overwrites(c))
	l.weightGrad(s, l.g[model.RoleGateUp], gu, l.n.of(c), c.n, 2*d.ffn, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleGateUpBias, gu, c.n, 2*d.ffn)
	l.inputGrad(s, l.n.of(c), gu, l.w[model.RoleGateUp], c.n, 2*d.ffn, d.hidden)
	l.normBackward(model.RoleMLPNorm, l.x2.of(c), c)
	// dy is now the gradient of x2.
	l.inputGrad(s, l.do.of(c), dy, l.w[model.RoleO], c.n, d.hidden, d.q)
	l.weightGrad(s, l.g[model.RoleO], dy, l.o.of(c), c.n, d.hidden, d.q, l.overwrites(c))
	l.biasGrad(model.RoleOBias, dy, c.n, d.hidden)
}

// normBackward adds to y the gradient that n, the gradient of norm(x), passes on
// to x.
func (l *launch) normBackward(r model.Role, x device.Tensor, c span) {
	h := l.dims.hidden
	l.ops.RMSNormBackward(l.s, device.RMSNormBackward{DX: l.y.of(c), DW: l.g[r], DY: l.n.of(c), X: x, W: l.w[r],
		RStd: l.rstd.of(c), Rows: c.n, Groups: 1, Dim: h, DXStride: h, DYStride: h, XStride: h, Add: true})
}

// attendBackward writes dqkv, of q and k as attention saw them.
func (l *launch) attendBackward() {
	d := l.dims
	q, k, v := l.heads()
	dq := l.dqkv.t
	l.ops.AttentionBackward(l.s, device.AttentionBackward{AttentionShape: l.shape(),
		DQ: dq, DK: from(dq, d.q), DV: from(dq, d.q+d.kv), DO: l.do.t, O: l.o.t, LSE: l.lse, Q: q, K: k, V: v,
		QStride: d.qkv, KStride: d.qkv, DQStride: d.qkv, DKStride: d.qkv, Delta: l.delta})
}

// projectBackward takes a chunk from dqkv to the gradient of the block's input.
func (l *launch) projectBackward(c span) {
	d, s := l.dims, l.s
	dqkv, n := l.dqkv.of(c), l.n.of(c)
	l.rope(s, dqkv, l.mb.Pos.Slice(int64(c.at), int64(c.n)), c.n, true)
	if d.qkNorm {
		l.normQKBackward(dqkv, c)
	}
	l.norm(s, n, l.rstd.of(c), l.x.of(c), l.w[model.RoleAttnNorm], c.n)
	l.weightGrad(s, l.g[model.RoleQKV], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleQKVBias, dqkv, c.n, d.qkv)
	l.inputGrad(s, n, dqkv, l.w[model.RoleQKV], c.n, d.qkv, d.hidden)
	l.normBackward(model.RoleAttnNorm, l.x.of(c), c)
}

// normQKBackward takes the gradients of normed q and k, in place, to those of
// the product.
func (l *launch) normQKBackward(dqkv device.Tensor, c span) {
	d, raw := l.dims, l.qkv.of(c)
	a := device.RMSNormBackward{DX: dqkv, DY: dqkv, X: raw, DW: l.g[model.RoleQNorm], W: l.w[model.RoleQNorm],
		RStd: l.rstdQ.of(c), Rows: c.n, Groups: d.heads, Dim: d.headDim, DXStride: d.qkv, DYStride: d.qkv, XStride: d.qkv}
	l.ops.RMSNormBackward(l.s, a)
	a.DX, a.DY, a.X = from(dqkv, d.q), from(dqkv, d.q), from(raw, d.q)
	a.DW, a.W, a.RStd, a.Groups = l.g[model.RoleKNorm], l.w[model.RoleKNorm], l.rstdK.of(c), d.kvHeads
	l.ops.RMSNormBackward(l.s, a)
}
