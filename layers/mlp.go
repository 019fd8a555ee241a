package layers

import (
	"mt/device"
	"mt/layers/schedule"
	"mt/model"
)

// mlpKind is the kind of a decoder block that is a dense MLP alone: y = x + mlp(norm(x)).
type mlpKind struct{ plainKind }

func (mlpKind) Stages(Spec, model.Layout) schedule.Layer { return once(schedule.Block) }

func (mlpKind) SavedBytes(s Spec, block int, keep Keep, tokens int) int64 {
	saved := allotter{dry: true}
	s.mlpBuffers(s.dims(block), keep, tokens, false, &saved, &allotter{dry: true})
	return saved.used
}

func (mlpKind) WorkspaceBytes(s Spec, backward bool) (most int64) {
	for d, keep := range s.leastKept(model.MLP) {
		if !backward {
			keep = KeepNothing
		}
		ws := allotter{dry: true}
		s.mlpBuffers(d, keep, s.MaxTokens, backward, &allotter{dry: true}, &ws)
		most = max(most, ws.used)
	}
	return most
}

func (mlpKind) Launch(t *Templates, x *Launch) {
	saved, mb := x.Saved.Dev, x.MicroBatch
	switch x.Visit.Phase {
	case schedule.Backward:
		t.mlpAloneBackward(x)
		return
	case schedule.Generate:
		saved, mb = device.Mem{}, MicroBatch{Tokens: x.Cached.Tokens}
	case schedule.Evaluate:
		saved = device.Mem{}
	}
	l := t.newMLP(x, mb, saved, false)
	l.between(x.In, x.Out)
	l.passOn()
	for c := range l.chunks() {
		fetch(l.s, c, l.x)
		l.mlpOf(l.x, c)
		store(l.s, c, l.y)
	}
}

// mlpAloneBackward turns x.Grad, the gradient of the block's output, into that of its input, and accumulates x.Grads.
func (t *Templates) mlpAloneBackward(x *Launch) {
	l := t.newMLP(x, x.MicroBatch, x.Saved.Dev, true)
	l.g, l.first = x.Grads, x.First
	l.between(x.In, x.Grad)
	if l.first {
		zeroVectors(l.s, l.g)
	}
	for c := range l.chunks() {
		fetch(l.s, c, l.x, l.y)
		l.mlpBackward(c)
		store(l.s, c, l.y)
	}
}

func (t *Templates) newMLP(x *Launch, mb MicroBatch, saved device.Mem, backward bool) *launch {
	t.spec.fits(mb.Tokens)
	l := &launch{Templates: t, s: x.Stream, block: x.Block, dims: t.spec.dims(x.Block), w: x.Weights, mb: mb, keep: t.spec.keptIn(x.Block, saved)}
	l.dims.parallel = true // the MLP reads the block's input
	l.buffers = t.spec.mlpBuffers(l.dims, l.keep, mb.Tokens, backward, &allotter{mem: saved}, &allotter{mem: x.Workspace})
	return l
}

// mlpBuffers returns the buffers of such a block; see blockBuffers.
func (s Spec) mlpBuffers(d dims, keep Keep, tokens int, backward bool, saved, ws *allotter) (b buffers) {
	chunk := chunkOf(s.ChunkTokens, tokens)
	if keep >= KeepAll {
		b.gu = saved.wholeRows(d.act, tokens, d.up)
	} else {
		b.gu = ws.chunkRows(d.act, chunk, d.up)
	}
	if keep >= KeepInputs {
		s.keepMLPInputs(&b, d, tokens, saved)
	}
	if b.act.width == 0 {
		b.act = ws.chunkRows(d.act, chunk, d.ffn)
	}
	b.n = ws.chunkRows(d.act, chunk, d.hidden)
	if backward {
		b.rstd = ws.chunkRows(device.F32, chunk, d.stats)
	}
	s.stateBuffers(&b, d, chunk, ws)
	return b
}
