package layers

import (
	"cmp"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// headSpace is the head's workspace for one chunk of C tokens:
//
//	n (C, h) act: the normed input, then its gradient; rstd (C) f32, (C, 2) for a LayerNorm
//	logits (C, V) act: the logits, then their gradient; for a head in parts only the current
//	part's entries of the vocabulary
//	in, out (C, h) act: the input and its gradient, if these are on the host
//	weights (T) f32: with Spec.Preference, the gradient factor of every token
type headSpace struct {
	n, rstd, logits, in, out rows
	weights                  device.Tensor
}

func (s Spec) headBuffers(d dims, vocab, tokens int, ws *allotter) headSpace {
	chunk := chunkOf(s.HeadChunk, tokens)
	b := headSpace{n: ws.chunkRows(d.act, chunk, d.hidden), rstd: ws.chunkRows(device.F32, chunk, d.stats),
		logits: ws.chunkRows(d.act, chunk, vocab)}
	if s.OnHost {
		b.in, b.out = ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden)
	}
	if !s.Preference.None() {
		b.weights = ws.take(device.F32, tokens)
	}
	return b
}

// weigh returns for each row the factor on its gradient; none: all are 1. With Spec.Preference it writes the factors to
// b.weights, because they depend on all losses of the micro-batch.
func (t *Templates) weigh(s device.Stream, b headSpace, losses device.Tensor, mb MicroBatch) device.Tensor {
	if t.spec.Preference.None() {
		return mb.HeadWeights
	}
	op.Do(t.dev, s, op.PreferenceWeights{Weights: b.weights, Losses: losses, Targets: mb.Targets, Cu: mb.Cu, Reference: mb.Reference,
		T: mb.Tokens, Pairs: mb.Seqs / 2, Loss: t.spec.Preference, Likelihood: mb.Likelihood})
	return b.weights
}

// HeadForwardBackward computes a micro-batch's losses and gradients: final norm, lm_head and cross-entropy. It
// processes HeadChunk tokens at a time, so the logits of a whole micro-batch never exist. With Spec.Preference a
// token's gradient depends on the losses of its pair. There are then two sweeps over the chunks: one for losses, and
// one that computes the logits again.
//
//	x (T, h) act; dx (T, h) act overwritten, may be x itself, else disjoint
//	losses (T) f32 overwritten: −log p and Spec.Terms, unscaled, 0 without a target
//	scale: factor on every token's gradient: 1/(supervised tokens of the batch) or, with
//	Spec.Preference, 1/(pairs of the batch)
//	g: overwritten if first is set, else accumulated. A tied head has RoleLMHead too: its
//	own share of the embedding's gradient
func (t *Templates) HeadForwardBackward(s device.Stream, w Weights, g Grads, dx, x Hidden, losses device.Tensor, mb MicroBatch, ws device.Mem, scale float32, first bool) {
	t.spec.fitsHead(mb.Tokens)
	d := t.dims
	b := t.spec.headBuffers(d, d.vocab, mb.Tokens, &allotter{mem: ws})
	out, in := t.hidden(dx, b.out), t.hidden(x, b.in)
	if first {
		zeroVectors(s, g)
	}
	if !t.spec.Preference.None() {
		t.HeadForward(s, w, x, losses, mb, ws)
	}
	factors := t.weigh(s, b, losses, mb)
	for c := range spans(mb.Tokens, chunkOf(t.spec.HeadChunk, mb.Tokens)) {
		fetch(s, c, in)
		xc, n, logits := in.of(c), b.n.of(c), b.logits.of(c)
		t.logits(s, w, logits, n, b.rstd.of(c), xc, c.n, d.vocab)
		op.Do(t.dev, s, op.CrossEntropy{Logits: logits, Targets: whole(mb.Targets, 1).of(c),
			Losses: whole(losses, 1).of(c), Weights: whole(factors, 1).of(c), T: c.n, V: d.vocab, Scale: scale, Softcap: t.logitCap(), Terms: t.spec.Terms})
		t.weightGrad(s, g[model.RoleLMHead], logits, n, c.n, d.vocab, d.hidden, first && c.at == 0)
		t.addBiasGrad(s, g, model.RoleLMHeadBias, logits, c.n, d.vocab)
		t.inputGrad(s, n, logits, w[model.RoleLMHead], c.n, d.vocab, d.hidden)
		t.finalNormBackward(s, w, g, out.of(c), xc, n, b.rstd.of(c), c.n)
		store(s, c, out)
	}
}

// finalNormBackward writes dx (n, h), the gradient of the head's input x, from dn, the gradient of lm_head's input. dn
// is undefined afterwards. A norm's backward may not overwrite its input x. If dx and x are the same memory, the result
// therefore goes to dn and is copied.
func (t *Templates) finalNormBackward(s device.Stream, w Weights, g Grads, dx, x, dn, rstd device.Tensor, n int) {
	t.scale(s, dn, n, t.logitScale())
	if w[model.RoleFinalNorm].None() {
		if dx.Addr != dn.Addr {
			s.CopyD2D(dx.Mem(), dn.Mem())
		}
		return
	}
	to := dx
	if dx.Addr == x.Addr {
		to = dn
	}
	t.backThroughNorm(s, w, g, model.RoleFinalNorm, to, dn, x, rstd, n, false)
	if dx.Addr == x.Addr {
		s.CopyD2D(dx.Mem(), dn.Mem())
	}
}

// logits writes y (n, h) = Config.LogitScale·norm(x) and then logits (n, vocab) = y·Wᵀ + bias. rstd (n), unless none,
// receives the norm's statistics.
func (t *Templates) logits(s device.Stream, w Weights, logits, y, rstd, x device.Tensor, n, vocab int) {
	if w[model.RoleFinalNorm].None() { // an earlier layer has normed x
		s.CopyD2D(y.Mem(), x.Mem())
	} else {
		t.norm(s, y, rstd, x, w, model.RoleFinalNorm, n)
	}
	t.scale(s, y, n, t.logitScale())
	t.linear(s, logits, y, w[model.RoleLMHead], device.Tensor{}, w[model.RoleLMHeadBias], n, t.dims.hidden, vocab)
}

// HeadForward computes the losses of an evaluation. They equal HeadForwardBackward's losses bit for bit, except that
// Spec.Terms, the additional terms of the training loss, are missing.
//
//	x (T, h) act; losses (T) f32 overwritten
func (t *Templates) HeadForward(s device.Stream, w Weights, x Hidden, losses device.Tensor, mb MicroBatch, ws device.Mem) {
	t.spec.fitsHead(mb.Tokens)
	b := t.spec.headBuffers(t.dims, t.dims.vocab, mb.Tokens, &allotter{mem: ws})
	in := t.hidden(x, b.in)
	for c := range spans(mb.Tokens, chunkOf(t.spec.HeadChunk, mb.Tokens)) {
		fetch(s, c, in)
		logits := b.logits.of(c)
		t.logits(s, w, logits, b.n.of(c), device.Tensor{}, in.of(c), c.n, t.dims.vocab)
		op.Do(t.dev, s, op.CrossEntropy{Logits: logits, Targets: whole(mb.Targets, 1).of(c),
			Losses: whole(losses, 1).of(c), T: c.n, V: t.dims.vocab, ForwardOnly: true, Softcap: t.logitCap()})
	}
}

// logitScale returns the factor on the logits; 1: none. Callers multiply lm_head's input by it, which has fewer
// elements than the logits.
func (t *Templates) logitScale() float32 { return float32(cmp.Or(t.spec.Config.LogitScale, 1)) }

// logitCap returns the soft cap of the logits; 0: none.
func (t *Templates) logitCap() float32 { return float32(t.spec.Config.LogitSoftcap) }

// HeadLogits writes the logits of n rows, for generation.
//
//	x (n, h) act; logits (n, V) f32 overwritten: not rounded to act, and not capped. The
//	caller applies the model's cap
func (t *Templates) HeadLogits(s device.Stream, w Weights, logits, x device.Tensor, n int, ws device.Mem) {
	t.spec.fits(n)
	b := t.spec.headBuffers(t.dims, t.dims.vocab, n, &allotter{mem: ws})
	for c := range spans(n, chunkOf(t.spec.HeadChunk, n)) {
		t.logits(s, w, whole(logits, t.dims.vocab).of(c), b.n.of(c), device.Tensor{}, whole(x, t.dims.hidden).of(c), c.n, t.dims.vocab)
	}
}
