package layers

import (
	"cmp"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// headSpace is the head's workspace, for one chunk of tokens at a time:
//
//	n (C, h) act: the normed input, then its gradient; rstd (C) f32, of a LayerNorm (C, 2)
//	logits (C, V) act: the logits, then their gradient; V of the part at work
//	in, out (C, h) act: the input and its gradient, where these lie on the host
//	weights (T) f32, with Spec.Preference: of the gradient of every token of the micro-batch
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

// weigh writes the weights of a micro-batch's tokens, if they have some, from the losses of all of them.
func (t *Templates) weigh(s device.Stream, b headSpace, losses device.Tensor, mb MicroBatch) {
	if !t.spec.Preference.None() {
		op.Do(t.dev, s, op.PreferenceWeights{Weights: b.weights, Losses: losses, Targets: mb.Targets, Cu: mb.Cu, Reference: mb.Reference,
			T: mb.Tokens, Pairs: mb.Seqs / 2, Loss: t.spec.Preference, Likelihood: mb.Likelihood})
	}
}

// HeadForwardBackward computes the losses of a micro-batch and their gradients:
// final norm, lm_head and cross-entropy, HeadChunk tokens at a time, so that the
// logits of a whole micro-batch never exist. With Spec.Preference a token's gradient depends on the losses
// of its pair, so there are two sweeps over the chunks: one for losses, and one that computes the logits again.
//
//	x (T, h) act; dx (T, h) act overwritten, may be x itself, else disjoint
//	losses (T) f32 overwritten: −log p and Spec.Terms, unscaled, 0 where no target is
//	scale: what every token's gradient is multiplied by, 1/(supervised tokens of
//	the batch) or, with Spec.Preference, 1/(pairs of the batch)
//	g: overwritten where first is set, else accumulated. RoleLMHead is there for
//	a tied head too: its own share of the embedding's gradient
func (t *Templates) HeadForwardBackward(s device.Stream, w Weights, g Grads, dx, x Hidden, losses device.Tensor, mb MicroBatch, ws device.Mem, scale float32, first bool) {
	t.spec.fits(mb.Tokens)
	d := t.dims
	b := t.spec.headBuffers(d, d.vocab, mb.Tokens, &allotter{mem: ws})
	out, in := t.hidden(dx, b.out), t.hidden(x, b.in)
	if first {
		zeroVectors(s, g)
	}
	if !t.spec.Preference.None() {
		t.HeadForward(s, w, x, losses, mb, ws)
		t.weigh(s, b, losses, mb)
	}
	for c := range spans(mb.Tokens, chunkOf(t.spec.HeadChunk, mb.Tokens)) {
		fetch(s, c, in)
		xc, n, logits := in.of(c), b.n.of(c), b.logits.of(c)
		t.logits(s, w, logits, n, b.rstd.of(c), xc, c.n, d.vocab)
		op.Do(t.dev, s, op.CrossEntropy{Logits: logits, Targets: whole(mb.Targets, 1).of(c),
			Losses: whole(losses, 1).of(c), Weights: whole(b.weights, 1).of(c), T: c.n, V: d.vocab, Scale: scale, Softcap: t.logitCap(), Terms: t.spec.Terms})
		t.weightGrad(s, g[model.RoleLMHead], logits, n, c.n, d.vocab, d.hidden, first && c.at == 0)
		t.addBiasGrad(s, g, model.RoleLMHeadBias, logits, c.n, d.vocab)
		t.inputGrad(s, n, logits, w[model.RoleLMHead], c.n, d.vocab, d.hidden)
		t.finalNormBackward(s, w, g, out.of(c), xc, n, b.rstd.of(c), c.n)
		store(s, c, out)
	}
}

// finalNormBackward writes dx (n, h) from dn, the gradient of what lm_head is multiplied with; dn is
// used up. A norm's backward may not write over x, so where dx is x the result is written to
// dn first and copied.
func (t *Templates) finalNormBackward(s device.Stream, w Weights, g Grads, dx, x, dn, rstd device.Tensor, n int) {
	t.scale(s, dn, n, t.logitScale())
	to := dx
	if dx.Addr == x.Addr {
		to = dn
	}
	t.backThroughNorm(s, w, g, model.RoleFinalNorm, to, dn, x, rstd, n, false)
	if dx.Addr == x.Addr {
		s.CopyD2D(dx.Mem(), dn.Mem())
	}
}

// logits writes logits (n, vocab) = y·Wᵀ + bias of y (n, h) = Config.LogitScale·norm(x), which it writes too;
// rstd (n), unless none, receives the norm's scale.
func (t *Templates) logits(s device.Stream, w Weights, logits, y, rstd, x device.Tensor, n, vocab int) {
	t.norm(s, y, rstd, x, w, model.RoleFinalNorm, n)
	t.scale(s, y, n, t.logitScale())
	t.linear(s, logits, y, w[model.RoleLMHead], device.Tensor{}, w[model.RoleLMHeadBias], n, t.dims.hidden, vocab)
}

// HeadForward computes the losses of an evaluation: those of HeadForwardBackward alone, with the same
// bits, but without Spec.Terms.
//
//	x (T, h) act; losses (T) f32 overwritten
func (t *Templates) HeadForward(s device.Stream, w Weights, x Hidden, losses device.Tensor, mb MicroBatch, ws device.Mem) {
	t.spec.fits(mb.Tokens)
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

// logitScale is what logits are multiplied by: in lm_head's input, of which there is less.
func (t *Templates) logitScale() float32 { return float32(cmp.Or(t.spec.Config.LogitScale, 1)) }

// logitCap is the cap of the logits; 0: none.
func (t *Templates) logitCap() float32 { return float32(t.spec.Config.LogitSoftcap) }

// HeadLogits writes the logits of n rows, for generation.
//
//	x (n, h) act; logits (n, V) f32 overwritten, not rounded to act and not
//	capped: where the model caps its logits, the caller does
func (t *Templates) HeadLogits(s device.Stream, w Weights, logits, x device.Tensor, n int, ws device.Mem) {
	t.spec.fits(n)
	b := t.spec.headBuffers(t.dims, t.dims.vocab, n, &allotter{mem: ws})
	for c := range spans(n, chunkOf(t.spec.HeadChunk, n)) {
		t.logits(s, w, whole(logits, t.dims.vocab).of(c), b.n.of(c), device.Tensor{}, whole(x, t.dims.hidden).of(c), c.n, t.dims.vocab)
	}
}
