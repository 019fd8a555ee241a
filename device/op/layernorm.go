package op

import "mt/device"

// LayerNorm writes Y and Stats: for each of Rows rows of Dim elements, y = (x −
// mean)·rstd·W + B with mean = mean(x) and rstd = 1/√(mean((x − mean)²) + Eps).
// Source: arXiv:1607.06450.
//
//	X, Y (Rows, Dim) act; Y may be X
//	W (Dim) f32; B (Dim) f32 or none, which is 0
//	Stats (Rows, 2) f32, written unless none: a row's mean, then its rstd
type LayerNorm struct {
	Y, Stats, X, W, B device.Tensor
	Rows, Dim         int
	Eps               float32
}

// Name implements device.Op.
func (a *LayerNorm) Name() string { return "LayerNorm" }

// Check implements device.Op.
func (a *LayerNorm) Check() error {
	var c checker
	c.sizes(a.Rows, a.Dim)
	c.act("X", a.X, a.Rows*a.Dim)
	c.tensor("Y", a.Y, a.Rows*a.Dim, a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("B", a.B, a.Dim, device.F32)
	c.optional("Stats", a.Stats, 2*a.Rows, device.F32)
	return c.err
}

// LayerNormBackward writes DX (or adds to it) and accumulates DW. The gradient of B is the sum of DY's rows
// (AddBiasGrad).
//
//	X, W, Stats as in the forward; DX, DY (Rows, Dim) act; DX may be DY
//	DW (Dim) f32 accumulates, or is none
//	Add: DX += gradient (one rounding) instead of DX = gradient; then DX is not DY
type LayerNormBackward struct {
	DX, DW, DY, X, W, Stats device.Tensor
	Rows, Dim               int
	Add                     bool
}

// Name implements device.Op.
func (a *LayerNormBackward) Name() string { return "LayerNormBackward" }

// Check implements device.Op. With Add it refuses a DX that begins where DY begins.
func (a *LayerNormBackward) Check() error {
	var c checker
	c.sizes(a.Rows, a.Dim)
	c.act("X", a.X, a.Rows*a.Dim)
	c.tensor("DX", a.DX, a.Rows*a.Dim, a.X.DType)
	c.tensor("DY", a.DY, a.Rows*a.Dim, a.X.DType)
	c.tensor("W", a.W, a.Dim, device.F32)
	c.optional("DW", a.DW, a.Dim, device.F32)
	c.tensor("Stats", a.Stats, 2*a.Rows, device.F32)
	if a.Add && a.DX.Addr == a.DY.Addr && a.Rows > 0 {
		c.fail("with Add, DX may not be DY")
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *LayerNorm) Bytes() int64 { return 2 * int64(a.Rows*a.Dim) * a.X.DType.Size() }

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *LayerNormBackward) Bytes() int64 {
	tensors := int64(3)
	if a.Add {
		tensors++ // DX is read too
	}
	return tensors * int64(a.Rows*a.Dim) * a.X.DType.Size()
}
