package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// recurrence is a sequence mixer that replaces attention in recurrent blocks, or runs beside attention. Each
// implementation has a file.
type recurrence interface {
	// widths returns d with the widths of a block with this recurrence in place of attention's.
	widths(d dims) dims
	// keepStates and keepInputs set fields of b to buffers that the forward keeps for the backward, and take these
	// buffers from mem. How much is kept depends on the block's level (see Keep). From level KeepAttention on, the
	// block keeps its output o and the buffers of keepStates. From level KeepQKV on, it keeps its inputs qkv and the
	// buffers of keepInputs.
	keepStates(b *buffers, d dims, tokens int, mem *allotter)
	keepInputs(b *buffers, d dims, tokens int, mem *allotter)
	// buffers takes from ws the recurrence's own buffers, except those that the forward keeps at
	// level keep. With backward, it also takes the buffers of the backward.
	buffers(s Spec, b *buffers, d dims, keep Keep, tokens int, backward bool, ws *allotter)
	// project writes qkv, the recurrence's inputs, for the tokens of chunk c from n, the normed hidden states.
	project(l *launch, n device.Tensor, c span)
	// convolve and, after it, scan write o, the recurrence's output, for the whole micro-batch. In
	// generation tail and last are the growing sequence's cache: the convolution's last input rows,
	// and the state after the last token. Otherwise they are none.
	convolve(l *launch, tail device.Tensor)
	scan(l *launch, last device.Tensor)
	// convolves reports whether scan's backward reads a result of convolve. No level keeps that
	// result, so the backward then runs convolve again.
	convolves() bool
	// backward writes dqkv, the gradients of the inputs, from do, the gradient of o.
	backward(l *launch)
	// projectBackward overwrites l.normed, the normed hidden states of chunk c, with their gradient.
	projectBackward(l *launch, c span)
	// cache takes from a the memory that generation keeps for a block: tail and last (see convolve).
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
	case c.KDA != nil:
		return kda{c.KDA}
	}
	return nil
}

// forRecurrent returns d changed for a recurrent block: the widths and parameter roles of its
// recurrence replace attention's.
func (d dims) forRecurrent() dims {
	d.recurrent, d.groups, d.gated, d.qkNorm, d.sinks, d.mla, d.kv = true, false, false, false, false, nil, 0
	d.outRole, d.outBias, d.output = model.RoleRecurOut, model.RoleRecurOutBias, plainOutput{}
	d = d.recurrence.widths(d)
	d.raw, d.normsV = d.qkv, false
	return d
}

// besides returns the widths of the recurrence that runs beside attention in the same block. d has
// attention's widths.
func (d dims) besides() dims {
	d.beside = false
	return d.forRecurrent()
}

// takeSide makes l.side, the launch of the recurrence that runs beside attention, if the block has
// one. l.side shares everything with l except the widths, the buffers and the link.
func (l *launch) takeSide() {
	if l.dims.beside {
		side := *l
		side.dims, side.buffers, side.link = l.dims.besides(), *l.buffers.side, nearLink{}
		l.side = &side
	}
}

// scaleColumns multiplies n columns of x, beginning at column at, by factor, in a number of rows that are stride
// elements apart.
func (t *Templates) scaleColumns(s device.Stream, x device.Tensor, at, n, rows, stride int, factor float64) {
	if factor != 1 && n > 0 {
		op.Do(t.dev, s, op.Scale{X: from(x, at), N: int64(n), Factor: float32(factor), Rows: rows, Stride: stride})
	}
}

// scaleValues multiplies the columns of the values in qkv, or of their gradient, by Config.Multipliers.Value for the
// tokens of chunk c.
func (l *launch) scaleValues(qkv device.Tensor, c span) {
	if m := l.spec.Config.Multipliers; m != nil {
		l.scaleColumns(l.s, qkv, l.dims.q+l.dims.kv, l.dims.kv, c.n, l.dims.qkv, m.Value)
	}
}

// recur runs the recurrence, which writes l.o for the whole micro-batch. In generation tail and
// last are the sequence's cache, otherwise none.
func (l *launch) recur(tail, last device.Tensor) {
	l.dims.recurrence.convolve(l, tail)
	l.dims.recurrence.scan(l, last)
}

// recurrentCacheBytes returns the device memory of a recurrent block's cache, whose size does not depend on the number
// of tokens. The computation needs no device.
func (s Spec) recurrentCacheBytes() int64 {
	a := allotter{dry: true}
	d := newDims(s)
	d.recurrence.cache(d, &a)
	return a.used
}

// decode runs the recurrence for the new tokens of a growing sequence, for generation. It starts from the sequence's
// cache, writes l.o, the recurrence's output, and updates the cache.
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
