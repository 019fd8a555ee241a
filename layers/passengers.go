package layers

import (
	"mt/device"
	"mt/device/op"
)

// This file has the passengers of a hidden state. A hidden state is (T, h) act. In a model with per-layer inputs or
// shared keys and values, passengers for later blocks follow these rows in the same memory, and pass from block to
// block:
//
//	(T, L·P) act: the per-layer inputs of all blocks
//	(T, 2·KV·D) act: keys and values of the blocks with a window, after norm and rotation, if blocks share them
//	(T, 2·KV·D) act: the same for blocks without a window
//	(T, h) act: with multi-token prediction the embedding; from the layer AheadInput on, the output of the final norm
//
// A gradient of a hidden state has the gradients of the passengers in their places. In the backward each reader adds to
// them, so the block that makes the keys and values finds the sum over all readers.

// StateWidth returns the elements per token of a hidden state with its passengers.
func (s Spec) StateWidth() int { return s.Config.HiddenSize + s.passengers().width }

// HiddenWidth returns StateWidth and, if parts of the head are on several lanes, the elements of the sums that they pass
// on (headshard.go). In other hidden states this memory has no meaning.
func (s Spec) HiddenWidth() int {
	n := s.StateWidth()
	if s.HeadLanes != nil {
		n += int(sumBytes / s.Act.Size())
	}
	return n
}

// passengers has the widths of a hidden state's passengers in elements per token, and the sum of these widths.
type passengers struct {
	inputs          int
	local, global   int // of keys and values
	width           int
	localAt, fullAt int // where the passengers local and global begin
}

func (s Spec) passengers() (p passengers) {
	c := s.Config
	p.inputs = c.NumLayers * c.PerLayerSize
	for b := range c.NumLayers {
		if heads := c.Heads(b); !heads.Shared {
			continue
		} else if wide := 2 * heads.KV * heads.Dim; c.Window(b) > 0 {
			p.local = wide
		} else {
			p.global = wide
		}
	}
	p.localAt, p.fullAt = p.inputs, p.inputs+p.local
	p.width = p.fullAt + p.global + c.Ahead*c.HiddenSize
	return p
}

// passengersOf returns the passengers that follow the rows of a hidden state on the device; none: the model has none.
func (t *Templates) passengersOf(mb MicroBatch, x device.Tensor) device.Tensor {
	n := int64(mb.Tokens)
	if t.spec.passengers().width == 0 || x.None() {
		return device.Tensor{}
	}
	return x.Slice(n*int64(t.dims.hidden), n*int64(t.spec.passengers().width))
}

// passOn copies the passengers of the input to the output.
func (l *launch) passOn() {
	if !l.passX.None() {
		l.s.CopyD2D(l.passY.Mem(), l.passX.Mem())
	}
}

// kvPassenger returns the keys and values among the passengers all: those that the block reads or lends.
func (l *launch) kvPassenger(all device.Tensor) rows {
	p, n := l.spec.passengers(), int64(l.mb.Tokens)
	at := p.fullAt
	if l.spec.Config.Window(l.block) > 0 {
		at = p.localAt
	}
	width := 2 * l.dims.kv
	return whole(all.Slice(n*int64(at), n*int64(width)), width)
}

// shareKV completes packed rows x of chunk c, which attention reads. A block without keys and values copies them from
// its input's passenger. A block that lends its own copies them to its output's passenger; in the backward they are there
// already.
func (l *launch) shareKV(x device.Tensor, c span) {
	d := l.dims
	switch {
	case d.shared:
		l.columns(l.s, from(x, d.q), l.kvPassenger(l.passX).of(c), c.n, 2*d.kv, d.qkv, 2*d.kv)
	case d.lends && l.g == nil:
		l.columns(l.s, l.kvPassenger(l.passY).of(c), from(x, d.q), c.n, 2*d.kv, 2*d.kv, d.qkv)
	}
}

// shareKVGrad moves gradients of keys and values between the packed rows dqkv of chunk c and the passenger of the gradient.
// A reader adds its gradient to the passenger; the last reader, whose backward is the first, writes it. The block that
// lends adds the passenger to its own gradient.
func (l *launch) shareKVGrad(dqkv device.Tensor, c span) {
	d := l.dims
	if !d.shared && !d.lends {
		return
	}
	own, passenger := l.kv.of(c), l.kvPassenger(l.passY).of(c)
	if d.shared && l.spec.Config.LastReader(l.block) {
		l.columns(l.s, passenger, from(dqkv, d.q), c.n, 2*d.kv, 2*d.kv, d.qkv)
		return
	}
	l.columns(l.s, own, from(dqkv, d.q), c.n, 2*d.kv, 2*d.kv, d.qkv)
	if d.shared {
		l.add(passenger, own)
		return
	}
	l.add(own, passenger)
	l.columns(l.s, from(dqkv, d.q), own, c.n, 2*d.kv, d.qkv, 2*d.kv)
}

// add adds x to y, two tensors of the same length, as one learned position would be added to one token.
func (l *launch) add(y, x device.Tensor) {
	zero := l.zeros.t.Slice(0, 1)
	l.s.Zero(zero.Mem())
	op.Do(l.dev, l.s, op.AddPositions{Y: y, X: y, Table: x, Pos: zero, T: 1, C: int(y.Len)})
}

// columns copies n columns of rows rows of src to dst; the strides are the elements between rows.
func (t *Templates) columns(s device.Stream, dst, src device.Tensor, rows, n, dstStride, srcStride int) {
	op.Do(t.dev, s, op.CopyColumns{Dst: dst, Src: src, T: rows, C: n, DstStride: dstStride, SrcStride: srcStride})
}
