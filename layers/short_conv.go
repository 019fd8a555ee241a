package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// shortConv implements a block's recurrence as a gated short convolution (model.ShortConv) with C
// channels. One product makes qkv (T, 3·C): b, c and x of a token. One operation computes o (T, C)
// = c·conv(b·x). There is no state. Source: arXiv:2511.23404; transformers, modeling_lfm2.
type shortConv struct{ *model.ShortConv }

func (r shortConv) widths(d dims) dims {
	d.o, d.out, d.qkv = r.Channels, r.Channels, 3*r.Channels
	return d
}

func (shortConv) keepStates(*buffers, dims, int, *allotter) {}
func (shortConv) keepInputs(*buffers, dims, int, *allotter) {}

func (shortConv) buffers(Spec, *buffers, dims, Keep, int, bool, *allotter) {}

func (shortConv) project(l *launch, n device.Tensor, c span) {
	l.linear(l.s, l.qkv.of(c), n, l.w[model.RoleRecurIn], device.Tensor{}, l.w[model.RoleRecurInBias], c.n, l.dims.hidden, l.dims.qkv)
}

func (shortConv) convolve(*launch, device.Tensor) {}
func (shortConv) convolves() bool                 { return false }

// scan runs the convolution. This recurrence has no state, so last, the only tensor that cache
// takes for generation, holds the convolution's last input rows.
func (r shortConv) scan(l *launch, last device.Tensor) {
	op.Do(l.dev, l.s, op.ShortConv{Y: l.o.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Bias: l.w[model.RoleRecurTapsBias], Cu: l.mb.Cu, Tail: last,
		Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Channels, Taps: r.Taps, XStride: l.dims.qkv, Gated: true})
}

func (r shortConv) backward(l *launch) {
	op.Do(l.dev, l.s, op.ShortConvBackward{DX: l.dqkv.t, DW: l.g[model.RoleRecurTaps], DBias: l.g[model.RoleRecurTapsBias], DY: l.do.t, X: l.qkv.t,
		W: l.w[model.RoleRecurTaps], Bias: l.w[model.RoleRecurTapsBias], Cu: l.mb.Cu, Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Channels, Taps: r.Taps,
		XStride: l.dims.qkv, DXStride: l.dims.qkv, Gated: true})
}

func (shortConv) projectBackward(l *launch, c span) {
	d, n, dqkv := l.dims, l.normed.y.of(c), l.dqkv.of(c)
	l.weightGrad(l.s, l.g[model.RoleRecurIn], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleRecurInBias, dqkv, c.n, d.qkv)
	l.inputGrad(l.s, n, dqkv, l.w[model.RoleRecurIn], c.n, d.qkv, d.hidden)
}

func (r shortConv) cache(d dims, a *allotter) (tail, last device.Tensor) {
	return device.Tensor{}, a.take(d.act, (r.Taps-1)*op.ConvWidth(r.Channels, true))
}
