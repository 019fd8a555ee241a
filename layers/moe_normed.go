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
// buffer if saved is empty.
func (l *moeLaunch) keptSum(saved Kept) rows {
	if saved.Dev.Bytes == 0 {
		kept := l.sum
		kept.host = saved.Host
		return kept
	}
	return whole(saved.Dev.Tensor(l.spec.Act, 0, int64(l.mb.Tokens)*int64(l.dims.hidden)), l.dims.hidden)
}

// combineNormed is Combine for such a layer: `out` receives the output, and `in` has the input.
func (l *moeLaunch) combineNormed(out, in rows, saved Kept) {
	kept := l.keptSum(saved)
	for c := range l.chunks() {
		fetch(l.s, c, in)
		sum := kept.of(c)
		op.Do(l.dev, l.s, op.Convert{Dst: sum, Src: l.of(c).sum, N: sum.Len})
		if l.spec.Config.DenseBesideExperts {
			l.combineBeside(out.of(c), in.of(c), sum, c)
		} else {
			l.addNormed(l.s, out.of(c), in.of(c), sum, l.w[model.RolePostMLPNorm], c.n)
		}
		store(l.s, c, out)
		store(l.s, c, kept)
	}
}

// sumGrad writes DY of the state, the gradient of the experts' sum, for the whole micro-batch. grads are
// the gradients of the layer's output, and x is its input.
func (l *moeLaunch) sumGrad(grads, x rows, saved Kept) {
	kept := l.keptSum(saved)
	for c := range l.chunks() {
		fetch(l.s, c, grads, kept)
		if l.spec.Config.DenseBesideExperts {
			fetch(l.s, c, x)
			l.besideSumGrad(grads.of(c), x.of(c), kept.of(c), c)
			continue
		}
		l.backThroughOutput(model.RolePostMLPNorm, l.of(c).dy, grads.of(c), kept.of(c), device.Tensor{}, c)
	}
}

// sumNormGrad accumulates the gradient of the weight of the norm of the experts' sum, for chunk c. dy is the gradient of
// the layer's output. Models that do not norm the sum have no such weight.
func (l *moeLaunch) sumNormGrad(dy device.Tensor, c span, saved Kept) {
	kept := l.keptSum(saved)
	fetch(l.s, c, kept)
	if dw, trained := l.g[model.RolePostMLPNorm]; trained {
		l.backThroughOutput(model.RolePostMLPNorm, l.n.of(c), dy, kept.of(c), dw, c)
	}
}

// backThroughOutput writes dx (C, h), the gradient of x, for chunk c. dy is the gradient of norm(x), and r the role of
// the norm's weight. dw accumulates the gradient of this weight, unless none. The norm runs again for its statistics.
func (l *moeLaunch) backThroughOutput(r model.Role, dx, dy, x, dw device.Tensor, c span) {
	rstd := l.rstdOut.of(c)
	op.Do(l.dev, l.s, l.outNorm(dx, rstd, x, l.w[r], c.n))
	op.Do(l.dev, l.s, l.rmsNormBackward(dx, dw, dy, x, l.w[r], rstd, c.n))
}
