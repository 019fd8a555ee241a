package layers

import (
	"math"

	"mt/device"
	"mt/device/op"
	"mt/model"
)

// This file has per-layer inputs (Config.PerLayerSize). For each of L blocks a token has an input of P elements:
//
//	inputs = (norm(x·Wᵀ/√h) + √P·table row)/√2
//
// x is the embedding, and table row the token's row in an embedding table of its own. The norm covers the P elements of
// each block. A block adds to its output y, with the activation function f:
//
//	y + norm((f(y·Wgateᵀ)·input)·Woutᵀ)
//
// Source: transformers, modeling_gemma4.

// perLayerBuffers are a block's buffers for a chunk of C tokens:
//
//	gate (C, P), gu (C, 2·P), act (C, P) act: the gate, gate and input side by side, and f(gate)·input; backward: also
//	  their gradients
//	y, out (C, h) act: backward: the block's output before the addition, and the output projection
type perLayerBuffers struct{ gate, gu, act, y, out rows }

func (s Spec) perLayerBuffers(d dims, chunk int, backward bool, ws *allotter) (b perLayerBuffers) {
	p := s.Config.PerLayerSize
	if p == 0 {
		return b
	}
	b.gate, b.gu, b.act = ws.chunkRows(d.act, chunk, p), ws.chunkRows(d.act, chunk, 2*p), ws.chunkRows(d.act, chunk, p)
	if backward {
		b.y, b.out = ws.chunkRows(d.act, chunk, d.hidden), ws.chunkRows(d.act, chunk, d.hidden)
	}
	return b
}

// perLayerInputs returns the passenger of per-layer inputs, or of their gradients, in the passengers all. The rows of chunk c
// begin at the block's columns.
func (l *launch) perLayerInputs(all device.Tensor, c span) (t device.Tensor, stride int) {
	p := l.spec.passengers()
	passenger := whole(all.Slice(0, int64(l.mb.Tokens)*int64(p.inputs)), p.inputs)
	return from(passenger.of(c), l.block*l.spec.Config.PerLayerSize), p.inputs
}

// perLayerGate writes f(y·Wgateᵀ)·input for chunk c to l.per.act.
func (l *launch) perLayerGate(y device.Tensor, c span) {
	b, p := l.per, l.spec.Config.PerLayerSize
	l.linear(l.s, b.gate.of(c), y, l.w[model.RolePerLayerGate], device.Tensor{}, device.Tensor{}, c.n, l.dims.hidden, p)
	l.columns(l.s, b.gu.of(c), b.gate.of(c), c.n, p, 2*p, p)
	in, stride := l.perLayerInputs(l.passX, c)
	l.columns(l.s, from(b.gu.of(c), p), in, c.n, p, 2*p, stride)
	l.glu(l.s, b.act.of(c), b.gu.of(c), c.n, p)
}

// addPerLayer adds to l.y, the block's output, what the block makes of its per-layer input, for chunk c.
func (l *launch) addPerLayer(c span) {
	p := l.spec.Config.PerLayerSize
	if p == 0 {
		return
	}
	l.perLayerGate(l.y.of(c), c)
	l.linear(l.s, l.n.of(c), l.per.act.of(c), l.w[model.RolePerLayerOut], device.Tensor{}, device.Tensor{}, c.n, p, l.dims.hidden)
	l.addNormed(l.s, l.y.of(c), l.y.of(c), l.n.of(c), l.w[model.RolePerLayerPostNorm], c.n)
}

// perLayerBackward is the backward of addPerLayer. l.y holds the gradient of its result, and receives the gradient of
// its input. l.x2 and l.out have the residual stream before the MLP and the MLP's output before its norm.
func (l *launch) perLayerBackward(c span) {
	p, h, s, b := l.spec.Config.PerLayerSize, l.dims.hidden, l.s, l.per
	if p == 0 {
		return
	}
	y, gate, gu, act := b.y.of(c), b.gate.of(c), b.gu.of(c), b.act.of(c)
	l.addNormed(s, y, l.x2.of(c), l.out.of(c), l.w[model.RolePostMLPNorm], c.n)
	l.perLayerGate(y, c)
	l.linear(s, b.out.of(c), act, l.w[model.RolePerLayerOut], device.Tensor{}, device.Tensor{}, c.n, p, h)
	dout := l.outNormBackward(model.RolePerLayerPostNorm, b.out.of(c), c)
	l.weightGrad(s, l.g[model.RolePerLayerOut], dout, act, c.n, h, p, l.overwrites(c))
	l.inputGrad(s, act, dout, l.w[model.RolePerLayerOut], c.n, h, p)
	l.gluBackward(s, gu, device.Tensor{}, act, c.n, p)
	din, stride := l.perLayerInputs(l.passY, c)
	l.columns(s, din, from(gu, p), c.n, p, stride, 2*p)
	l.columns(s, gate, gu, c.n, p, p, 2*p)
	l.weightGrad(s, l.g[model.RolePerLayerGate], gate, y, c.n, p, h, l.overwrites(c))
	op.Do(l.dev, s, op.MatMul{M: c.n, N: h, K: p, A: gate, B: l.w[model.RolePerLayerGate], C: l.y.of(c), D: l.y.of(c)})
}

// perLayerSpace is the workspace of the layer that computes the per-layer inputs, for a chunk of C tokens:
//
//	z, rows (C, L·P) act: the projection, and rows of the table; backward: gradients
//	rstd (C, L) f32, sums (C, L·P) f32: backward: of the norms; gradients of rows of the table
type perLayerSpace struct{ z, rows, rstd, sums rows }

func (s Spec) perLayerSpace(tokens int, backward bool, ws *allotter) (b perLayerSpace) {
	c, width, chunk := s.Config, s.passengers().inputs, chunkOf(s.ChunkTokens, tokens)
	b.z, b.rows = ws.chunkRows(s.Act, chunk, width), ws.chunkRows(s.Act, chunk, width)
	if backward {
		b.rstd, b.sums = ws.chunkRows(device.F32, chunk, c.NumLayers), ws.chunkRows(device.F32, chunk, width)
	}
	return b
}

// perLayerLaunch is one launch of that layer.
type perLayerLaunch struct {
	*Templates
	perLayerSpace
	s             device.Stream
	w             Weights
	mb            MicroBatch
	x, y          rows // (T, h) act: the input, and the output or its gradient
	inputs        rows // (T, L·P) act: the per-layer inputs or their gradient
	width, blocks int
}

func (t *Templates) newPerLayer(s device.Stream, w Weights, y, x device.Tensor, mb MicroBatch, ws device.Mem, backward bool) *perLayerLaunch {
	t.spec.fits(mb.Tokens)
	h, width := t.dims.hidden, t.spec.passengers().inputs
	l := &perLayerLaunch{Templates: t, s: s, w: w, mb: mb, x: whole(x, h), y: whole(y, h), width: width, blocks: t.spec.Config.NumLayers,
		perLayerSpace: t.spec.perLayerSpace(mb.Tokens, backward, &allotter{mem: ws})}
	n := int64(mb.Tokens)
	l.inputs = whole(y.Slice(n*int64(h), n*int64(width)), width)
	return l
}

func (l *perLayerLaunch) chunks() func(func(span) bool) {
	return spans(l.mb.Tokens, chunkOf(l.spec.ChunkTokens, l.mb.Tokens))
}

func (l *perLayerLaunch) scaled(x device.Tensor, factor float64) {
	op.Do(l.dev, l.s, op.Scale{X: x, N: x.Len, Factor: float32(factor)})
}

// project writes l.z = x·Wᵀ/√h for chunk c.
func (l *perLayerLaunch) project(c span) {
	none := device.Tensor{}
	l.linear(l.s, l.z.of(c), l.x.of(c), l.w[model.RolePerLayerProj], none, none, c.n, l.dims.hidden, l.width)
	l.scaled(l.z.of(c), l.projectionScale())
}

func (l *perLayerLaunch) projectionScale() float64 { return 1 / math.Sqrt(float64(l.dims.hidden)) }

func (l *perLayerLaunch) tableScale() float64 { return math.Sqrt(float64(l.spec.Config.PerLayerSize)) }

// norm returns the norm of l.z for chunk c, each block's elements by themselves.
func (l *perLayerLaunch) normed(y, rstd, residual device.Tensor, c span) op.RMSNorm {
	cfg := l.spec.Config
	return op.RMSNorm{Y: y, RStd: rstd, X: l.z.of(c), W: l.w[model.RolePerLayerNorm], Residual: residual, Rows: c.n, Groups: l.blocks,
		Dim: cfg.PerLayerSize, XStride: l.width, YStride: l.width, Eps: cfg.RMSNormEps, Offset: cfg.NormOffset}
}

// PerLayerForward overwrites y with x, and the passenger of per-layer inputs behind it.
//
//	x, y (T, h) act, not overlapping, with their passengers
func (t *Templates) PerLayerForward(s device.Stream, w Weights, y, x device.Tensor, mb MicroBatch, ws device.Mem) {
	l := t.newPerLayer(s, w, y, x, mb, ws, false)
	all := span{0, mb.Tokens}
	s.CopyD2D(l.y.of(all).Mem(), l.x.of(all).Mem())
	for c := range l.chunks() {
		l.project(c)
		rows := l.rows.of(c)
		op.Do(t.dev, s, op.GatherRows{Dst: rows, Src: w[model.RolePerLayerTable], Index: whole(mb.IDs, 1).of(c), T: c.n, C: l.width})
		l.scaled(rows, l.tableScale())
		op.Do(t.dev, s, l.normed(l.inputs.of(c), device.Tensor{}, rows, c))
		l.scaled(l.inputs.of(c), math.Sqrt2/2)
	}
}

// PerLayerBackward turns dy into dx in place and accumulates the layer's gradients.
//
//	dxdy (T, h) act with its passengers: dy before, dx after; x (T, h) act
//	g: overwritten if first is set, else accumulated
func (t *Templates) PerLayerBackward(s device.Stream, w Weights, g Grads, dxdy, x device.Tensor, mb MicroBatch, ws device.Mem, first bool) {
	l := t.newPerLayer(s, w, dxdy, x, mb, ws, true)
	if first {
		zeroVectors(s, g)
	}
	l.scaled(l.inputs.t, math.Sqrt2/2)
	h, cfg := l.dims.hidden, l.spec.Config
	for c := range l.chunks() {
		l.project(c)
		dz, rstd := l.rows.of(c), l.rstd.of(c)
		op.Do(t.dev, s, l.normed(dz, rstd, device.Tensor{}, c))
		op.Do(t.dev, s, op.RMSNormBackward{DX: dz, DW: g[model.RolePerLayerNorm], DY: l.inputs.of(c), X: l.z.of(c), W: w[model.RolePerLayerNorm], RStd: rstd,
			Rows: c.n, Groups: l.blocks, Dim: cfg.PerLayerSize, DXStride: l.width, DYStride: l.width, XStride: l.width, Offset: cfg.NormOffset})
		l.scaled(dz, l.projectionScale())
		t.weightGrad(s, g[model.RolePerLayerProj], dz, l.x.of(c), c.n, l.width, h, first && c.at == 0)
		dy := l.y.of(c)
		op.Do(t.dev, s, op.MatMul{M: c.n, N: h, K: l.width, A: dz, B: w[model.RolePerLayerProj], C: dy, D: dy})
	}
	l.tableGrad(g[model.RolePerLayerTable], first)
}

// tableGrad accumulates dtable (V, L·P) f32, the gradient of the table, unless the table is frozen. Each row sums over
// the row's tokens first.
func (l *perLayerLaunch) tableGrad(dtable device.Tensor, first bool) {
	if dtable.None() {
		return
	}
	if first {
		l.s.Zero(dtable.Mem())
	}
	l.scaled(l.inputs.t, l.tableScale())
	for c := range spans(l.mb.UniqueRows, chunkOf(l.spec.ChunkTokens, l.mb.Tokens)) {
		sums := l.sums.of(c)
		l.s.Zero(sums.Mem())
		op.Do(l.dev, l.s, op.ScatterAddRows{DRows: sums, DY: l.inputs.t, Start: l.mb.RowStart.Slice(int64(c.at), int64(c.n)+1), Pos: l.mb.RowPos,
			U: c.n, T: l.mb.Tokens, C: l.width})
		op.Do(l.dev, l.s, op.AddRows{Dst: dtable, Src: sums, Index: whole(l.mb.UniqueIDs, 1).of(c), U: l.spec.Config.PerLayerVocab, T: c.n, C: l.width})
	}
}
