package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// gateBuffers are a launch's buffers for the output gate; out is the width of the output. For the C tokens of one chunk:
//
//	both (C, 2·out) act: the gate and the output it multiplies; in the backward later their gradients
//	narrow (C, out) act: the gated output, then its gradient
//	rstd (C, heads) f32: of a norm of the output, in the backward
//
// For all tokens, if the gate is not among the columns of qkv, and for a chunk (C, out) with hidden states on the host,
// where dz is z:
//
//	z, dz (T, out) act: the gate, and its gradient
type gateBuffers struct{ both, narrow, rstd, z, dz rows }

// gatedOutputs multiplies the output of attention or of a delta rule by a function of its gate. With heads above 0 it
// first norms the output, whose heads have dim elements each.
type gatedOutputs struct {
	activation op.Activation
	heads, dim int
}

// gateAt returns the first of the output gate's columns in a row of qkv. They are the last columns.
func (d dims) gateAt() int { return d.qkv - d.out }

// gates returns the rows that have the gate's columns and their gradients, and the first of these columns.
func (l *launch) gates() (gate, grad rows, at int) {
	if l.gate.z.width > 0 {
		return l.gate.z, l.gate.dz, 0
	}
	return l.qkv, l.dqkv, l.dims.gateAt()
}

// of returns the gated output for the tokens of chunk c.
func (o gatedOutputs) of(l *launch, c span) device.Tensor {
	d, both := l.dims, l.gate.both.of(c)
	gate, _, at := l.gates()
	op.Do(l.dev, l.s, op.CopyColumns{Dst: both, Src: from(gate.of(c), at), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: gate.width})
	if o.heads > 0 {
		op.Do(l.dev, l.s, op.RMSNorm{Y: from(both, d.out), RStd: l.gate.rstd.of(c), X: l.o.of(c), W: l.w[model.RoleRecurNorm], Rows: c.n, Groups: o.heads,
			Dim: o.dim, XStride: d.out, YStride: 2 * d.out, Eps: l.spec.Config.RMSNormEps})
	} else {
		op.Do(l.dev, l.s, op.CopyColumns{Dst: from(both, d.out), Src: l.o.of(c), T: c.n, C: d.out, DstStride: 2 * d.out, SrcStride: d.out})
	}
	op.Do(l.dev, l.s, op.GLU{Activation: o.activation, Y: l.gate.narrow.of(c), GU: both, T: c.n, F: d.out})
	return l.gate.narrow.of(c)
}

// grad writes l.do and the gate's gradient for the tokens of chunk c. dy is the gradient of the output projection's
// output. It reads what o.of of the same chunk has left in l.gate, so o.of must come first.
func (o gatedOutputs) grad(l *launch, dy device.Tensor, c span) {
	d, both, narrow := l.dims, l.gate.both.of(c), l.gate.narrow.of(c)
	_, grad, at := l.gates()
	l.inputGrad(l.s, narrow, dy, l.w[l.dims.outRole], c.n, d.hidden, d.out)
	op.Do(l.dev, l.s, op.GLUBackward{Activation: o.activation, DGU: both, DY: narrow, GU: both, T: c.n, F: d.out})
	op.Do(l.dev, l.s, op.CopyColumns{Dst: from(grad.of(c), at), Src: both, T: c.n, C: d.out, DstStride: grad.width, SrcStride: 2 * d.out})
	if o.heads == 0 {
		op.Do(l.dev, l.s, op.CopyColumns{Dst: l.do.of(c), Src: from(both, d.out), T: c.n, C: d.out, DstStride: d.out, SrcStride: 2 * d.out})
		return
	}
	op.Do(l.dev, l.s, op.RMSNormBackward{DX: l.do.of(c), DW: l.g[model.RoleRecurNorm], DY: from(both, d.out), X: l.o.of(c), W: l.w[model.RoleRecurNorm],
		RStd: l.gate.rstd.of(c), Rows: c.n, Groups: o.heads, Dim: o.dim, DXStride: d.out, DYStride: 2 * d.out, XStride: d.out})
}
