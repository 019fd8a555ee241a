package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// BlockBackward turns the gradient of a block's output into the gradient of its input, in place, and accumulates the
// parameters' gradients.
//
//	dxdy (T, h) act: dy before, dx after; x (T, h) act: the block's input
//	g: overwritten if first is set, else accumulated
//	saved: written by BlockForward of the same micro-batch; undefined afterwards (gate/up
//	turn into their gradient, for example), so one forward serves one backward
//
// The backward recomputes what Spec.Keep does not keep, by the same operations on the same chunks, so the bits do not
// depend on Keep. If outputs are normed, the products before those norms are computed again on every level: a norm's
// backward reads its input.
func (t *Templates) BlockBackward(s device.Stream, block int, w Weights, g Grads, dxdy, x Hidden, mb MicroBatch, saved, ws device.Mem, first bool) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, withMLP, block, w, mb, saved, ws, true)
	l.startBackward(g, dxdy, x, first)
	for c := range l.chunks() {
		fetch(s, c, l.x, l.y)
		l.link.getO(l, c)
		l.scaleLayer(c)
		if l.dims.parallel { // attention's output has the gradient of y, to which the MLP's backward adds
			l.outBackward(c)
			l.mlpBackward(c)
		} else {
			l.mlpBackward(c)
			if l.dims.normOut && l.keep >= KeepAll {
				l.attentionOut(l.a, c)
			}
			l.outBackward(c)
		}
		l.link.putDO(l, c)
		store(s, c, l.y)
	}
	l.attentionBackward()
}

// vectors lists the roles whose gradients are only ever accumulated, so the backward zeroes them first. They are norms,
// biases, sinks and the recurrence's parameters other than matrices. The order is fixed.
var vectors = [...]model.Role{model.RoleAttnNorm, model.RoleAttnNormBias, model.RoleQKVBias, model.RoleQNorm, model.RoleKNorm,
	model.RoleQABias, model.RoleQANorm, model.RoleKVABias, model.RoleKVANorm, model.RoleOBias,
	model.RoleRecurInBias, model.RoleRecurTaps, model.RoleRecurTapsBias, model.RoleRecurOutBias, model.RoleRecurDecay, model.RoleRecurDtBias, model.RoleRecurSkip, model.RoleRecurNorm,
	model.RolePostAttnNorm, model.RoleMLPNorm, model.RoleMLPNormBias, model.RoleGateUpBias, model.RoleUpBias, model.RoleDownBias,
	model.RolePostMLPNorm, model.RoleFinalNorm, model.RoleFinalNormBias, model.RoleLMHeadBias,
	model.RoleRouterNorm, model.RoleExpertScales, model.RoleExpertNorm, model.RolePostDenseNorm, model.RolePostExpertNorm,
	model.RoleSinks, model.RoleXIELU, model.RolePerLayerPostNorm, model.RolePerLayerNorm,
	model.RoleAheadEmbedNorm, model.RoleAheadHiddenNorm, model.RoleAheadNorm, model.RoleRouterBias, model.RoleExpertGateUpBias, model.RoleExpertDownBias}

// zeroVectors clears the gradients in g whose roles are in vectors. Matrices need no clearing: the first product
// overwrites their gradient.
func zeroVectors(s device.Stream, g Grads) {
	for _, r := range vectors {
		if dv, ok := g[r]; ok {
			s.Zero(dv.Mem())
		}
	}
}

// weightGrad computes dW (out, in) += dYᵀ·X over n tokens; with overwrite it computes dW = dYᵀ·X.
//
//	dy (n, out), x (n, in) act; dw (out, in) f32
func (t *Templates) weightGrad(s device.Stream, dw, dy, x device.Tensor, n, out, in int, overwrite bool) {
	if dw.None() {
		return // frozen
	}
	c := dw
	if overwrite {
		c = device.Tensor{}
	}
	op.Do(t.dev, s, op.MatMul{M: out, N: in, K: n, TransA: true, A: dy, B: x, C: c, D: dw})
}

// inputGrad computes dx (n, in) = dy (n, out) · W for W (out, in).
func (t *Templates) inputGrad(s device.Stream, dx, dy, w device.Tensor, n, out, in int) {
	op.Do(t.dev, s, op.MatMul{M: n, N: in, K: out, A: dy, B: w, D: dx})
}

// biasGrad accumulates the gradient of the bias with role r: the sum of dy (n, width) over its n rows. Without such a
// bias it does nothing.
func (l *launch) biasGrad(r model.Role, dy device.Tensor, n, width int) {
	l.addBiasGrad(l.s, l.g, r, dy, n, width)
}

func (t *Templates) addBiasGrad(s device.Stream, g Grads, r model.Role, dy device.Tensor, n, width int) {
	if db, ok := g[r]; ok {
		op.Do(t.dev, s, op.AddBiasGrad{DB: db, DY: dy, T: n, N: width})
	}
}

// overwrites says whether chunk c is the first to contribute to the gradients of this visit. A matrix product then
// overwrites the gradient instead of adding.
func (l *launch) overwrites(c span) bool { return l.first && c.at == 0 }

// mlpBackward is the backward of the MLP for the tokens of chunk c. Buffer l.y holds dy, the
// gradient of the block's output, and receives the gradient of the residual stream before the MLP.
// In a parallel block it adds the MLP's gradient with respect to the block's input x to dy.
func (l *launch) mlpBackward(c span) {
	d, s := l.dims, l.s
	if l.keep < KeepAll && !d.parallel {
		l.residual(l.x2, l.a, c)
	}
	src, r := l.mlpInput(l.x2)
	in := l.input(r, src, l.rstd, c)
	if l.keep < KeepAll {
		l.gateUp(in, c)
	}
	act, gu, dy := l.act.of(c), l.gu.of(c), l.y.of(c)
	active := d.normOut || !l.act.chunk // whether act holds the activation before its gradient replaces it
	if d.normOut {
		if l.act.chunk {
			l.activate(c)
		}
		l.down(l.out, device.Tensor{}, c)
		l.perLayerBackward(c)
		dy = l.outNormBackward(model.RolePostMLPNorm, l.out.of(c), c)
	}
	l.biasGrad(model.RoleDownBias, dy, c.n, d.hidden)
	downGrad := func() {
		l.weightGrad(s, l.g[model.RoleDown], dy, act, c.n, d.hidden, d.ffn, l.overwrites(c))
	}
	if active {
		downGrad()
	}
	l.inputGrad(s, act, dy, l.w[model.RoleDown], c.n, d.hidden, d.ffn)
	l.activateBackward(c, !active)
	// From here on gu holds the gradient of gate and up. If act did not hold the activation before, it does now.
	if !active {
		downGrad()
	}
	up, bias := l.upRoles()
	l.weightGrad(s, l.g[up], gu, in, c.n, d.up, d.hidden, l.overwrites(c))
	l.biasGrad(bias, gu, c.n, d.up)
	l.inputBackward(up, r, gu, src, d.up, c)
}

// inputBackward is the backward of a projection input(x)·Wᵀ with respect to x, whose gradient it
// adds to l.y. Tensor dy (n, out) is the gradient of the projection's output. w is the role of the
// matrix W, and r the role of the input norm's weight.
func (l *launch) inputBackward(w, r model.Role, dy device.Tensor, x rows, out int, c span) {
	if y, h := l.y.of(c), l.dims.hidden; !l.dims.normIn {
		op.Do(l.dev, l.s, op.MatMul{M: c.n, N: h, K: out, A: dy, B: l.w[w], C: y, D: y})
		return
	}
	l.inputGrad(l.s, l.n.of(c), dy, l.w[w], c.n, out, l.dims.hidden)
	l.normBackward(r, l.n, x.of(c), c)
}

// outNormBackward is the backward of a norm on the output of attention or the MLP, for chunk c. r is the role of the
// norm's weight and x (n, h) the output before the norm. l.y holds the gradient after the norm. The gradient of x is
// written to l.dout and returned. The norm runs again, because its statistics are not kept.
func (l *launch) outNormBackward(r model.Role, x device.Tensor, c span) device.Tensor {
	dx, rstd := l.dout.of(c), l.rstdOut.of(c)
	op.Do(l.dev, l.s, l.outNorm(dx, rstd, x, l.w[r], c.n))
	op.Do(l.dev, l.s, l.rmsNormBackward(dx, l.g[r], l.y.of(c), x, l.w[r], rstd, c.n))
	return dx
}

// normBackward adds to l.y the gradient of x for chunk c. dy holds the gradient of norm(x), the last result of input,
// and r is the role of the norm's weight.
func (l *launch) normBackward(r model.Role, dy rows, x device.Tensor, c span) {
	l.backThroughNorm(l.s, l.w, l.g, r, l.y.of(c), dy.of(c), x, l.normed.rstd.of(c), c.n, true)
}

// backThroughNorm is the backward of Templates.norm over n rows: it writes dx (n, h), the gradient of x, from dy, the
// gradient of norm(x). With adds the gradient is added to dx; otherwise it overwrites dx, which may be dy.
func (t *Templates) backThroughNorm(s device.Stream, w Weights, g Grads, r model.Role, dx, dy, x, rstd device.Tensor, n int, adds bool) {
	if t.spec.Config.LayerNorm {
		t.addBiasGrad(s, g, normBias[r], dy, n, t.dims.hidden)
		op.Do(t.dev, s, op.LayerNormBackward{DX: dx, DW: g[r], DY: dy, X: x, W: w[r], Stats: rstd, Rows: n, Dim: t.dims.hidden, Add: adds})
		return
	}
	a := t.rmsNormBackward(dx, g[r], dy, x, w[r], rstd, n)
	a.Add = adds
	a.Offset = t.normOffset(r)
	op.Do(t.dev, s, a)
}

// rmsNormBackward returns the operation that computes the backward of rmsNorm over n rows: dx (n, h), the gradient of
// x, from dy. dw accumulates the gradient of the weight w.
func (t *Templates) rmsNormBackward(dx, dw, dy, x, w, rstd device.Tensor, n int) op.RMSNormBackward {
	h := t.dims.hidden
	return op.RMSNormBackward{DX: dx, DW: dw, DY: dy, X: x, W: w, RStd: rstd, Rows: n, Groups: 1, Dim: h,
		DXStride: h, DYStride: h, XStride: h, Offset: t.spec.Config.NormOffset}
}
