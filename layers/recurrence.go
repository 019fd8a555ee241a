package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// recurrence replaces attention in recurrent blocks, or runs beside it. Each kind has a file.
type recurrence interface {
	// widths returns d with the widths of a block with the recurrence.
	widths(d dims) dims
	// keepStates and keepInputs take from mem what KeepAttention and KeepQKV keep besides o and qkv.
	keepStates(b *buffers, d dims, tokens int, mem *allotter)
	keepInputs(b *buffers, d dims, tokens int, mem *allotter)
	// buffers takes from ws the buffers of its own that keep does not keep.
	buffers(s Spec, b *buffers, d dims, keep Keep, tokens int, backward bool, ws *allotter)
	// project writes the inputs of a chunk from the normed input n.
	project(l *launch, n device.Tensor, c span)
	// convolve and scan write o of the whole micro-batch. tail and last are none, or the cache of a growing sequence:
	// rows of the convolution, and the state.
	convolve(l *launch, tail device.Tensor)
	scan(l *launch, last device.Tensor)
	// convolves reports that convolve writes an input of scan's backward. No level keeps that input.
	convolves() bool
	// backward writes the gradients of the inputs from do.
	backward(l *launch)
	// projectBackward turns n of a chunk, the normed input, into its gradient.
	projectBackward(l *launch, c span)
	// cache allots what generation keeps of a block: tail and last.
	cache(d dims, a *allotter) (tail, last device.Tensor)
}

// recurrenceOf returns the recurrence of the model's recurrent blocks; nil: the model has none.
func recurrenceOf(c *model.Config) recurrence {
	switch {
	case c.GatedDeltaNet != nil:
		return gatedDeltaNet{c.GatedDeltaNet}
	case c.Mamba2 != nil:
		return mamba2{c.Mamba2}
	case c.ShortConv != nil:
		return shortConv{c.ShortConv}
	}
	return nil
}

// forRecurrent returns the widths of a recurrent block.
func (d dims) forRecurrent() dims {
	d.recurrent, d.gated, d.qkNorm, d.sinks, d.mla, d.kv = true, false, false, false, nil, 0
	d.outRole, d.outBias, d.output = model.RoleRecurOut, model.RoleRecurOutBias, plainOutput{}
	d = d.recurrence.widths(d)
	d.raw, d.normsV = d.qkv, false
	return d
}

// besides returns the widths of the mixer beside attention.
func (d dims) besides() dims {
	d.beside = false
	return d.forRecurrent()
}

// takeSide sets the launch of the mixer beside attention, which has buffers of its own.
func (l *launch) takeSide() {
	if l.dims.beside {
		side := *l
		side.dims, side.buffers = l.dims.besides(), *l.buffers.side
		l.side = &side
	}
}

// scaleColumns multiplies n columns, from column at on, of the rows of a chunk by factor.
func (t *Templates) scaleColumns(s device.Stream, x device.Tensor, at, n, rows, stride int, factor float64) {
	if factor != 1 && n > 0 {
		op.Do(t.dev, s, op.Scale{X: from(x, at), N: int64(n), Factor: float32(factor), Rows: rows, Stride: stride})
	}
}

// scaleValues multiplies the values of a chunk, or their gradient.
func (l *launch) scaleValues(qkv device.Tensor, c span) {
	if m := l.spec.Config.Multipliers; m != nil {
		l.scaleColumns(l.s, qkv, l.dims.q+l.dims.kv, l.dims.kv, c.n, l.dims.qkv, m.Value)
	}
}

// recur writes o of the whole micro-batch.
func (l *launch) recur(tail, last device.Tensor) {
	l.dims.recurrence.convolve(l, tail)
	l.dims.recurrence.scan(l, last)
}

// recurrentCacheBytes returns the device memory of a recurrent block's cache, whose size does not depend on the number
// of tokens. It needs no device.
func (s Spec) recurrentCacheBytes() int64 {
	a := allotter{dry: true}
	d := newDims(s)
	d.recurrence.cache(d, &a)
	return a.used
}

// decode writes o of the new tokens of a growing sequence from its cache, and updates the cache.
func (l *launch) decode(step CacheStep, cache device.Mem) {
	tail, last := l.dims.recurrence.cache(l.dims, &allotter{mem: cache})
	if step.Start == 0 {
		l.s.Zero(cache)
	}
	l.mb.Cu, l.mb.Seqs = step.CuQ, 1
	for c := range l.chunks() {
		l.project(c)
	}
	l.recur(tail, last)
}
