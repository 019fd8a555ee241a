package op

import "mt/device"

// RMSNorm writes Y and RStd. For each of Rows rows and Groups groups of Dim elements, y = x·rstd·(Offset + w) with
// rstd = 1/√(mean(x²) + Eps). Groups is 1 for a hidden state and the number of heads for q/k norm. Source:
// arXiv:1910.07467.
//
//	X, Y act: element (r, g, c) at r·XStride + g·Dim + c (elements); Y may be X
//	W (Dim) f32; RStd (Rows, Groups) f32, written unless none
//	Residual: none, or act laid out as Y: Y = Residual + norm, rounded once. It
//	may be Y, but not X; its gradient is DY
type RMSNorm struct {
	Y, RStd, X, W     device.Tensor
	Residual          device.Tensor
	Rows, Groups, Dim int
	XStride, YStride  int
	Eps, Offset       float32
}

// Name implements device.Op.
func (a *RMSNorm) Name() string { return "RMSNorm" }

// Check implements device.Op.
func (a *RMSNorm) Check() error {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.YStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width))
	c.tensor("Y", a.Y, strided(a.Rows, a.YStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	c.optional("Residual", a.Residual, strided(a.Rows, a.YStride, width), a.X.DType)
	if !a.Residual.None() && a.Residual.Addr == a.X.Addr && a.Rows > 0 {
		c.fail("Residual may not be X")
	}
	return c.err
}

// RMSNormBackward writes DX (or adds to it) and accumulates DW.
//
//	X as in the forward; DY, DX act with strides of their own; DX may be DY
//	W (Dim) f32, with Offset as in the forward; DW (Dim) f32 accumulates, or is
//	none; RStd (Rows, Groups) f32
//	Add: DX += gradient (one rounding) instead of DX = gradient; then DX is not DY
type RMSNormBackward struct {
	DX, DW, DY, X, W, RStd      device.Tensor
	Rows, Groups, Dim           int
	DXStride, DYStride, XStride int
	Offset                      float32
	Add                         bool
}

// Name implements device.Op.
func (a *RMSNormBackward) Name() string { return "RMSNormBackward" }

// Check implements device.Op. With Add it refuses a DX that begins where DY begins.
func (a *RMSNormBackward) Check() error {
	var c checker
	width := a.Groups * a.Dim
	c.sizes(a.Rows, a.Groups, a.Dim, a.XStride, a.DXStride, a.DYStride)
	c.act("X", a.X, strided(a.Rows, a.XStride, width))
	c.tensor("DX", a.DX, strided(a.Rows, a.DXStride, width), a.X.DType)
	c.tensor("DY", a.DY, strided(a.Rows, a.DYStride, width), a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("DW", a.DW, a.Dim, device.F32)
	c.tensor("RStd", a.RStd, a.Rows*a.Groups, device.F32)
	if a.Add && a.DX.Addr == a.DY.Addr && a.Rows > 0 {
		c.fail("with Add, DX may not be DY")
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *RMSNorm) Bytes() int64 {
	tensors := int64(2)
	if !a.Residual.None() {
		tensors++
	}
	return tensors * int64(a.Rows*a.Groups*a.Dim) * a.X.DType.Size()
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *RMSNormBackward) Bytes() int64 {
	tensors := int64(3)
	if a.Add {
		tensors++ // DX is read too
	}
	return tensors * int64(a.Rows*a.Groups*a.Dim) * a.X.DType.Size()
}
