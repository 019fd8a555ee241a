package layers

import (
	"cmp"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// BlockForward overwrites y with the output of decoder block number block.
//
//	x, y (T, h) act, not overlapping
//	saved: the Block kind's SavedBytes of T bytes that BlockBackward reads; the zero Mem
//	keeps nothing, as in an evaluation
//
// It is x2 = x + attention(norm(x)), y = x2 + mlp(norm(x2)) or, with
// Config.SandwichNorms, x2 = x + norm(attention(norm(x))) and y = x2 +
// norm(mlp(norm(x2))) or, with Config.OutputNorms, x2 = x + norm(attention(x)) and
// y = x2 + norm(mlp(x2)). Source: arXiv:2302.13971 (Llama); with q/k norm
// arXiv:2505.09388 (Qwen3); with four norms arXiv:2503.19786 (Gemma 3); with norms of
// outputs alone arXiv:2501.00656 (OLMo 2).
func (t *Templates) BlockForward(s device.Stream, block int, w Weights, y, x Hidden, mb MicroBatch, saved, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, withMLP, block, w, mb, saved, ws, false)
	l.between(x, y)
	l.attention()
	for c := range l.chunks() {
		fetch(s, c, l.x)
		l.getO(c)
		l.mlp(c)
		store(s, c, l.y)
	}
}

// launch is one micro-batch going through one visit to a block, or to the attention of one:
// what the functions that enqueue it share.
type launch struct {
	*Templates
	buffers
	s     device.Stream
	block int
	w     Weights
	g     Grads // backward only
	mb    MicroBatch
	keep  Keep
	far   scratch // what waits on the host, with Spec.OnHost
	x, y  rows    // input; output, or in the backward the gradient in place
	// first: the gradients of the parameters are overwritten, not added to.
	first bool
}

func (t *Templates) newLaunch(s device.Stream, mlp bool, block int, w Weights, mb MicroBatch, saved, ws device.Mem, backward bool) *launch {
	keep := t.spec.Keep.Of(block)
	if saved.Bytes == 0 {
		keep = KeepNothing
	}
	l := &launch{Templates: t, s: s, block: block, w: w, mb: mb, keep: keep}
	l.buffers = t.spec.blockBuffers(t.dims, mlp, keep, mb.Tokens, backward, &allotter{mem: saved}, &allotter{mem: ws})
	if t.spec.OnHost {
		l.far = t.spec.scratch(t.dims, mb.Tokens, backward, t.spec.Scratch)
	}
	return l
}

// between sets the input, and the output or the gradient.
func (l *launch) between(x, y Hidden) {
	l.x, l.y = l.hidden(x, l.group.in), l.hidden(y, l.group.io)
}

func (l *launch) chunks() func(func(span) bool) {
	return spans(l.mb.Tokens, chunkOf(l.spec.ChunkTokens, l.mb.Tokens))
}

// linear is D (n, out) = A (n, in) · Wᵀ [+ C] [+ bias] for W (out, in).
func (t *Templates) linear(s device.Stream, d, a, w, c, bias device.Tensor, n, in, out int) {
	op.Do(t.dev, s, op.MatMul{M: n, N: out, K: in, TransB: true, A: a, B: w, C: c, D: d, Bias: bias})
}

// input is what attention or the MLP reads of a chunk: norm(x), which n then holds, with the
// weight of role r, or x itself where inputs are not normed. rstd (n) f32 or none receives the
// norm's scale.
func (l *launch) input(r model.Role, x rows, rstd device.Tensor, c span) device.Tensor {
	if !l.dims.normIn {
		return x.of(c)
	}
	n := l.n.of(c)
	l.norm(l.s, n, rstd, x.of(c), l.w[r], c.n)
	return n
}

// residualUnit is what hidden states are measured in. Where outputs are multiplied by r before they
// are added (Config.ResidualScale), x + r·f(norm(x)) is r·(z + f(norm(x))) of z = x/r: hidden states
// are these z, so that adding stays part of a product. The embedding is divided by r, and a norm of z is
// that of x where its epsilon is divided by r².
func (t *Templates) residualUnit() float64 { return cmp.Or(t.spec.Config.ResidualScale, 1) }

// norm is y (n, h) = RMSNorm of x, a hidden state; rstd (n) f32 or none.
func (t *Templates) norm(s device.Stream, y, rstd, x, w device.Tensor, n int) {
	a := t.rmsNorm(y, rstd, x, w, n)
	r := t.residualUnit()
	a.Eps = float32(float64(a.Eps) / (r * r))
	op.Do(t.dev, s, a)
}

func (t *Templates) rmsNorm(y, rstd, x, w device.Tensor, n int) op.RMSNorm {
	h := t.dims.hidden
	return op.RMSNorm{Y: y, RStd: rstd, X: x, W: w, Rows: n, Groups: 1, Dim: h, XStride: h, YStride: h,
		Eps: t.spec.Config.RMSNormEps, Offset: t.spec.Config.NormOffset}
}

// mlp writes y of a chunk from attention's output. Where the MLP's residual input is not
// kept it lies in y itself, which the output then overwrites.
func (l *launch) mlp(c span) {
	x2 := l.y
	if !l.x2.t.None() {
		x2 = l.x2
	}
	l.residual(x2, l.n, c)
	l.gateUp(l.input(model.RoleMLPNorm, x2, device.Tensor{}, c), c)
	l.glu(l.s, l.act.of(c), l.gu.of(c), c.n, l.dims.ffn)
	if !l.dims.normOut {
		l.down(l.y, x2.of(c), c)
		return
	}
	l.down(l.n, device.Tensor{}, c)
	l.addNormed(l.s, l.y.of(c), x2.of(c), l.n.of(c), l.w[model.RolePostMLPNorm], c.n)
}

// gateUp writes gu of a chunk from the MLP's input.
func (l *launch) gateUp(in device.Tensor, c span) {
	l.linear(l.s, l.gu.of(c), in, l.w[model.RoleGateUp], device.Tensor{}, l.w[model.RoleGateUpBias], c.n,
		l.dims.hidden, 2*l.dims.ffn)
}

// down writes y = act·Wdownᵀ [+ residual] + bias of a chunk.
func (l *launch) down(y rows, residual device.Tensor, c span) {
	l.linear(l.s, y.of(c), l.act.of(c), l.w[model.RoleDown], residual, l.w[model.RoleDownBias], c.n, l.dims.ffn, l.dims.hidden)
}

// activation is the function that is applied to the gate, and how it and the up are cut off, if they are.
func (t *Templates) activation() (op.Activation, op.Cut) {
	c := t.spec.Config
	switch {
	case c.Cut != nil:
		return op.CutSiLU, op.Cut{Alpha: float32(c.Cut.Alpha), Limit: float32(c.Cut.Limit)}
	case c.Activation == model.GELUTanh:
		return op.GELUTanh, op.Cut{}
	}
	return op.SiLU, op.Cut{}
}

// glu is y (n, f) = f(gate)·up for gu (n, 2·f).
func (t *Templates) glu(s device.Stream, y, gu device.Tensor, n, f int) {
	of, cut := t.activation()
	op.Do(t.dev, s, op.GLU{Activation: of, Cut: cut, Y: y, GU: gu, T: n, F: f})
}

// gluBackward turns gu, in place, into its gradient; y, unless none, becomes f(gate)·up again, and may be dy.
func (t *Templates) gluBackward(s device.Stream, gu, y, dy device.Tensor, n, f int) {
	of, cut := t.activation()
	op.Do(t.dev, s, op.GLUBackward{Activation: of, Cut: cut, DGU: gu, Y: y, DY: dy, GU: gu, T: n, F: f})
}
