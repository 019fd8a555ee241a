package cuda

import (
	"mt/device"
	"mt/device/cuda/kernels"
)

// ops implements device.Ops: it checks what the shapes say and leaves the rest
// to the kernels. What depends on the values of index tensors is not checked:
// they are the caller's word.
type ops struct{}

// on is the stream under s, which must be one of this package.
func on(s device.Stream) *stream { return s.(*stream) }

// AddBiasGrad accumulates db (N) f32 += Σ_t dy (T, N) act.
func (ops) AddBiasGrad(s device.Stream, db, dy device.Tensor, T, N int) {
	var c checker
	c.sizes(T, N)
	c.tensor("db", db, N, device.F32)
	c.act("dy", dy, T*N, dy.DType)
	on(s).op("AddBiasGrad", c.err, func(l kernels.Launcher) { kernels.AddBiasGrad(l, db, dy, T, N) })
}

// RMSNorm writes Y and RStd.
func (ops) RMSNorm(s device.Stream, a device.RMSNorm) {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.YStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width), a.X.DType)
	c.tensor("Y", a.Y, strided(a.Rows, a.YStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	on(s).op("RMSNorm", c.err, func(l kernels.Launcher) { kernels.RMSNorm(l, a) })
}

// RMSNormBackward writes DX, or adds to it, and accumulates DW.
func (ops) RMSNormBackward(s device.Stream, a device.RMSNormBackward) {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.DXStride, a.DYStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width), a.X.DType)
	c.tensor("DX", a.DX, strided(a.Rows, a.DXStride, width), a.X.DType)
	c.tensor("DY", a.DY, strided(a.Rows, a.DYStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.tensor("DW", a.DW, a.Dim, device.F32)
	c.tensor("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	c.that(!a.Add || a.DX.Addr != a.DY.Addr || a.Rows == 0, "with Add, DX may not be DY")
	on(s).op("RMSNormBackward", c.err, func(l kernels.Launcher) { kernels.RMSNormBackward(l, a) })
}

// RoPE rotates heads in place.
func (ops) RoPE(s device.Stream, a device.RoPE) {
	var c checker
	c.sizes(a.T, a.Heads, a.Dim, a.Rotary, a.Stride)
	c.that(a.Rotary%2 == 0 && a.Rotary <= a.Dim, "Rotary is %d: want an even number up to Dim = %d", a.Rotary, a.Dim)
	c.act("X", a.X, strided(a.T, a.Stride, a.Heads*a.Dim), a.X.DType)
	c.tensor("Cos", a.Cos, a.Rotary/2, device.F32)
	c.tensor("Sin", a.Sin, a.Rotary/2, device.F32)
	c.tensor("Pos", a.Pos, a.T, device.I32)
	on(s).op("RoPE", c.err, func(l kernels.Launcher) { kernels.RoPE(l, a) })
}

// Attention writes O and LSE.
func (ops) Attention(s device.Stream, a device.Attention) {
	var c checker
	c.attention(&a.AttentionShape)
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	c.sizes(a.QStride, a.KStride)
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide), a.Q.DType)
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("O", a.O, a.TQ*wide, a.Q.DType)
	c.optional("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	on(s).op("Attention", c.err, func(l kernels.Launcher) { kernels.Attention(l, a) })
}

// AttentionBackward overwrites DQ, DK and DV.
func (ops) AttentionBackward(s device.Stream, a device.AttentionBackward) {
	var c checker
	c.attention(&a.AttentionShape)
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	c.sizes(a.QStride, a.KStride, a.DQStride, a.DKStride)
	dt := a.Q.DType
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide), dt)
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("O", a.O, a.TQ*wide, dt)
	c.tensor("DO", a.DO, a.TQ*wide, dt)
	c.tensor("DQ", a.DQ, strided(a.TQ, a.DQStride, wide), dt)
	c.tensor("DK", a.DK, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("DV", a.DV, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	c.tensor("Delta", a.Delta, a.Heads*a.TQ, device.F32)
	on(s).op("AttentionBackward", c.err, func(l kernels.Launcher) { kernels.AttentionBackward(l, a) })
}

// SwiGLU writes y (T, F) = silu(gate)·up from gu (T, 2F).
func (ops) SwiGLU(s device.Stream, y, gu device.Tensor, T, F int) {
	var c checker
	c.sizes(T, F)
	c.act("gu", gu, 2*T*F, gu.DType)
	c.tensor("y", y, T*F, gu.DType)
	on(s).op("SwiGLU", c.err, func(l kernels.Launcher) { kernels.SwiGLU(l, y, gu, T, F) })
}

// SwiGLUBackward overwrites dgu (T, 2F), which may be gu, and y unless it is
// none; y may be dy.
func (ops) SwiGLUBackward(s device.Stream, dgu, y, dy, gu device.Tensor, T, F int) {
	var c checker
	c.sizes(T, F)
	c.act("gu", gu, 2*T*F, gu.DType)
	c.tensor("dgu", dgu, 2*T*F, gu.DType)
	c.tensor("dy", dy, T*F, gu.DType)
	c.optional("y", y, T*F, gu.DType)
	on(s).op("SwiGLUBackward", c.err, func(l kernels.Launcher) { kernels.SwiGLUBackward(l, dgu, y, dy, gu, T, F) })
}

// GatherRows writes dst (T, C) = src (U, C) rows index (T).
func (ops) GatherRows(s device.Stream, dst, src, index device.Tensor, T, C int) {
	var c checker
	c.sizes(T, C)
	c.act("dst", dst, T*C, dst.DType)
	c.tensor("src", src, min(T, 1)*C, dst.DType)
	c.tensor("index", index, T, device.I32)
	on(s).op("GatherRows", c.err, func(l kernels.Launcher) { kernels.GatherRows(l, dst, src, index, T, C) })
}

// ScatterAddRows accumulates drows (U, C) f32: row u += Σ dy (T, C) act rows
// pos[start[u]:start[u+1]], in that order.
func (ops) ScatterAddRows(s device.Stream, drows, dy, start, pos device.Tensor, U, T, C int) {
	var c checker
	c.sizes(U, T, C)
	c.tensor("drows", drows, U*C, device.F32)
	c.act("dy", dy, T*C, dy.DType)
	c.tensor("start", start, min(U, 1)*(U+1), device.I32)
	c.tensor("pos", pos, T, device.I32)
	on(s).op("ScatterAddRows", c.err, func(l kernels.Launcher) { kernels.ScatterAddRows(l, drows, dy, start, pos, U, T, C) })
}

// CrossEntropy computes losses and, unless ForwardOnly, turns logits into their
// gradient in place.
func (ops) CrossEntropy(s device.Stream, a device.CrossEntropy) {
	var c checker
	c.sizes(a.T, a.V)
	c.act("Logits", a.Logits, a.T*a.V, a.Logits.DType)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("Losses", a.Losses, a.T, device.F32)
	on(s).op("CrossEntropy", c.err, func(l kernels.Launcher) { kernels.CrossEntropy(l, a) })
}

// CrossEntropyShard is CrossEntropy over a vocabulary in shards.
func (ops) CrossEntropyShard(s device.Stream, a device.CrossEntropyShard) {
	var c checker
	c.sizes(a.T, a.V, a.From)
	c.act("Logits", a.Logits, a.T*a.V, a.Logits.DType)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("LSE", a.LSE, a.T, device.F32)
	if !a.Gradient {
		c.tensor("Losses", a.Losses, a.T, device.F32)
	}
	on(s).op("CrossEntropyShard", c.err, func(l kernels.Launcher) { kernels.CrossEntropyShard(l, a) })
}

// Convert writes dst (n) = src (n), fp32 or bf16 each.
func (ops) Convert(s device.Stream, dst, src device.Tensor, n int64) {
	var c checker
	c.sizes(int(n))
	c.act("dst", dst, int(n), dst.DType)
	c.act("src", src, int(n), src.DType)
	on(s).op("Convert", c.err, func(l kernels.Launcher) { kernels.Convert(l, dst, src, n) })
}
