package layers

import (
	"math"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has a MoE layer whose experts stand beside a dense MLP (Config.DenseBesideExperts):
//
//	y = (x + norm(norm(mlp(norm(x))) + norm(Σ_k f_k·w_k·expert_k(norm(x))))) · scalar
//
// Each norm has a weight of its own. The router reads x by another norm, and f is a trained factor of each expert. The
// dense MLP belongs to part 0. Sum of the state has only the experts' outputs. The forward keeps Sum, because a norm's
// backward reads its input; the dense MLP is computed again at both of the router's visits. Source: transformers,
// modeling_gemma4.

// besideBuffers are the buffers of part 0 for a chunk of C tokens. F is the width of the dense MLP.
//
//	router (C, h) act: the router's normed input
//	n (C, h) act, rstd (C) f32: the dense MLP's normed input
//	gu (C, 2·F), act (C, F) act: gate and up, f(gate)·up; then their gradients
//	dense (C, h) act: the dense MLP's output
//	both (C, h) act: the sum of the two normed outputs
//	dy, dboth (C, h) act: gradients
//	zeros (C) i32: see scaleBy
type besideBuffers struct {
	router, n, gu, act, dense, both, dy, dboth, rstd, zeros rows
}

func (s Spec) besideBuffers(tokens int, ws *allotter) besideBuffers {
	h, f, chunk := s.Config.HiddenSize, s.Config.IntermediateSize, chunkOf(s.ChunkTokens, tokens)
	act := func(width int) rows { return ws.chunkRows(s.Act, chunk, width) }
	return besideBuffers{router: act(h), n: act(h), gu: act(2 * f), act: act(f), dense: act(h), both: act(h), dy: act(h), dboth: act(h),
		rstd: ws.chunkRows(device.F32, chunk, 1), zeros: ws.chunkRows(device.I32, chunk, 1)}
}

// scaleLogits divides the router's logits, or their gradient, by √h, if the experts stand beside a dense MLP.
func (l *moeLaunch) scaleLogits(r routing) {
	if l.spec.Config.DenseBesideExperts {
		op.Do(l.dev, l.s, op.Scale{X: r.logits, N: r.logits.Len, Factor: float32(1 / math.Sqrt(float64(l.dims.hidden)))})
	}
}

// scaleWeights multiplies the router's weights for chunk c by the chosen experts' trained factors. The weights before
// that go to r.plain, if the launch has a backward.
func (l *moeLaunch) scaleWeights(r routing, c span) {
	if !l.spec.Config.DenseBesideExperts {
		return
	}
	if k := l.spec.Config.NumExpertsPerTok; !r.plain.None() {
		op.Do(l.dev, l.s, op.CopyColumns{Dst: r.plain, Src: r.weights, T: c.n, C: k, DstStride: 2 * k, SrcStride: k})
	}
	l.byExpert(r.weights, r)
}

// byExpert multiplies x (C, K) f32, one value for each token and choice, by the trained factor of the chosen expert.
func (l *moeLaunch) byExpert(x device.Tensor, r routing) {
	op.Do(l.dev, l.s, op.ScaleRows{X: x, W: l.w[model.RoleExpertScales], Index: r.ids, T: int(x.Len), C: 1, P: l.spec.Config.NumExperts})
}

// combineBeside writes y, the layer's output, for chunk c. sum is the experts' sum.
func (l *moeLaunch) combineBeside(y, x, sum device.Tensor, c span) {
	l.bothOutputs(x, sum, c)
	l.addNormed(l.s, y, x, l.beside.both.of(c), l.w[model.RolePostMLPNorm], c.n)
	l.scaleLayer(y, c)
}

// scaleLayer multiplies x, the layer's output or its gradient, by the layer's scalar for the tokens of chunk c. Layers
// without a scalar are unchanged.
func (l *moeLaunch) scaleLayer(x device.Tensor, c span) {
	if by, scaled := l.w[model.RoleLayerScalar]; scaled {
		l.scaleBy(l.s, x, by, l.beside.zeros.of(c), c.n)
	}
}

// bothOutputs writes l.beside.both for chunk c: the normed output of the dense MLP plus sum, the experts' output,
// normed. It recomputes the dense MLP from x.
func (l *moeLaunch) bothOutputs(x, sum device.Tensor, c span) {
	b, d, none := l.beside, l.dims, device.Tensor{}
	l.norm(l.s, b.n.of(c), b.rstd.of(c), x, l.w, model.RoleMLPNorm, c.n)
	l.linear(l.s, b.gu.of(c), b.n.of(c), l.w[model.RoleGateUp], none, none, c.n, d.hidden, 2*d.ffn)
	l.glu(l.s, b.act.of(c), b.gu.of(c), c.n, d.ffn)
	l.linear(l.s, b.dense.of(c), b.act.of(c), l.w[model.RoleDown], none, none, c.n, d.ffn, d.hidden)
	op.Do(l.dev, l.s, l.rmsNorm(b.both.of(c), none, b.dense.of(c), l.w[model.RolePostDenseNorm], c.n))
	l.addNormed(l.s, b.both.of(c), b.both.of(c), sum, l.w[model.RolePostExpertNorm], c.n)
}

// besideSumGrad writes DY of the state, the gradient of the experts' sum, for chunk c. dy is the gradient of the
// layer's output, and sum the experts' sum.
func (l *moeLaunch) besideSumGrad(dy, x, sum device.Tensor, c span) {
	b := l.beside
	l.bothOutputs(x, sum, c)
	own := b.dy.of(c)
	l.s.CopyD2D(own.Mem(), dy.Mem())
	l.scaleLayer(own, c)
	l.backThroughOutput(model.RolePostMLPNorm, b.dboth.of(c), own, b.both.of(c), device.Tensor{}, c)
	l.backThroughOutput(model.RolePostExpertNorm, l.of(c).dy, b.dboth.of(c), sum, device.Tensor{}, c)
}

// besideBackward turns dy of chunk c, the gradient of the layer's output, into the gradient of x, in place. With
// overwrite the gradients of matrices are written, otherwise added.
func (l *moeLaunch) besideBackward(dy, x device.Tensor, c span, saved Kept, overwrite bool) {
	kept := l.keptSum(saved)
	fetch(l.s, c, kept)
	b, d, s, sum := l.beside, l.dims, l.s, kept.of(c)
	l.bothOutputs(x, sum, c)
	l.scaleLayer(dy, c)
	dboth, dout, act, gu := b.dboth.of(c), b.dy.of(c), b.act.of(c), b.gu.of(c)
	l.backThroughOutput(model.RolePostMLPNorm, dboth, dy, b.both.of(c), l.g[model.RolePostMLPNorm], c)
	l.backThroughOutput(model.RolePostExpertNorm, dout, dboth, sum, l.g[model.RolePostExpertNorm], c)
	l.backThroughOutput(model.RolePostDenseNorm, dout, dboth, b.dense.of(c), l.g[model.RolePostDenseNorm], c)
	l.weightGrad(s, l.g[model.RoleDown], dout, act, c.n, d.hidden, d.ffn, overwrite)
	l.inputGrad(s, act, dout, l.w[model.RoleDown], c.n, d.hidden, d.ffn)
	l.gluBackward(s, gu, device.Tensor{}, act, c.n, d.ffn)
	l.weightGrad(s, l.g[model.RoleGateUp], gu, b.n.of(c), c.n, 2*d.ffn, d.hidden, overwrite)
	l.inputGrad(s, dout, gu, l.w[model.RoleGateUp], c.n, 2*d.ffn, d.hidden)
	l.backThroughNorm(s, l.w, l.g, model.RoleMLPNorm, dy, dout, x, b.rstd.of(c), c.n, true)

	op.Do(l.dev, s, op.Convert{Dst: dout, Src: l.of(c).sum, N: dout.Len})
	l.backThroughInput(model.RoleExpertNorm, dy, dout, x, c)
	l.ownRouterBackward(dout, x, c, overwrite)
	l.backThroughInput(model.RoleRouterNorm, dy, dout, x, c)
}

// backThroughInput is the backward of a norm of the layer's input x, for chunk c: it adds the
// gradient of x to dx (C, h). Tensor dy is the gradient of norm(x), and r the role of the norm's
// weight.
func (l *moeLaunch) backThroughInput(r model.Role, dx, dy, x device.Tensor, c span) {
	l.norm(l.s, l.beside.n.of(c), l.beside.rstd.of(c), x, l.w, r, c.n)
	l.backThroughNorm(l.s, l.w, l.g, r, dx, dy, x, l.beside.rstd.of(c), c.n, true)
}

// ownRouterBackward is the backward of the router for chunk c. It writes dn (C, h), the gradient of
// the router's normed input, and accumulates the gradient of the router's weight. In the state,
// Weights becomes each pair's plain weight times its gradient; ExpertScalesGrad later sums these to
// the gradient of the experts' factors.
func (l *moeLaunch) ownRouterBackward(dn, x device.Tensor, c span, overwrite bool) {
	cfg, r, k := l.spec.Config, l.of(c), l.spec.Config.NumExpertsPerTok
	op.Do(l.dev, l.s, op.CopyColumns{Dst: from(r.plain, k), Src: r.dweights, T: c.n, C: k, DstStride: 2 * k, SrcStride: k})
	// The operation GLU computes ReLU(weight)·gradient, which is the wanted product: no weight is
	// negative, so ReLU changes none.
	op.Do(l.dev, l.s, op.GLU{Activation: op.ReLU, Y: r.weights, GU: r.plain, T: c.n, F: k})
	l.byExpert(r.dweights, r)
	op.Do(l.dev, l.s, op.RouterBackward{DLogits: r.logits, Logits: r.logits, IDs: r.ids, DWeights: r.dweights, T: c.n, E: cfg.NumExperts, K: k,
		Normalize: cfg.NormTopKProb, Rule: l.spec.routerRule()})
	l.scaleLogits(r)
	in := l.beside.router.of(c)
	l.norm(l.s, in, device.Tensor{}, x, l.w, model.RoleRouterNorm, c.n)
	l.weightGrad(l.s, l.g[model.RoleRouter], r.logits, l.widened(in, c), c.n, cfg.NumExperts, l.dims.hidden, overwrite)
	if wide := l.wide.of(c); !wide.None() {
		l.inputGrad(l.s, wide, r.logits, l.w[model.RoleRouter], c.n, cfg.NumExperts, l.dims.hidden)
		op.Do(l.dev, l.s, op.Convert{Dst: dn, Src: wide, N: dn.Len})
		return
	}
	l.inputGrad(l.s, dn, r.logits, l.w[model.RoleRouter], c.n, cfg.NumExperts, l.dims.hidden)
}

// ExpertScalesGrad adds the gradient of the experts' trained factors to g. It comes after MoERouteBackward of all
// micro-batches; tokens is the number of their tokens. In a model without such factors it does nothing.
func (t *Templates) ExpertScalesGrad(s device.Stream, g Grads, st MoEState, tokens int) {
	sum, trained := g[model.RoleExpertScales]
	if !trained {
		return
	}
	c := t.spec.Config
	n := tokens * c.NumExpertsPerTok
	op.Do(t.dev, s, op.ScatterAddRows{DRows: sum, DY: st.Weights.Slice(0, int64(n)), Start: st.Offsets, Pos: st.Order.Slice(0, int64(n)),
		U: c.NumExperts, T: n, C: 1})
}
