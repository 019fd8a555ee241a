package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// kda is a gated delta net whose state decays channel by channel (model.KDA). One product makes q, k and v, which pass a
// short convolution. Another makes b and two narrow vectors, from which two products make the decays' inputs and the
// gate z. The rule's output is normed head by head and multiplied by the sigmoid of z. Source: arXiv:2510.26692;
// transformers, modeling_kimi_linear.
type kda struct{ *model.KDA }

// kdaBuffers are a launch's buffers in a block with KDA; W is model.KDA.Width. o is (T, W) and qkv (T, 3·W).
//
//	low (T, Narrow) act: b, and the narrow vectors of decays and gate
//	rates (T, W) act: inputs of the decays
//	conv (T, 3·W) act: q, k and v after the convolution
//	narrow (C, Dim) act: one narrow vector
//	states f32: op.GatedDelta.States
//
// In the backward:
//
//	dlow, drates, dconv: gradients of low, rates and conv
//	dnarrow (C, Dim) act: gradient of narrow
//
// The gate and its gradient are in gateBuffers.
type kdaBuffers struct {
	low, rates, conv, narrow     rows
	dlow, drates, dconv, dnarrow rows
	states                       device.Tensor
}

func (r kda) widths(d dims) dims {
	d.gated, d.output = true, gatedOutputs{activation: op.SigmoidGate, heads: r.Heads, dim: r.Dim}
	d.o, d.out, d.qkv = r.Width(), r.Width(), r.Convolved()
	return d
}

func (r kda) deltaShape(tokens int) op.DeltaShape {
	return op.DeltaShape{T: tokens, KeyHeads: r.Heads, Heads: r.Heads, KeyDim: r.Dim, ValueDim: r.Dim, GateStride: r.Narrow(), ByChannel: true}
}

func (r kda) statesLen(tokens int) int {
	a := r.deltaShape(tokens)
	return a.StatesLen()
}

func (r kda) keepStates(b *buffers, _ dims, tokens int, mem *allotter) {
	b.kda.states = mem.take(device.F32, r.statesLen(tokens))
}

func (r kda) keepInputs(b *buffers, d dims, tokens int, mem *allotter) {
	b.kda.low, b.kda.rates = mem.wholeRows(d.act, tokens, r.Narrow()), mem.wholeRows(d.act, tokens, r.Width())
	b.gate.z = mem.wholeRows(d.act, tokens, r.Width())
}

func (r kda) buffers(s Spec, all *buffers, d dims, keep Keep, tokens int, backward bool, ws *allotter) {
	b, chunk := &all.kda, chunkOf(s.ChunkTokens, tokens)
	if keep < KeepAttention && backward {
		r.keepStates(all, d, tokens, ws)
	}
	if keep < KeepQKV {
		r.keepInputs(all, d, tokens, ws)
	}
	b.conv, b.narrow = ws.wholeRows(d.act, tokens, r.Convolved()), ws.chunkRows(d.act, chunk, r.Dim)
	if backward {
		b.dlow, b.drates = ws.wholeRows(d.act, tokens, r.Narrow()), ws.wholeRows(d.act, tokens, r.Width())
		all.gate.dz, b.dconv = ws.wholeRows(d.act, tokens, r.Width()), ws.wholeRows(d.act, tokens, r.Convolved())
		b.dnarrow, all.gate.rstd = ws.chunkRows(d.act, chunk, r.Dim), ws.chunkRows(device.F32, chunk, r.Heads)
	}
}

// widened is one of the two products from a narrow vector.
type widened struct {
	role       model.Role
	at         int // column of the narrow vector in a row of low
	wide, grad rows
}

func (r kda) widened(l *launch) [2]widened {
	return [2]widened{{model.RoleRecurDecayB, r.Heads, l.kda.rates, l.kda.drates}, {model.RoleRecurGateB, r.Heads + r.Dim, l.gate.z, l.gate.dz}}
}

// narrow copies the narrow vectors of the tokens of chunk c that begin at column at of a row of low, and returns them.
func (r kda) narrow(l *launch, at int, c span) device.Tensor {
	op.Do(l.dev, l.s, op.CopyColumns{Dst: l.kda.narrow.of(c), Src: from(l.kda.low.of(c), at), T: c.n, C: r.Dim, DstStride: r.Dim, SrcStride: r.Narrow()})
	return l.kda.narrow.of(c)
}

func (r kda) project(l *launch, n device.Tensor, c span) {
	d, none := l.dims, device.Tensor{}
	l.linear(l.s, l.qkv.of(c), n, l.w[model.RoleRecurIn], none, none, c.n, d.hidden, d.qkv)
	l.linear(l.s, l.kda.low.of(c), n, l.w[model.RoleRecurGates], none, none, c.n, d.hidden, r.Narrow())
	for _, to := range r.widened(l) {
		l.linear(l.s, to.wide.of(c), r.narrow(l, to.at, c), l.w[to.role], none, none, c.n, r.Dim, r.Width())
	}
}

func (r kda) convolve(l *launch, tail device.Tensor) {
	op.Do(l.dev, l.s, op.ShortConv{Y: l.kda.conv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu, Tail: tail, Seqs: l.mb.Seqs, T: l.mb.Tokens,
		C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv})
}

func (kda) convolves() bool { return true }

func (r kda) shape(l *launch) op.DeltaShape {
	a := r.deltaShape(l.mb.Tokens)
	a.Cu, a.Seqs = l.mb.Cu, l.mb.Seqs
	return a
}

func (r kda) scan(l *launch, last device.Tensor) {
	op.Do(l.dev, l.s, op.GatedDelta{DeltaShape: r.shape(l), O: l.o.t, QKV: l.kda.conv.t, Gates: l.kda.low.t, A: l.kda.rates.t,
		ALog: l.w[model.RoleRecurDecay], DtBias: l.w[model.RoleRecurDtBias], States: l.kda.states, Last: last})
}

func (r kda) backward(l *launch) {
	b := l.kda
	op.Do(l.dev, l.s, op.GatedDeltaBackward{DeltaShape: r.shape(l), DQKV: b.dconv.t, DGates: b.dlow.t, DA: b.drates.t, DALog: l.g[model.RoleRecurDecay],
		DDtBias: l.g[model.RoleRecurDtBias], DO: l.do.t, QKV: b.conv.t, Gates: b.low.t, A: b.rates.t, ALog: l.w[model.RoleRecurDecay],
		DtBias: l.w[model.RoleRecurDtBias], States: b.states})
	op.Do(l.dev, l.s, op.ShortConvBackward{DX: l.dqkv.t, DW: l.g[model.RoleRecurTaps], DY: b.dconv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu,
		Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv, DXStride: l.dims.qkv})
}

func (r kda) projectBackward(l *launch, c span) {
	d, s, n, dqkv, dlow, dnarrow := l.dims, l.s, l.normed.y.of(c), l.dqkv.of(c), l.kda.dlow.of(c), l.kda.dnarrow.of(c)
	for _, to := range r.widened(l) {
		l.weightGrad(s, l.g[to.role], to.grad.of(c), r.narrow(l, to.at, c), c.n, r.Width(), r.Dim, l.overwrites(c))
		l.inputGrad(s, dnarrow, to.grad.of(c), l.w[to.role], c.n, r.Width(), r.Dim)
		op.Do(l.dev, s, op.CopyColumns{Dst: from(dlow, to.at), Src: dnarrow, T: c.n, C: r.Dim, DstStride: r.Narrow(), SrcStride: r.Dim})
	}
	l.weightGrad(s, l.g[model.RoleRecurIn], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.weightGrad(s, l.g[model.RoleRecurGates], dlow, n, c.n, r.Narrow(), d.hidden, l.overwrites(c))
	l.inputGrad(s, n, dqkv, l.w[model.RoleRecurIn], c.n, d.qkv, d.hidden)
	op.Do(l.dev, s, op.MatMul{M: c.n, N: d.hidden, K: r.Narrow(), A: dlow, B: l.w[model.RoleRecurGates], C: n, D: n})
}

func (r kda) cache(d dims, a *allotter) (tail, last device.Tensor) {
	return a.take(d.act, (r.Taps-1)*r.Convolved()), a.take(device.F32, r.Heads*r.Dim*r.Dim)
}
