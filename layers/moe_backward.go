package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// MoERouteAgain is the first visit of a micro-batch to part 0 (norm and router) in the backward. It computes the
// micro-batch's rows of N, Logits, IDs and Weights in st again, bit for bit as MoERoute, copies dy to DY and clears
// Sum. The caller then calls MoESort for the same tokens. If Sum is normed, DY becomes the gradient of the experts' sum
// instead; saved has this sum from the forward.
//
//	dy, x (T, h) act: only read
func (t *Templates) MoERouteAgain(s device.Stream, w Weights, dy, x Hidden, at int, mb MicroBatch, st MoEState, saved, ws device.Mem) {
	l := t.newMoE(s, w, at, mb, st)
	l.moeBuffers = t.spec.routeBuffers(mb.Tokens, false, &allotter{mem: ws})
	in, grads := l.hidden(x, l.x), l.hidden(dy, l.y)
	for c := range l.chunks() {
		fetch(s, c, in)
		l.route(in, c, false)
	}
	s.Zero(l.of(span{0, mb.Tokens}).sum.Mem())
	if t.spec.Config.NormsExperts() {
		l.sumGrad(grads, in, saved)
		return
	}
	for c := range l.pieces(grads) {
		fetch(s, c, grads)
		s.CopyD2D(l.of(c).dy.Mem(), grads.of(c).Mem())
	}
}

// ExpertBackward overwrites g, the gradients of an expert's weights w. The expert's pairs of token
// and choice are Order[from:from+n] of st. ExpertBackward writes the gradients of the pairs'
// weights (DWeights) and adds the gradients of their inputs to Sum. Without pairs (n = 0) g becomes
// 0 and w is not read.
//
// In the backward a pair's weight multiplies f(gate)·up instead of the output, so that the down
// product is not computed again; with Config.WeightedInputs it multiplies the input.
func (t *Templates) ExpertBackward(s device.Stream, w Weights, g Grads, st MoEState, from, n int, ws device.Mem) {
	zeroVectors(s, g)
	if n == 0 {
		for _, r := range [...]model.Role{model.RoleExpertGateUp, model.RoleExpertDown} {
			if dw, ok := g[r]; ok {
				s.Zero(dw.Mem())
			}
		}
		return
	}
	l := t.newExpert(s, w, st, from, n, ws, true)
	l.g = g
	for c := range l.expertChunks(n) {
		l.expertBackward(c)
	}
}

func (l *moeLaunch) expertBackward(c span) {
	h, f, up := l.dims.hidden, l.width, l.spec.upWidth(l.width)
	in, dy, gu, act, dact := l.in.of(c), l.out.of(c), l.gu.of(c), l.act.of(c), l.dact.of(c)
	l.gateUp(c)
	l.activate(c)
	op.Do(l.dev, l.s, op.GatherRows{Dst: dy, Src: l.st.DY, Index: l.tokens(c), T: c.n, C: h})
	l.product(op.MatMul{M: c.n, N: f, K: h, A: dy, B: l.w[model.RoleExpertDown], D: dact})
	if !l.spec.Config.WeightedInputs {
		l.weightsBackward(dact, act, c, f)
	}
	if bias, ok := l.w[model.RoleExpertDownBias]; ok {
		op.Do(l.dev, l.s, op.WeightedBiasGrad{DB: l.g[model.RoleExpertDownBias], DW: l.st.DWeights, DY: dy, B: bias, W: l.st.Weights,
			Index: l.pairs(c), T: c.n, C: h, P: int(l.st.Weights.Len)})
	}
	// From here on act is multiplied by the pairs' weights (unless the inputs are), and dact is the gradient of
	// f(gate)·up.
	l.expertGrad(model.RoleExpertDown, dy, act, c, h, f)
	l.activateBackward(c)
	l.addBiasGrad(l.s, l.g, model.RoleExpertGateUpBias, gu, c.n, up)
	l.expertGrad(model.RoleExpertGateUp, gu, in, c, up, h)
	l.product(op.MatMul{M: c.n, N: h, K: up, A: gu, B: l.w[model.RoleExpertGateUp], D: in})
	if l.spec.Config.WeightedInputs { // dy is not read any more
		l.inputs(l.out, c)
		l.weightsBackward(in, dy, c, h)
	}
	op.Do(l.dev, l.s, l.rowsOf(in, c))
}

// weightsBackward writes the gradients of the weights of the pairs in chunk c. In the forward each weight multiplies a
// row of y (C, width). It also multiplies y, and its gradient dy, by the weights in place.
func (l *moeLaunch) weightsBackward(dy, y device.Tensor, c span, width int) {
	op.Do(l.dev, l.s, op.ScaleRowsBackward{DY: dy, Y: y, W: l.st.Weights, DW: l.st.DWeights, Index: l.pairs(c),
		T: c.n, C: width, P: int(l.st.Weights.Len)})
}

// expertGrad writes the gradient of the expert's matrix with role r, dW (out, in) = dYᵀ·X, for the first chunk; later
// chunks add to it. A frozen matrix is skipped.
func (l *moeLaunch) expertGrad(r model.Role, dy, x device.Tensor, c span, out, in int) {
	dw, trained := l.g[r]
	if !trained {
		return
	}
	m := op.MatMul{M: out, N: in, K: c.n, TransA: true, A: dy, B: x, D: dw}
	if c.at > 0 {
		m.C = m.D
	}
	l.product(m)
}

// MoERouteBackward is the last visit of a micro-batch in the backward, after all experts have added to Sum and
// DWeights. It turns dy into dx in place and accumulates the gradients of part 0.
//
//	dxdy (T, h) act: dy before, dx after; x (T, h) act
//	g: overwritten if first is set, else accumulated
//	auxScale: the auxiliary loss has the gradient auxScale·Counts[e] with respect to every
//	token's probability of expert e; 0: there is no such loss
func (t *Templates) MoERouteBackward(s device.Stream, w Weights, g Grads, dxdy, x Hidden, at int, mb MicroBatch, st MoEState, saved, ws device.Mem, first bool, auxScale float32) {
	l := t.newMoE(s, w, at, mb, st)
	l.moeBuffers = t.spec.routeBuffers(mb.Tokens, true, &allotter{mem: ws})
	l.g = g
	if first {
		zeroVectors(s, g)
	}
	in, out := l.hidden(x, l.x), l.hidden(dxdy, l.y)
	for c := range l.chunks() {
		fetch(s, c, in, out)
		if overwrite := first && c.at == 0; t.spec.Config.DenseBesideExperts {
			l.besideBackward(out.of(c), in.of(c), c, saved, overwrite)
		} else {
			l.sumNormGrad(out.of(c), c, saved)
			l.routerBackward(c, overwrite, auxScale)
			l.routeNormBackward(out.of(c), in.of(c), c)
		}
		store(s, c, out)
	}
}

// routerBackward overwrites the logits of the tokens of chunk c with their gradient. It adds the gradient of N, the
// normed input, to Sum. It also accumulates the gradient of the router's weight; with overwrite it overwrites this
// gradient. For auxScale see MoERouteBackward.
func (l *moeLaunch) routerBackward(c span, overwrite bool, auxScale float32) {
	cfg, r := l.spec.Config, l.of(c)
	h, logits := l.dims.hidden, l.spec.routerLogits()
	a := op.RouterBackward{DLogits: r.logits, Logits: r.logits, IDs: r.ids, DWeights: r.dweights, T: c.n, E: cfg.NumExperts,
		K: cfg.NumExpertsPerTok, Normalize: cfg.NormTopKProb, Rule: l.spec.routerRule()}
	if auxScale != 0 {
		a.Counts, a.AuxScale = l.st.Counts.Slice(0, int64(cfg.NumExperts)), auxScale
	}
	op.Do(l.dev, l.s, a)
	l.addBiasGrad(l.s, l.g, model.RoleRouterBias, r.logits, c.n, logits)
	l.weightGrad(l.s, l.g[model.RoleRouter], r.logits, l.widened(r.n, c), c.n, logits, h, overwrite)
	op.Do(l.dev, l.s, op.MatMul{M: c.n, N: h, K: logits, A: r.logits, B: l.w[model.RoleRouter], C: r.sum, D: r.sum})
}

// routeNormBackward adds to dy the gradient of x for chunk c; Sum holds the gradient of norm(x). The norm runs again,
// because its statistics are not kept.
func (l *moeLaunch) routeNormBackward(dy, x device.Tensor, c span) {
	n, rstd := l.n.of(c), l.rstd.of(c)
	l.norm(l.s, n, rstd, x, l.w, model.RoleMLPNorm, c.n)
	op.Do(l.dev, l.s, op.Convert{Dst: n, Src: l.of(c).sum, N: n.Len})
	l.backThroughNorm(l.s, l.w, l.g, model.RoleMLPNorm, dy, n, x, rstd, c.n, true)
}
