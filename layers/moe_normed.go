package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has a MoE layer that norms the sum of its experts, the shared one included (Config.NormsExperts):
//
//	y = x + norm(Σ_k w_k·expert_k(norm(x)))
//
// Sum of the state has only the experts' outputs. The forward keeps Sum, because a norm's backward reads its input.

// keptSum returns rows for the experts' sum: the whole micro-batch's in saved, which the forward keeps, or the chunk's
// buffer if saved is the zero Mem.
func (l *moeLaunch) keptSum(saved device.Mem) rows {
	if saved.Bytes == 0 {
		return l.sum
	}
	return whole(saved.Tensor(l.spec.Act, 0, int64(l.mb.Tokens)*int64(l.dims.hidden)), l.dims.hidden)
}

func (t *Templates) combineNormed(s device.Stream, w Weights, y, x device.Tensor, at int, mb MicroBatch, st MoEState, saved, ws device.Mem) {
	l := t.newMoE(s, w, at, mb, st)
	l.moeBuffers = t.spec.routeBuffers(mb.Tokens, false, &allotter{mem: ws})
	in, out, kept := whole(x, t.dims.hidden), whole(y, t.dims.hidden), l.keptSum(saved)
	for c := range l.chunks() {
		sum := kept.of(c)
		op.Do(t.dev, s, op.Convert{Dst: sum, Src: l.of(c).sum, N: sum.Len})
		if !t.spec.Config.DenseBesideExperts {
			t.addNormed(s, out.of(c), in.of(c), sum, w[model.RolePostMLPNorm], c.n)
			continue
		}
		l.combineBeside(out.of(c), in.of(c), sum, c)
	}
}

// sumGrad writes DY of the state, the gradient of the experts' sum, for the whole micro-batch. dy is the gradient of
// the layer's output.
func (l *moeLaunch) sumGrad(dy device.Tensor, x rows, saved device.Mem) {
	grads, kept := whole(dy, l.dims.hidden), l.keptSum(saved)
	for c := range l.chunks() {
		if l.spec.Config.DenseBesideExperts {
			l.besideSumGrad(grads.of(c), x.of(c), kept.of(c), c)
			continue
		}
		l.backThroughOutput(model.RolePostMLPNorm, l.of(c).dy, grads.of(c), kept.of(c), device.Tensor{}, c)
	}
}

// sumNormGrad accumulates the gradient of the weight of the norm of the experts' sum, for chunk c. dy is the gradient of
// the layer's output. Models that do not norm the sum have no such weight.
func (l *moeLaunch) sumNormGrad(dy device.Tensor, c span, saved device.Mem) {
	if dw, trained := l.g[model.RolePostMLPNorm]; trained {
		l.backThroughOutput(model.RolePostMLPNorm, l.n.of(c), dy, l.keptSum(saved).of(c), dw, c)
	}
}

// backThroughOutput writes dx (C, h), the gradient of x, for chunk c. dy is the gradient of norm(x), and r the role of
// the norm's weight. dw accumulates the gradient of this weight, unless none. The norm runs again for its statistics.
func (l *moeLaunch) backThroughOutput(r model.Role, dx, dy, x, dw device.Tensor, c span) {
	rstd := l.rstdOut.of(c)
	op.Do(l.dev, l.s, l.rmsNorm(dx, rstd, x, l.w[r], c.n))
	op.Do(l.dev, l.s, l.rmsNormBackward(dx, dw, dy, x, l.w[r], rstd, c.n))
}
