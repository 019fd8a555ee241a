package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/layers/schedule"
	"mt/model"
)

// This file has multi-token prediction (Config.Ahead): a block behind the last one predicts the token after the next.
// Its input joins y, the output of the final norm, and the embedding e of the next token:
//
//	W·[norm(e); norm(y)]
//
// A layer of its own norms the block's output. The head then turns two rows of each token into logits: the block's for
// the token after the next, and y for the next one. Source: arXiv:2412.19437, section 2.2. Models are published with the
// embedding's columns first and with y, not with x, the final norm's input; see deepseek_mtp.py and qwen3_next_mtp.py of
// vLLM. Config.AheadColumns and AheadPlain tell of others.
//
// The embedding travels to the block as a passenger, and y from there to the head. The next token of a document's last
// is its first. That row has no target and nothing attends to it, so its gradient is 0.

// AheadRows returns, for each token, the rows of the next and of the previous token in its document with bounds cu. The
// document's last token precedes its first.
func AheadRows(cu []int32) (next, previous []int32) {
	n := cu[len(cu)-1]
	next, previous = make([]int32, n), make([]int32, n)
	for i, first := range cu[:len(cu)-1] {
		last := cu[i+1] - 1
		for t := first; t <= last; t++ {
			if next[t] = t + 1; t == last {
				next[t] = first
			}
			previous[next[t]] = t
		}
	}
	return next, previous
}

// forHead returns the micro-batch of the head's rows: both streams of hidden states, if there are two.
func (mb MicroBatch) forHead(streams int) MicroBatch {
	if streams > 1 {
		mb.Tokens, mb.Targets = streams*mb.Tokens, mb.HeadTargets
	}
	return mb
}

// aheadSpace is the workspace of AheadInput and AheadNorm for a chunk of C tokens:
//
//	e, y (C, h) act: embeddings of the next tokens; the final norm's output
//	joined, djoined (C, 2·h) act: the projection's input, and its gradient
//	rstd, rstdE, rstdY (C) f32: statistics of the norms of x, e and y
type aheadSpace struct{ e, y, joined, djoined, rstd, rstdE, rstdY rows }

func (s Spec) aheadSpace(tokens int, ws *allotter) (b aheadSpace) {
	h, chunk := s.Config.HiddenSize, chunkOf(s.ChunkTokens, tokens)
	b.e, b.y = ws.chunkRows(s.Act, chunk, h), ws.chunkRows(s.Act, chunk, h)
	b.joined, b.djoined = ws.chunkRows(s.Act, chunk, 2*h), ws.chunkRows(s.Act, chunk, 2*h)
	b.rstd, b.rstdE, b.rstdY = ws.chunkRows(device.F32, chunk, 1), ws.chunkRows(device.F32, chunk, 1), ws.chunkRows(device.F32, chunk, 1)
	return b
}

// aheadLaunch is one launch of AheadInput or AheadNorm.
type aheadLaunch struct {
	*Templates
	aheadSpace
	x            *Launch
	in           rows
	passX, passY rows
}

func (t *Templates) newAhead(x *Launch) *aheadLaunch {
	t.spec.fits(x.Tokens)
	h, out := t.dims.hidden, x.Out.Dev
	if x.Visit.Phase == schedule.Backward {
		out = x.Grad.Dev
		if x.First {
			zeroVectors(x.Stream, x.Grads)
		}
	}
	return &aheadLaunch{Templates: t, x: x, in: whole(x.In.Dev, h), aheadSpace: t.spec.aheadSpace(x.Tokens, &allotter{mem: x.Workspace}),
		passX: whole(t.passengersOf(x.MicroBatch, x.In.Dev), h), passY: whole(t.passengersOf(x.MicroBatch, out), h)}
}

func (l *aheadLaunch) chunks() func(func(span) bool) {
	return spans(l.x.Tokens, chunkOf(l.spec.ChunkTokens, l.x.Tokens))
}

// hidden returns the hidden state that the block joins, for chunk c: y, the final norm's output, or the norm's input.
func (l *aheadLaunch) hidden(y device.Tensor, c span) device.Tensor {
	if l.spec.Config.AheadPlain() {
		return l.in.of(c)
	}
	return y
}

// join writes l.e and l.joined for chunk c. y has the final norm's output.
func (l *aheadLaunch) join(y device.Tensor, c span) {
	s, h, w := l.x.Stream, l.dims.hidden, l.x.Weights
	atE, atY := l.spec.Config.AheadColumns()
	op.Do(l.dev, s, op.GatherRows{Dst: l.e.of(c), Src: l.passX.t, Index: whole(l.x.Next, 1).of(c), T: c.n, C: h})
	ofE := l.rmsNorm(from(l.joined.of(c), atE), l.rstdE.of(c), l.e.of(c), w[model.RoleAheadEmbedNorm], c.n)
	ofY := l.rmsNorm(from(l.joined.of(c), atY), l.rstdY.of(c), l.hidden(y, c), w[model.RoleAheadHiddenNorm], c.n)
	ofE.YStride, ofY.YStride = 2*h, 2*h
	op.Do(l.dev, s, ofE)
	op.Do(l.dev, s, ofY)
}

// aheadInput writes the block's input to Out, and the final norm's output to Out's passenger.
func (l *aheadLaunch) aheadInput() {
	s, h, out := l.x.Stream, l.dims.hidden, whole(l.x.Out.Dev, l.dims.hidden)
	for c := range l.chunks() {
		y := l.passY.of(c)
		l.norm(s, y, device.Tensor{}, l.in.of(c), l.x.Weights, model.RoleFinalNorm, c.n)
		l.join(y, c)
		l.linear(s, out.of(c), l.joined.of(c), l.x.Weights[model.RoleAheadProj], device.Tensor{}, device.Tensor{}, c.n, 2*h, h)
	}
}

// aheadInputBackward turns Grad, the gradient of the block's input, into that of the layer's input. Grad's passenger has
// the gradient of the final norm's output before, and of the next tokens' embeddings after.
func (l *aheadLaunch) aheadInputBackward() {
	s, h, w, g, grad := l.x.Stream, l.dims.hidden, l.x.Weights, l.x.Grads, whole(l.x.Grad.Dev, l.dims.hidden)
	atE, atY := l.spec.Config.AheadColumns()
	for c := range l.chunks() {
		in, y, dy, pass, djoined := l.in.of(c), l.y.of(c), grad.of(c), l.passY.of(c), l.djoined.of(c)
		l.norm(s, y, l.rstd.of(c), in, w, model.RoleFinalNorm, c.n)
		l.join(y, c)
		l.inputGrad(s, djoined, dy, w[model.RoleAheadProj], c.n, h, 2*h)
		l.weightGrad(s, g[model.RoleAheadProj], dy, l.joined.of(c), c.n, h, 2*h, l.x.First && c.at == 0)
		ofY := l.rmsNormBackward(pass, g[model.RoleAheadHiddenNorm], from(djoined, atY), l.hidden(y, c), w[model.RoleAheadHiddenNorm], l.rstdY.of(c), c.n)
		if ofY.DYStride, ofY.Add = 2*h, true; l.spec.Config.AheadPlain() {
			l.backThroughNorm(s, w, g, model.RoleFinalNorm, dy, pass, in, l.rstd.of(c), c.n, false)
			ofY.DX = dy
			op.Do(l.dev, s, ofY)
		} else {
			op.Do(l.dev, s, ofY)
			l.backThroughNorm(s, w, g, model.RoleFinalNorm, dy, pass, in, l.rstd.of(c), c.n, false)
		}
		ofE := l.rmsNormBackward(pass, g[model.RoleAheadEmbedNorm], from(djoined, atE), l.e.of(c), w[model.RoleAheadEmbedNorm], l.rstdE.of(c), c.n)
		ofE.DYStride = 2 * h
		op.Do(l.dev, s, ofE)
	}
}

// aheadNorm writes the norm of the block's output.
func (l *aheadLaunch) aheadNorm() {
	s, out := l.x.Stream, whole(l.x.Out.Dev, l.dims.hidden)
	s.CopyD2D(l.passY.t.Mem(), l.passX.t.Mem())
	for c := range l.chunks() {
		l.norm(s, out.of(c), device.Tensor{}, l.in.of(c), l.x.Weights, model.RoleAheadNorm, c.n)
	}
}

func (l *aheadLaunch) aheadNormBackward() {
	s, w, grad := l.x.Stream, l.x.Weights, whole(l.x.Grad.Dev, l.dims.hidden)
	for c := range l.chunks() {
		l.norm(s, l.y.of(c), l.rstd.of(c), l.in.of(c), w, model.RoleAheadNorm, c.n)
		l.backThroughNorm(s, w, l.x.Grads, model.RoleAheadNorm, grad.of(c), grad.of(c), l.in.of(c), l.rstd.of(c), c.n, false)
	}
}
