package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has blocks with a gated delta net (model.GatedDeltaNet). One product makes a token's q,
// k, v and z, another its b and a. A short convolution along each sequence changes q, k and v. The gated delta rule
// takes them with b and a. Its output is normed head by head and multiplied by SiLU(z). Source: arXiv:2412.06464; transformers,
// modeling_qwen3_next.

// gdnBuffers are a launch's buffers in a block with a gated delta net. Here K and V are the numbers
// of columns of all heads' keys and values, and C is the number of tokens in a chunk. The launch's
// o is (T, V), and its qkv (T, 2·K+2·V): q, k, v and z before the convolution. In the backward do
// and dqkv have the same sizes.
//
//	gates (T, 2·Heads) act: b, then a
//	conv (T, 2·K+V) act: q, k and v after the convolution
//	states (⌈T/64⌉, Heads, KeyDim, ValueDim) f32: at the start of every 64 tokens, except the
//	  start of a sequence
//
// In the backward:
//
//	dgates, dconv: gradients of gates and conv
type gdnBuffers struct {
	gates, conv, dgates, dconv rows
	states                     device.Tensor
}

// gatedDeltaNet is the recurrence of model.GatedDeltaNet.
type gatedDeltaNet struct{ *model.GatedDeltaNet }

// widths sets the widths of a block with this recurrence: o has the V value columns, and qkv the columns of q, k, v and
// z.
func (r gatedDeltaNet) widths(d dims) dims {
	d.gated, d.output = true, gatedOutputs{activation: op.SiLU, heads: r.Heads, dim: r.ValueDim}
	d.o, d.out, d.qkv = r.Values(), r.Values(), r.Convolved()+r.Values()
	return d
}

// statesLen returns the number of f32 elements of gdnBuffers.states for the given tokens.
func (r gatedDeltaNet) statesLen(tokens int) int {
	a := op.DeltaShape{T: tokens, Heads: r.Heads, KeyDim: r.KeyDim, ValueDim: r.ValueDim}
	return a.StatesLen()
}

func (r gatedDeltaNet) keepStates(b *buffers, _ dims, tokens int, mem *allotter) {
	b.gdn.states = mem.take(device.F32, r.statesLen(tokens))
}

func (r gatedDeltaNet) keepInputs(b *buffers, d dims, tokens int, mem *allotter) {
	b.gdn.gates = mem.wholeRows(d.act, tokens, 2*r.Heads)
}

func (r gatedDeltaNet) buffers(s Spec, all *buffers, d dims, keep Keep, tokens int, backward bool, ws *allotter) {
	b := &all.gdn
	if keep < KeepAttention && backward {
		b.states = ws.take(device.F32, r.statesLen(tokens))
	}
	if keep < KeepQKV {
		b.gates = ws.wholeRows(d.act, tokens, 2*r.Heads)
	}
	b.conv = ws.wholeRows(d.act, tokens, r.Convolved())
	if backward {
		b.dgates, b.dconv = ws.wholeRows(d.act, tokens, 2*r.Heads), ws.wholeRows(d.act, tokens, r.Convolved())
		all.gate.rstd = ws.chunkRows(device.F32, chunkOf(s.ChunkTokens, tokens), r.Heads)
	}
}

// project writes l.qkv (q, k, v and z) and l.gdn.gates (b and a) for the tokens of chunk c. n is the block's normed
// input.
func (r gatedDeltaNet) project(l *launch, n device.Tensor, c span) {
	d, none := l.dims, device.Tensor{}
	l.linear(l.s, l.qkv.of(c), n, l.w[model.RoleRecurIn], none, none, c.n, d.hidden, d.qkv)
	l.linear(l.s, l.gdn.gates.of(c), n, l.w[model.RoleRecurGates], none, none, c.n, d.hidden, 2*r.Heads)
}

// convolve writes l.gdn.conv: q, k and v after the short convolution along each sequence. In
// generation, tail holds the last inputs of the cached sequence, which the convolution continues;
// otherwise tail is none.
func (r gatedDeltaNet) convolve(l *launch, tail device.Tensor) {
	op.Do(l.dev, l.s, op.ShortConv{Y: l.gdn.conv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu, Tail: tail, Seqs: l.mb.Seqs, T: l.mb.Tokens,
		C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv})
}

func (gatedDeltaNet) convolves() bool { return true }

func (r gatedDeltaNet) shape(l *launch) op.DeltaShape {
	return op.DeltaShape{Cu: l.mb.Cu, Seqs: l.mb.Seqs, T: l.mb.Tokens, KeyHeads: r.KeyHeads, Heads: r.Heads, KeyDim: r.KeyDim, ValueDim: r.ValueDim,
		GateStride: 2 * r.Heads}
}

// scan writes l.o, the gated delta rule's output, and l.gdn.states if the launch has memory for
// them. In generation, last is the cached sequence's state, which the rule continues; otherwise
// last is none.
func (r gatedDeltaNet) scan(l *launch, last device.Tensor) {
	op.Do(l.dev, l.s, op.GatedDelta{DeltaShape: r.shape(l), O: l.o.t, QKV: l.gdn.conv.t, Gates: l.gdn.gates.t, ALog: l.w[model.RoleRecurDecay],
		DtBias: l.w[model.RoleRecurDtBias], States: l.gdn.states, Last: last})
}

// backward writes the q, k and v columns of l.dqkv, and l.gdn.dgates. The columns of z are the output gate's and come
// from gatedOutputs.
func (r gatedDeltaNet) backward(l *launch) {
	b := l.gdn
	op.Do(l.dev, l.s, op.GatedDeltaBackward{DeltaShape: r.shape(l), DQKV: b.dconv.t, DGates: b.dgates.t, DALog: l.g[model.RoleRecurDecay],
		DDtBias: l.g[model.RoleRecurDtBias], DO: l.do.t, QKV: b.conv.t, Gates: b.gates.t, ALog: l.w[model.RoleRecurDecay], DtBias: l.w[model.RoleRecurDtBias],
		States: b.states})
	op.Do(l.dev, l.s, op.ShortConvBackward{DX: l.dqkv.t, DW: l.g[model.RoleRecurTaps], DY: b.dconv.t, X: l.qkv.t, W: l.w[model.RoleRecurTaps], Cu: l.mb.Cu,
		Seqs: l.mb.Seqs, T: l.mb.Tokens, C: r.Convolved(), Taps: r.Taps, XStride: l.dims.qkv, DXStride: l.dims.qkv})
}

func (r gatedDeltaNet) projectBackward(l *launch, c span) {
	d, s, n, dqkv, dgates := l.dims, l.s, l.normed.y.of(c), l.dqkv.of(c), l.gdn.dgates.of(c)
	wide := 2 * r.Heads
	l.weightGrad(s, l.g[model.RoleRecurIn], dqkv, n, c.n, d.qkv, d.hidden, l.overwrites(c))
	l.weightGrad(s, l.g[model.RoleRecurGates], dgates, n, c.n, wide, d.hidden, l.overwrites(c))
	l.inputGrad(s, n, dqkv, l.w[model.RoleRecurIn], c.n, d.qkv, d.hidden)
	op.Do(l.dev, s, op.MatMul{M: c.n, N: d.hidden, K: wide, A: dgates, B: l.w[model.RoleRecurGates], C: n, D: n})
}

func (r gatedDeltaNet) cache(d dims, a *allotter) (tail, last device.Tensor) {
	return a.take(d.act, (r.Taps-1)*r.Convolved()), a.take(device.F32, r.Heads*r.KeyDim*r.ValueDim)
}
