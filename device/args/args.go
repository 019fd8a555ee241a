package args

import "mt/device"

// MatMul is the error of the arguments of Ops.MatMul, nil for good ones.
func MatMul(m device.MatMul) error {
	var c checker
	c.sizes(m.M, m.N, m.K)
	c.act("A", m.A, m.M*m.K)
	c.tensor("B", m.B, m.K*m.N, m.A.DType)
	c.act("D", m.D, m.M*m.N)
	c.optional("C", m.C, m.M*m.N, m.D.DType)
	c.optional("Bias", m.Bias, m.N, device.F32)
	return c.err
}

// AddBiasGrad is the error of the arguments of Ops.AddBiasGrad: db (N) f32, dy
// (T, N) act.
func AddBiasGrad(db, dy device.Tensor, T, N int) error {
	var c checker
	c.sizes(T, N)
	c.tensor("db", db, N, device.F32)
	c.act("dy", dy, T*N)
	return c.err
}

// RMSNorm is the error of the arguments of Ops.RMSNorm.
func RMSNorm(a device.RMSNorm) error {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.YStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width))
	c.tensor("Y", a.Y, strided(a.Rows, a.YStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	c.optional("Residual", a.Residual, strided(a.Rows, a.YStride, width), a.X.DType)
	c.that(a.Residual.None() || a.Residual.Addr != a.X.Addr || a.Rows == 0, "Residual may not be X")
	return c.err
}

// RMSNormBackward is the error of the arguments of Ops.RMSNormBackward. With Add
// it refuses a DX that begins where DY does.
func RMSNormBackward(a device.RMSNormBackward) error {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.DXStride, a.DYStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width))
	c.tensor("DX", a.DX, strided(a.Rows, a.DXStride, width), a.X.DType)
	c.tensor("DY", a.DY, strided(a.Rows, a.DYStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.tensor("DW", a.DW, a.Dim, device.F32)
	c.tensor("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	c.that(!a.Add || a.DX.Addr != a.DY.Addr || a.Rows == 0, "with Add, DX may not be DY")
	return c.err
}

// RoPE is the error of the arguments of Ops.RoPE. The tables have to hold one
// place; which places Pos names is not looked at.
func RoPE(a device.RoPE) error {
	var c checker
	c.sizes(a.T, a.Heads, a.Dim, a.Rotary, a.Stride)
	c.that(a.Rotary%2 == 0 && a.Rotary <= a.Dim, "Rotary is %d: want an even number up to Dim = %d", a.Rotary, a.Dim)
	c.act("X", a.X, strided(a.T, a.Stride, a.Heads*a.Dim))
	c.tensor("Cos", a.Cos, a.Rotary/2, device.F32)
	c.tensor("Sin", a.Sin, a.Rotary/2, device.F32)
	c.tensor("Pos", a.Pos, a.T, device.I32)
	return c.err
}

// Attention is the error of the arguments of Ops.Attention. Where sequences
// begin and end is not looked at.
func Attention(a device.Attention) error {
	var c checker
	c.attention(&a.AttentionShape)
	c.sizes(a.QStride, a.KStride)
	wide, narrow := heads(&a.AttentionShape)
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide))
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), a.Q.DType)
	c.tensor("O", a.O, a.TQ*wide, a.Q.DType)
	c.optional("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	return c.err
}

// AttentionBackward is the error of the arguments of Ops.AttentionBackward.
// Where sequences begin and end is not looked at.
func AttentionBackward(a device.AttentionBackward) error {
	var c checker
	c.attention(&a.AttentionShape)
	c.sizes(a.QStride, a.KStride, a.DQStride, a.DKStride)
	wide, narrow := heads(&a.AttentionShape)
	dt := a.Q.DType
	c.act("Q", a.Q, strided(a.TQ, a.QStride, wide))
	c.tensor("K", a.K, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("V", a.V, strided(a.TK, a.KStride, narrow), dt)
	c.tensor("O", a.O, a.TQ*wide, dt)
	c.tensor("DO", a.DO, a.TQ*wide, dt)
	c.tensor("DQ", a.DQ, strided(a.TQ, a.DQStride, wide), dt)
	c.tensor("DK", a.DK, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("DV", a.DV, strided(a.TK, a.DKStride, narrow), dt)
	c.tensor("LSE", a.LSE, a.Heads*a.TQ, device.F32)
	c.tensor("Delta", a.Delta, a.Heads*a.TQ, device.F32)
	return c.err
}

// GatherRows is the error of the arguments of Ops.GatherRows: dst (T, C) and src
// of one compute type, index (T) i32. Of src one row has to be there; which rows
// index names is not looked at.
func GatherRows(dst, src, index device.Tensor, T, C int) error {
	var c checker
	c.sizes(T, C)
	c.act("dst", dst, T*C)
	c.tensor("src", src, min(T, 1)*C, dst.DType)
	c.tensor("index", index, T, device.I32)
	return c.err
}

// ScatterAddRows is the error of the arguments of Ops.ScatterAddRows: drows (U,
// C) f32, dy (T, C) act, start (U+1) i32, none where U is 0, pos (T) i32. What
// start and pos hold is not looked at.
func ScatterAddRows(drows, dy, start, pos device.Tensor, U, T, C int) error {
	var c checker
	c.sizes(U, T, C)
	c.tensor("drows", drows, U*C, device.F32)
	c.act("dy", dy, T*C)
	c.tensor("start", start, min(U, 1)*(U+1), device.I32)
	c.tensor("pos", pos, T, device.I32)
	return c.err
}

// CrossEntropy is the error of the arguments of Ops.CrossEntropy. What Targets
// hold is not looked at.
func CrossEntropy(a device.CrossEntropy) error {
	var c checker
	c.sizes(a.T, a.V)
	c.softcap(a.Softcap)
	c.act("Logits", a.Logits, a.T*a.V)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("Losses", a.Losses, a.T, device.F32)
	return c.err
}

// CrossEntropyShard is the error of the arguments of Ops.CrossEntropyShard. The
// sweep with Gradient needs no Losses. What Targets hold is not looked at.
func CrossEntropyShard(a device.CrossEntropyShard) error {
	var c checker
	c.sizes(a.T, a.V, a.From)
	c.softcap(a.Softcap)
	c.act("Logits", a.Logits, a.T*a.V)
	c.tensor("Targets", a.Targets, a.T, device.I32)
	c.tensor("LSE", a.LSE, a.T, device.F32)
	if !a.Gradient {
		c.tensor("Losses", a.Losses, a.T, device.F32)
	}
	c.that(a.V > 0 || a.T == 0, "a shard has no columns")
	return c.err
}

// Convert is the error of the arguments of Ops.Convert: dst and src (n), each of
// a compute type.
func Convert(dst, src device.Tensor, n int64) error {
	var c checker
	c.sizes(int(n))
	c.act("dst", dst, int(n))
	c.act("src", src, int(n))
	return c.err
}
