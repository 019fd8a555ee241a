package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has blocks with a gated delta net (model.GatedDeltaNet), and output gates. One product makes a token's q,
// k, v and z, another its b and a. A short convolution along each sequence changes q, k and v. The gated delta rule
// takes them with b and a. Its output is normed head by head and multiplied by SiLU(z). An output gate of attention is
// made beside q, k and v, and its sigmoid multiplies the output. Source: arXiv:2412.06464; transformers,
// modeling_qwen3_next.

// gdnBuffers are a launch's buffers in a recurrent block. o is (T, V); qkv is (T, 2·K+2·V): q, k, v and z before the
// convolution. In the backward do and dqkv have the same sizes.
//
//	gates (T, 2·Heads) act: b, then a
//	conv (T, 2·K+V) act: q, k and v after the convolution
//	states (⌈T/64⌉, Heads, KeyDim, ValueDim) f32: at the start of every chunk but the first of
//	  a sequence
//
// In the backward:
//
//	dgates, dconv: gradients of gates and conv
//	rstd (C, Heads) f32: of the output's norm
type gdnBuffers struct {
	gates, conv, dgates, dconv, rstd rows
	states                           device.Tensor
}

// gateBuffers are a chunk's buffers with an output gate:
//
//	both (C, 2·out) act: the gate and the output it multiplies; in the backward later their gradients
//	narrow (C, out) act: the gated output, then its gradient
type gateBuffers struct{ both, narrow rows }

// forRecurrent returns the widths of a block with a gated delta net: o is V wide, and qkv has q, k, v and z.
func (d dims) forRecurrent() dims {
	r := d.gdn
	d.recurrent, d.gated, d.qkNorm, d.sinks, d.mla = true, true, false, false, nil
	d.outRole, d.output = model.RoleRecurOut, gatedOutputs{}
	d.q, d.kv, d.out, d.qkv = r.Values(), 0, r.Values(), r.Convolved()+r.Values()
	d.raw, d.normsV = d.qkv, false
	return d
}

// statesLen returns the number of elements of the states of the given tokens.
func (d dims) statesLen(tokens int) int {
	r := d.gdn
	a := op.DeltaShape{T: tokens, Heads: r.Heads, KeyDim: r.KeyDim, ValueDim: r.ValueDim}
	return a.StatesLen()
}

// gdnBuffers takes the buffers that are not kept from ws.
func (s Spec) gdnBuffers(b *gdnBuffers, d dims, keep Keep, tokens int, backward bool, ws *allotter) {
	r := d.gdn
	if keep < KeepAttention && backward {
		b.states = ws.take(device.F32, d.statesLen(tokens))
	}
	if keep < KeepQKV {
		b.gates = ws.wholeRows(d.act, tokens, 2*r.Heads)
	}
	b.conv = ws.wholeRows(d.act, tokens, r.Convolved())
	if backward {
		b.dgates, b.dconv = ws.wholeRows(d.act, tokens, 2*r.Heads), ws.wholeRows(d.act, tokens, r.Convolved())
		b.rstd = ws.chunkRows(device.F32, chunkOf(s.ChunkTokens, tokens), r.Heads)
	}
}

// projectGDN writes qkv and gates of a chunk from the normed input n.
func (l *launch) projectGDN(c span) {
	d, none := l.dims, device.Tensor{}
	l.linear(l.s, l.qkv.of(c), l.n.of(c), l.w[model.RoleRecurIn], none, none, c.n, d.hidden, d.qkv)
	l.linear(l.s, l.gdn.gates.of(c), l.n.of(c), l.w[model.RoleRecurGates], none, none, c.n, d.hidden, 2*d.gdn.Heads)
}

// convolve writes conv for the whole micro-batch. tail is none, or the cached rows before the sequence's new tokens.
func (l *launch) convolve(tail device.Tensor) {
	r := l.dims.gdn
	op.Do(l.dev, l.s, op.ShortConv{Y: l.gdn.conv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu, Tail: tail, Seqs: l.mb.Seqs, T: l.mb.Tokens,
		C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv})
}

func (l *launch) deltaShape() op.DeltaShape {
	r := l.dims.gdn
	return op.DeltaShape{Cu: l.mb.Cu, Seqs: l.mb.Seqs, T: l.mb.Tokens, KeyHeads: r.KeyHeads, Heads: r.Heads, KeyDim: r.KeyDim, ValueDim: r.ValueDim,
		GateStride: 2 * r.Heads}
}

// gatedDelta writes o for the whole micro-batch, and states if there is memory for them. last is none, or a cached
// state.
func (l *launch) gatedDelta(last device.Tensor) {
	op.Do(l.dev, l.s, op.GatedDelta{DeltaShape: l.deltaShape(), O: l.o.t, QKV: l.gdn.conv.t, Gates: l.gdn.gates.t, ALog: l.w[model.RoleRecurDecay],
		DtBias: l.w[model.RoleRecurDtBias], States: l.gdn.states, Last: last})
}

// gatedDeltaBackward writes dqkv of q, k and v, and dgates.
func (l *launch) gatedDeltaBackward() {
	r, b := l.dims.gdn, l.gdn
	op.Do(l.dev, l.s, op.GatedDeltaBackward{DeltaShape: l.deltaShape(), DQKV: b.dconv.t, DGates: b.dgates.t, DALog: l.g[model.RoleRecurDecay],
		DDtBias: l.g[model.RoleRecurDtBias], DO: l.do.t, QKV: b.conv.t, Gates: b.gates.t, ALog: l.w[model.RoleRecurDecay], DtBias: l.w[model.RoleRecurDtBias],
		States: b.states})
	op.Do(l.dev, l.s, op.ShortConvBackward{DX: l.dqkv.t, DW: l.g[model.RoleRecurTaps], DY: b.dconv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu,
		Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv, DXStride: l.dims.qkv})
}

// projectGDNBackward turns n of a chunk, the normed input, into its gradient.
func (l *launch) projectGDNBackward(c span) {
	d, s, n, dqkv, dgates := l.dims, l.s, l.n.of(c), l.dqkv.of(c), l.gdn.dgates.of(c)
	wide := 2 * d.gdn.Heads
	l.weightGrad(s, l.g[model.RoleRecurIn], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.weightGrad(s, l.g[model.RoleRecurGates], dgates, n, c.n, wide, d.hidden, l.overwrites(c))
	l.inputGrad(s, n, dqkv, l.w[model.RoleRecurIn], c.n, d.qkv, d.hidden)
	op.Do(l.dev, s, op.MatMul{M: c.n, N: d.hidden, K: wide, A: dgates, B: l.w[model.RoleRecurGates], C: n, D: n})
}

// gateAt returns the first column of the output gate in rows of qkv: after all else.
func (d dims) gateAt() int { return d.qkv - d.out }

// gatedOutputs multiplies the output of attention or of a gated delta net by its gate.
type gatedOutputs struct{}

func (gatedOutputs) of(l *launch, c span) device.Tensor       { return l.gatedOutput(c) }
func (gatedOutputs) grad(l *launch, dy device.Tensor, c span) { l.gatedOutputBackward(dy, c) }

// gatedOutput returns the output of a chunk times its gate's activation.
func (l *launch) gatedOutput(c span) device.Tensor {
	d, both := l.dims, l.gate.both.of(c)
	op.Do(l.dev, l.s, op.CopyColumns{Dst: both, Src: from(l.qkv.of(c), d.gateAt()), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: d.qkv})
	if d.recurrent {
		op.Do(l.dev, l.s, op.RMSNorm{Y: from(both, d.out), RStd: l.gdn.rstd.of(c), X: l.o.of(c), W: l.w[model.RoleRecurNorm], Rows: c.n, Groups: d.gdn.Heads,
			Dim: d.gdn.ValueDim, XStride: d.out, YStride: 2 * d.out, Eps: l.spec.Config.RMSNormEps})
	} else {
		op.Do(l.dev, l.s, op.CopyColumns{Dst: from(both, d.out), Src: l.o.of(c), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: d.out})
	}
	op.Do(l.dev, l.s, op.GLU{Activation: d.gateOf(), Y: l.gate.narrow.of(c), GU: both, T: c.n, F: d.out})
	return l.gate.narrow.of(c)
}

// gateOf returns the gate's activation.
func (d dims) gateOf() op.Activation {
	if d.recurrent {
		return op.SiLU
	}
	return op.SigmoidGate
}

// gatedOutputBackward writes do of a chunk, and the gate's gradient into dqkv, from dy, the gradient of the output
// projection's output. It needs the result of gatedOutput in l.gate.
func (l *launch) gatedOutputBackward(dy device.Tensor, c span) {
	d, both, narrow := l.dims, l.gate.both.of(c), l.gate.narrow.of(c)
	l.inputGrad(l.s, narrow, dy, l.w[l.dims.outRole], c.n, d.hidden, d.out)
	op.Do(l.dev, l.s, op.GLUBackward{Activation: d.gateOf(), DGU: both, DY: narrow, GU: both, T: c.n, F: d.out})
	op.Do(l.dev, l.s, op.CopyColumns{Dst: from(l.dqkv.of(c), d.gateAt()), Src: both, T: c.n, C: d.out, DstStride: d.qkv, SrcStride: 2 * d.out})
	if !d.recurrent {
		op.Do(l.dev, l.s, op.CopyColumns{Dst: l.do.of(c), Src: from(both, d.out), T: c.n, C: d.out, DstStride: d.out, SrcStride: 2 * d.out})
		return
	}
	op.Do(l.dev, l.s, op.RMSNormBackward{DX: l.do.of(c), DW: l.g[model.RoleRecurNorm], DY: from(both, d.out), X: l.o.of(c), W: l.w[model.RoleRecurNorm],
		RStd: l.gdn.rstd.of(c), Rows: c.n, Groups: d.gdn.Heads, Dim: d.gdn.ValueDim, DXStride: d.out, DYStride: 2 * d.out, XStride: d.out})
}

// recurrentCache allots what generation keeps of a recurrent block: the last rows of the convolution's input, and the
// state.
func (d dims) recurrentCache(a *allotter) (tail, last device.Tensor) {
	r := d.gdn
	return a.take(d.act, (r.Taps-1)*r.Convolved()), a.take(device.F32, r.Heads*r.KeyDim*r.ValueDim)
}

// recurrentCacheBytes returns the device memory of a recurrent block's cache, whose size does not depend on the number
// of tokens. It needs no device.
func (s Spec) recurrentCacheBytes() int64 {
	a := allotter{dry: true}
	newDims(s).recurrentCache(&a)
	return a.used
}

// decode writes o of the new tokens of a growing sequence from its cache, and updates the cache.
func (l *launch) decode(step CacheStep, cache device.Mem) {
	tail, last := l.dims.recurrentCache(&allotter{mem: cache})
	if step.Start == 0 {
		l.s.Zero(cache)
	}
	l.mb.Cu, l.mb.Seqs = step.CuQ, 1
	for c := range l.chunks() {
		l.project(c)
	}
	l.convolve(tail)
	l.gatedDelta(last)
}
