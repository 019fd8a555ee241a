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
//	saved: SavedBytes of the Block kind for T tokens, which BlockBackward reads; the zero Mem
//	keeps nothing, as in an evaluation
//
// The block computes one of these:
//
//	x2 = x + attention(norm(x)),        y = x2 + mlp(norm(x2))
//	x2 = x + norm(attention(norm(x))),  y = x2 + norm(mlp(norm(x2)))  with Config.SandwichNorms
//	x2 = x + norm(attention(x)),        y = x2 + norm(mlp(x2))        with Config.OutputNorms
//	y = x + attention(norm(x)) + mlp(norm(x))                         with Config.Parallel; the norms may be two
//
// Source: arXiv:2302.13971 (Llama); q/k norm arXiv:2505.09388 (Qwen3); four norms arXiv:2503.19786 (Gemma 3); norms of
// outputs only arXiv:2501.00656 (OLMo 2); parallel arXiv:2204.06745 (GPT-NeoX).
func (t *Templates) BlockForward(s device.Stream, block int, w Weights, y, x Hidden, mb MicroBatch, saved, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	l := t.newLaunch(s, withMLP, block, w, mb, saved, ws, false)
	l.between(x, y)
	l.passOn()
	l.attention()
	for c := range l.chunks() {
		fetch(s, c, l.x)
		l.link.getO(l, c)
		l.mlp(c)
		store(s, c, l.y)
	}
}

// launch is the state that the steps of one launch share. A launch runs one micro-batch through a
// decoder block, or through the attention of a block with experts.
type launch struct {
	*Templates
	buffers
	s     device.Stream
	block int
	dims  dims // the block's
	w     Weights
	g     Grads // backward only
	mb    MicroBatch
	keep  Keep
	link  hiddenLink
	far   scratch // what is in host memory with Spec.OnHost
	// normed has the last result of input if that is normed: kept rows, or n and rstd.
	normed normedRows
	side   *launch // of the mixer beside attention; nil: none
	x, y   rows    // input; output, or in the backward the gradient in place
	// first: this is the first micro-batch of the visit, so the parameters' gradients are
	// overwritten instead of accumulated.
	first bool
	// passengers of the input, and of the output or its gradient, behind the (T, h) rows (passengers.go)
	passX, passY device.Tensor
}

func (t *Templates) newLaunch(s device.Stream, mlp bool, block int, w Weights, mb MicroBatch, saved, ws device.Mem, backward bool) *launch {
	keep := t.spec.keptIn(block, saved)
	l := &launch{Templates: t, s: s, block: block, dims: t.spec.dims(block), w: w, mb: mb, keep: keep}
	l.buffers = t.spec.blockBuffers(l.dims, mlp, keep, mb.Tokens, backward, &allotter{mem: saved}, &allotter{mem: ws})
	if l.link = (nearLink{}); l.dims.groups {
		l.link, l.far = farLink{}, t.spec.scratch(l.dims, mb.Tokens, backward, t.spec.Scratch)
		l.gate.z.host, l.gate.dz.host = l.far.gate, l.far.gate
	}
	l.takeSide()
	return l
}

// keptIn returns the level of a block whose launch has this memory for what it keeps; without memory it keeps nothing.
func (s Spec) keptIn(block int, saved device.Mem) Keep {
	if saved.Bytes == 0 {
		return KeepNothing
	}
	return s.Keep.Of(block)
}

// between sets l.x, the rows of the launch's input x, and l.y, the rows of y. In the forward y is
// the output, in the backward the gradient.
func (l *launch) between(x, y Hidden) {
	l.x, l.y = l.hidden(x, l.in), l.hidden(y, l.io)
	l.passX, l.passY = l.passengersOf(l.mb, x.Dev), l.passengersOf(l.mb, y.Dev)
	if l.side != nil {
		l.side.x, l.side.y = l.x, l.y
	}
}

func (l *launch) chunks() func(func(span) bool) {
	return spans(l.mb.Tokens, chunkOf(l.spec.ChunkTokens, l.mb.Tokens))
}

// linear computes D (n, out) = A (n, in) · Wᵀ [+ C] [+ bias] for W (out, in).
func (t *Templates) linear(s device.Stream, d, a, w, c, bias device.Tensor, n, in, out int) {
	op.Do(t.dev, s, op.MatMul{M: n, N: out, K: in, TransB: true, A: a, B: w, C: c, D: d, Bias: bias})
}

// input returns the input of attention or of the MLP for the tokens of chunk c: norm(x), or x itself if the model does
// not norm inputs. r is the role of the norm's weight. The forward gives no rstd and writes to kept rows, if the block has
// them. The backward gives rstd, memory for the norm's statistics, and does not compute a kept norm again. l.normed says
// where the result and its statistics are.
func (l *launch) input(r model.Role, x, rstd rows, c span) device.Tensor {
	if !l.dims.normIn {
		return x.of(c)
	}
	kept := l.attnIn
	if r == model.RoleMLPNorm {
		kept = l.mlpIn
	}
	if l.normed = kept; kept.y.t.None() {
		l.normed = normedRows{l.n, rstd}
	} else if !rstd.t.None() {
		return kept.y.of(c)
	}
	l.norm(l.s, l.normed.y.of(c), l.normed.rstd.of(c), x.of(c), l.w, r, c.n)
	return l.normed.y.of(c)
}

// residualUnit returns r = Config.ResidualScale, the unit of hidden states. They are stored as z = x/r, because x +
// r·f(norm(x)) equals r·(z + f(norm(x))), and the addition stays part of a matrix product. The embedding is divided by
// r. A norm of z equals the norm of x if its epsilon is divided by r².
func (t *Templates) residualUnit() float64 { return cmp.Or(t.spec.Config.ResidualScale, 1) }

// norm writes y (n, h) = norm(x) for n rows of a hidden state x. r is the role of the norm's weight. If rstd (n,
// dims.stats) f32 is not none, it receives the norm's statistics for the backward.
func (t *Templates) norm(s device.Stream, y, rstd, x device.Tensor, w Weights, r model.Role, n int) {
	unit := t.residualUnit()
	eps := float32(float64(t.spec.Config.RMSNormEps) / (unit * unit))
	if t.spec.Config.LayerNorm {
		op.Do(t.dev, s, op.LayerNorm{Y: y, Stats: rstd, X: x, W: w[r], B: w[normBias[r]], Rows: n, Dim: t.dims.hidden, Eps: eps})
		return
	}
	a := t.rmsNorm(y, rstd, x, w[r], n)
	a.Eps, a.Offset = eps, t.normOffset(r)
	op.Do(t.dev, s, a)
}

// normOffset returns the number that is added to the weight of the norm with role r.
func (t *Templates) normOffset(r model.Role) float32 {
	if c := t.spec.Config; !c.FinalNormPlain || r != model.RoleFinalNorm {
		return c.NormOffset
	}
	return 0
}

// outNorm is rmsNorm for an output of attention or of the MLP.
func (t *Templates) outNorm(y, rstd, x, w device.Tensor, n int) op.RMSNorm {
	a := t.rmsNorm(y, rstd, x, w, n)
	a.Eps = cmp.Or(t.spec.Config.OutputNormEps, a.Eps)
	return a
}

// normBias maps the role of a norm's weight to the role of the norm's bias.
var normBias = map[model.Role]model.Role{model.RoleAttnNorm: model.RoleAttnNormBias, model.RoleMLPNorm: model.RoleMLPNormBias,
	model.RoleFinalNorm: model.RoleFinalNormBias}

func (t *Templates) rmsNorm(y, rstd, x, w device.Tensor, n int) op.RMSNorm {
	h := t.dims.hidden
	return op.RMSNorm{Y: y, RStd: rstd, X: x, W: w, Rows: n, Groups: 1, Dim: h, XStride: h, YStride: h,
		Eps: t.spec.Config.RMSNormEps, Offset: t.spec.Config.NormOffset}
}

// mlp writes l.y, the block's output, for the tokens of chunk c from attention's output. Without memory for x2, the
// residual stream after attention, l.y holds x2 until the output overwrites it.
func (l *launch) mlp(c span) {
	x2 := l.y
	if !l.x2.t.None() {
		x2 = l.x2
	}
	l.residual(x2, l.n, c)
	l.mlpOf(x2, c)
}

// mlpOf writes l.y for the tokens of chunk c: x2 plus the MLP's output.
func (l *launch) mlpOf(x2 rows, c span) {
	in, r := l.mlpInput(x2)
	l.gateUp(l.input(r, in, rows{}, c), c)
	l.activate(c)
	if !l.dims.normOut {
		l.down(l.y, x2.of(c), c)
	} else {
		l.down(l.n, device.Tensor{}, c)
		l.addNormed(l.s, l.y.of(c), x2.of(c), l.n.of(c), l.w[model.RolePostMLPNorm], c.n)
	}
	l.addPerLayer(c)
	l.scaleLayer(c)
}

// scaleLayer multiplies l.y, the block's output or its gradient, by the layer's scalar for the tokens of chunk c.
// Layers without a scalar are unchanged.
func (l *launch) scaleLayer(c span) {
	if by, scaled := l.w[model.RoleLayerScalar]; scaled {
		l.scaleBy(l.s, l.y.of(c), by, l.zeros.of(c), c.n)
	}
}

// scaleBy multiplies x (n, h) by a scalar parameter, the only element of the tensor by. Scratch
// memory zeros (n) i32 holds the indices with which all rows select that element.
func (t *Templates) scaleBy(s device.Stream, x, by, zeros device.Tensor, n int) {
	s.Zero(zeros.Mem())
	op.Do(t.dev, s, op.ScaleRows{X: x, W: by, Index: zeros, T: n, C: t.dims.hidden, P: 1})
}

// mlpInput returns the rows that the MLP reads, before their norm, and the role of that norm's weight. x2 is the
// residual stream after attention.
func (l *launch) mlpInput(x2 rows) (rows, model.Role) {
	switch c := l.spec.Config; {
	case c.SharedNorm:
		return l.x, model.RoleAttnNorm
	case l.dims.parallel:
		return l.x, model.RoleMLPNorm
	}
	return x2, model.RoleMLPNorm
}

// upRoles returns the roles of the MLP's first weight matrix (gate and up, or up alone in an MLP without a gate) and of
// its bias.
func (t *Templates) upRoles() (weight, bias model.Role) {
	if t.spec.Config.Ungated {
		return model.RoleUp, model.RoleUpBias
	}
	return model.RoleGateUp, model.RoleGateUpBias
}

// gateUp writes l.gu, the gate and up projections, for the tokens of chunk c; `in` is the MLP's input.
func (l *launch) gateUp(in device.Tensor, c span) {
	weight, bias := l.upRoles()
	l.linear(l.s, l.gu.of(c), in, l.w[weight], device.Tensor{}, l.w[bias], c.n, l.dims.hidden, l.dims.up)
	l.scaleGate(c)
}

// scaleGate multiplies the gate columns of l.gu, or of its gradient, by Config.Multipliers.Gate for the tokens of chunk
// c.
func (l *launch) scaleGate(c span) {
	if m := l.spec.Config.Multipliers; m != nil {
		l.scaleColumns(l.s, l.gu.of(c), 0, l.dims.ffn, c.n, l.dims.up, m.Gate)
	}
}

// scaleAct multiplies l.act, the input of the down projection, or its gradient, by Config.Multipliers.Down for the
// tokens of chunk c.
func (l *launch) scaleAct(c span) {
	if m := l.spec.Config.Multipliers; m != nil {
		l.scaleColumns(l.s, l.act.of(c), 0, l.dims.ffn, c.n, l.dims.ffn, m.Down)
	}
}

// activate writes l.act, the MLP's activation, for the tokens of chunk c from l.gu, its gate and up projections.
func (l *launch) activate(c span) {
	if l.spec.Config.Activation == model.XIELU {
		op.Do(l.dev, l.s, op.XIELU{Y: l.act.of(c), X: l.gu.of(c), Alpha: l.w[model.RoleXIELU], T: c.n, F: l.dims.ffn})
		return
	}
	if f, _ := l.activation(); l.spec.Config.Ungated {
		op.Do(l.dev, l.s, op.Activate{Activation: f, Y: l.act.of(c), X: l.gu.of(c), T: c.n, F: l.dims.ffn})
		return
	}
	l.glu(l.s, l.act.of(c), l.gu.of(c), c.n, l.dims.ffn)
	l.scaleAct(c)
}

// activateBackward overwrites l.gu, the gate and up projections of chunk c, with their gradient. Before the call, l.act
// holds the gradient of the MLP's activation. If again is set, it holds the activation afterwards, computed again.
func (l *launch) activateBackward(c span, again bool) {
	act, gu := l.act.of(c), l.gu.of(c)
	y := act
	if !again {
		y = device.Tensor{}
	}
	if l.spec.Config.Activation == model.XIELU {
		op.Do(l.dev, l.s, op.XIELUBackward{DX: gu, Y: act, DY: act, X: gu, Alpha: l.w[model.RoleXIELU], DAlpha: l.g[model.RoleXIELU], T: c.n, F: l.dims.ffn})
		return
	}
	if f, _ := l.activation(); l.spec.Config.Ungated {
		op.Do(l.dev, l.s, op.ActivateBackward{Activation: f, DX: gu, Y: y, DY: act, X: gu, T: c.n, F: l.dims.ffn})
		return
	}
	l.scaleAct(c)
	l.gluBackward(l.s, gu, y, act, c.n, l.dims.ffn)
	if again {
		l.scaleAct(c)
	}
	l.scaleGate(c)
}

// down writes y = act·Wdownᵀ + bias for the tokens of chunk c, plus residual unless it is none.
func (l *launch) down(y rows, residual device.Tensor, c span) {
	l.linear(l.s, y.of(c), l.act.of(c), l.w[model.RoleDown], residual, l.w[model.RoleDownBias], c.n, l.dims.ffn, l.dims.hidden)
}

// activation returns the MLP's activation function and its clamping limits. The function applies to the gate or,
// without a gate, to up. The zero Cut: no clamping.
func (t *Templates) activation() (op.Activation, op.Cut) {
	c := t.spec.Config
	if c.ClampedSwiGLU != nil {
		return op.CutSiLU, op.Cut{Alpha: float32(c.ClampedSwiGLU.Alpha), Limit: float32(c.ClampedSwiGLU.Limit)}
	}
	return [...]op.Activation{model.SiLU: op.SiLU, model.GELUTanh: op.GELUTanh, model.GELU: op.GELU, model.ReLU: op.ReLU,
		model.SquaredReLU: op.SquaredReLU}[c.Activation], op.Cut{}
}

// glu computes y (n, f) = act(gate)·up from gu (n, 2·f), gate and up side by side; act is the MLP's activation
// function.
func (t *Templates) glu(s device.Stream, y, gu device.Tensor, n, f int) {
	of, cut := t.activation()
	op.Do(t.dev, s, op.GLU{Activation: of, Cut: cut, Y: y, GU: gu, T: n, F: f})
}

// gluBackward overwrites gu (n, 2·f) with its gradient. dy (n, f) is the gradient of glu's output. Unless y is none, it
// receives glu's output again; y may be dy.
func (t *Templates) gluBackward(s device.Stream, gu, y, dy device.Tensor, n, f int) {
	of, cut := t.activation()
	op.Do(t.dev, s, op.GLUBackward{Activation: of, Cut: cut, DGU: gu, Y: y, DY: dy, GU: gu, T: n, F: f})
}
