package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// mamba2 implements a block's recurrence as a Mamba-2 mixer (model.Mamba2). One product makes qkv
// (T, Columns): z, x, b, c and a step for each head. A short convolution along each sequence
// changes x, b and c. The state space scan writes o (T, Inner). SiLU(z)·o, normed in groups, is the
// input of the output projection. Source: arXiv:2405.21060; transformers, modeling_mamba2.
type mamba2 struct{ *model.Mamba2 }

// ssdBuffers are a launch's buffers in a block with a Mamba-2 mixer.
//
//	conv (T, Convolved) act: x, b and c after the convolution
//	states f32: op.SSD.States
//	normed (C, Inner) act: the projection's input, then its gradient; rstd (Groups, C) f32: of the norm
//
// In the backward dconv and dstates have the sizes of conv and states.
type ssdBuffers struct {
	conv, dconv, normed rows
	states, dstates     device.Tensor
	rstd                device.Tensor
	chunk               int // C
}

func (r mamba2) widths(d dims) dims {
	d.gated, d.output = true, mamba2Outputs{r}
	d.o, d.out, d.qkv = r.Inner(), r.Inner(), r.Columns()
	return d
}

func (r mamba2) statesLen(tokens int) int { return r.ssdShape(tokens).StatesLen() }

func (r mamba2) ssdShape(tokens int) *op.SSDShape {
	return &op.SSDShape{T: tokens, Groups: r.Groups, Heads: r.Heads, HeadDim: r.HeadDim, StateDim: r.StateDim, DtStride: r.Columns(),
		DtMin: float32(r.DtMin), DtMax: float32(r.DtMax)}
}

func (r mamba2) keepStates(b *buffers, _ dims, tokens int, mem *allotter) {
	b.ssd.states = mem.take(device.F32, r.statesLen(tokens))
}

func (mamba2) keepInputs(*buffers, dims, int, *allotter) {}

func (r mamba2) buffers(s Spec, all *buffers, d dims, keep Keep, tokens int, backward bool, ws *allotter) {
	b := &all.ssd
	if keep < KeepAttention {
		r.keepStates(all, d, tokens, ws)
	}
	b.chunk = chunkOf(s.ChunkTokens, tokens)
	b.conv, b.normed = ws.wholeRows(d.act, tokens, r.Convolved()), ws.chunkRows(d.act, b.chunk, d.out)
	b.rstd = ws.take(device.F32, b.chunk*r.Groups)
	if backward {
		b.dconv, b.dstates = ws.wholeRows(d.act, tokens, r.Convolved()), ws.take(device.F32, r.statesLen(tokens))
	}
}

func (r mamba2) project(l *launch, n device.Tensor, c span) {
	l.linear(l.s, l.qkv.of(c), n, l.w[model.RoleRecurIn], device.Tensor{}, l.w[model.RoleRecurInBias], c.n, l.dims.hidden, l.dims.qkv)
	r.scaleInputs(l, l.qkv.of(c), c)
}

// scaleInputs multiplies the columns z, x, b, c and steps of qkv, or of their gradients, each by its factor in
// Config.Multipliers.ScanIn, for the tokens of chunk c.
func (r mamba2) scaleInputs(l *launch, qkv device.Tensor, c span) {
	m, at := l.spec.Config.Multipliers, 0
	for i, n := range [...]int{r.Inner(), r.Inner(), r.Groups * r.StateDim, r.Groups * r.StateDim, r.Heads} {
		if m != nil {
			l.scaleColumns(l.s, qkv, at, n, c.n, l.dims.qkv, m.ScanIn[i])
		}
		at += n
	}
}

func (r mamba2) convolve(l *launch, tail device.Tensor) {
	op.Do(l.dev, l.s, op.ShortConv{Y: l.ssd.conv.t, X: from(l.qkv.t, r.Inner()), W: l.w[model.RoleRecurTaps], Bias: l.w[model.RoleRecurTapsBias], Cu: l.mb.Cu,
		Tail: tail, Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv})
}

func (mamba2) convolves() bool { return true }

// shape returns the shape of a launch's scan: the state space recurrence over all of the micro-batch's sequences.
func (r mamba2) shape(l *launch) op.SSDShape {
	a := *r.ssdShape(l.mb.Tokens)
	a.Cu, a.Seqs = l.mb.Cu, l.mb.Seqs
	return a
}

func (r mamba2) stepsAt() int { return r.Columns() - r.Heads }

func (r mamba2) scan(l *launch, last device.Tensor) {
	op.Do(l.dev, l.s, op.SSD{SSDShape: r.shape(l), O: l.o.t, XBC: l.ssd.conv.t, Dt: from(l.qkv.t, r.stepsAt()), ALog: l.w[model.RoleRecurDecay],
		DtBias: l.w[model.RoleRecurDtBias], D: l.w[model.RoleRecurSkip], States: l.ssd.states, Last: last})
}

// backward writes the gradients of x, b, c and the steps into their columns of l.dqkv.
// mamba2Outputs.grad writes the gradient of z.
func (r mamba2) backward(l *launch) {
	b := l.ssd
	op.Do(l.dev, l.s, op.SSDBackward{SSDShape: r.shape(l), DXBC: b.dconv.t, DDt: from(l.dqkv.t, r.stepsAt()), DALog: l.g[model.RoleRecurDecay],
		DDtBias: l.g[model.RoleRecurDtBias], DD: l.g[model.RoleRecurSkip], DStates: b.dstates, DO: l.do.t, XBC: b.conv.t, Dt: from(l.qkv.t, r.stepsAt()),
		ALog: l.w[model.RoleRecurDecay], DtBias: l.w[model.RoleRecurDtBias], D: l.w[model.RoleRecurSkip], States: b.states})
	op.Do(l.dev, l.s, op.ShortConvBackward{DX: from(l.dqkv.t, r.Inner()), DW: l.g[model.RoleRecurTaps], DBias: l.g[model.RoleRecurTapsBias], DY: b.dconv.t,
		X: from(l.qkv.t, r.Inner()), W: l.w[model.RoleRecurTaps], Bias: l.w[model.RoleRecurTapsBias], Cu: l.mb.Cu, Seqs: l.mb.Seqs, T: l.mb.Tokens,
		C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv, DXStride: l.dims.qkv})
}

func (r mamba2) projectBackward(l *launch, c span) {
	d, n, dqkv := l.dims, l.normed.y.of(c), l.dqkv.of(c)
	r.scaleInputs(l, dqkv, c)
	l.weightGrad(l.s, l.g[model.RoleRecurIn], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.biasGrad(model.RoleRecurInBias, dqkv, c.n, d.qkv)
	l.inputGrad(l.s, n, dqkv, l.w[model.RoleRecurIn], c.n, d.qkv, d.hidden)
}

func (r mamba2) cache(d dims, a *allotter) (tail, last device.Tensor) {
	return a.take(d.act, (r.Taps-1)*r.Convolved()), a.take(device.F32, r.Inner()*r.StateDim)
}

// mamba2Outputs multiplies the scan's output by SiLU(z) and norms the product in groups of columns.
type mamba2Outputs struct{ mamba2 }

func (m mamba2Outputs) of(l *launch, c span) device.Tensor {
	d, both, narrow := l.dims, l.gate.both.of(c), l.gate.narrow.of(c)
	op.Do(l.dev, l.s, op.CopyColumns{Dst: both, Src: l.qkv.of(c), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: d.qkv})
	op.Do(l.dev, l.s, op.CopyColumns{Dst: from(both, d.out), Src: l.o.of(c), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: d.out})
	op.Do(l.dev, l.s, op.GLU{Activation: op.SiLU, Y: narrow, GU: both, T: c.n, F: d.out})
	if m.NoNorm {
		m.scaleOutput(l, narrow, c)
		return narrow
	}
	for g := range m.Groups {
		a := op.RMSNorm{Y: from(l.ssd.normed.of(c), m.at(g)), RStd: m.rstd(l, g), X: from(narrow, m.at(g)), W: m.weight(l.w[model.RoleRecurNorm], g), Rows: c.n,
			Groups: 1, Dim: d.out / m.Groups, XStride: d.out, YStride: d.out, Eps: l.spec.Config.RMSNormEps}
		op.Do(l.dev, l.s, a)
	}
	m.scaleOutput(l, l.ssd.normed.of(c), c)
	return l.ssd.normed.of(c)
}

// scaleOutput multiplies x, the output projection's input or its gradient, by Config.Multipliers.ScanOut for the tokens
// of chunk c.
func (m mamba2Outputs) scaleOutput(l *launch, x device.Tensor, c span) {
	if by := l.spec.Config.Multipliers; by != nil {
		l.scaleColumns(l.s, x, 0, l.dims.out, c.n, l.dims.out, by.ScanOut)
	}
}

// at returns the first column of group g. The norm of the output divides the Inner columns into
// Groups equal groups.
func (m mamba2Outputs) at(g int) int { return g * m.Inner() / m.Groups }

// rstd returns the norm's statistics of group g, and weight the group's part of w: of the norm's weight or of its
// gradient.
func (m mamba2Outputs) rstd(l *launch, g int) device.Tensor {
	return l.ssd.rstd.Slice(int64(g*l.ssd.chunk), int64(l.ssd.chunk))
}

func (m mamba2Outputs) weight(w device.Tensor, g int) device.Tensor {
	if w.None() {
		return w
	}
	return w.Slice(int64(m.at(g)), int64(m.Inner()/m.Groups))
}

// grad is the backward of mamba2Outputs.of for the tokens of chunk c. It writes l.do, the gradient
// of the scan's output, and the gradient of z, from dy, the gradient of the block's output. It
// reads values in l.gate and l.ssd that a call of `of` for the same chunk has just left there.
func (m mamba2Outputs) grad(l *launch, dy device.Tensor, c span) {
	d, both, normed := l.dims, l.gate.both.of(c), l.ssd.normed.of(c)
	l.inputGrad(l.s, normed, dy, l.w[d.outRole], c.n, d.hidden, d.out)
	m.scaleOutput(l, normed, c)
	for g := 0; g < m.Groups && !m.NoNorm; g++ {
		dx := from(normed, m.at(g))
		op.Do(l.dev, l.s, op.RMSNormBackward{DX: dx, DW: m.weight(l.g[model.RoleRecurNorm], g), DY: dx, X: from(l.gate.narrow.of(c), m.at(g)),
			W: m.weight(l.w[model.RoleRecurNorm], g), RStd: m.rstd(l, g), Rows: c.n, Groups: 1, Dim: d.out / m.Groups, DXStride: d.out, DYStride: d.out,
			XStride: d.out})
	}
	op.Do(l.dev, l.s, op.GLUBackward{Activation: op.SiLU, DGU: both, DY: normed, GU: both, T: c.n, F: d.out})
	op.Do(l.dev, l.s, op.CopyColumns{Dst: l.dqkv.of(c), Src: both, T: c.n, C: d.out, DstStride: d.qkv, SrcStride: 2 * d.out})
	op.Do(l.dev, l.s, op.CopyColumns{Dst: l.do.of(c), Src: from(both, d.out), T: c.n, C: d.out, DstStride: d.out, SrcStride: 2 * d.out})
}
