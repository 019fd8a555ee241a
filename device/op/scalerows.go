package op

import "mt/device"

// ScaleRows multiplies row t of X by W[Index[t]], in place.
//
//	X (T, C) act; W (P) f32; Index (T) i32, each < P
type ScaleRows struct {
	X, W, Index device.Tensor
	T, C, P     int
}

// Name implements device.Op.
func (a *ScaleRows) Name() string { return "ScaleRows" }

// Check implements device.Op. The values of Index are not checked.
func (a *ScaleRows) Check() error {
	var c checker
	c.scaledRows(a.W, a.Index, a.T, a.C, a.P)
	c.act("X", a.X, a.T*a.C)
	return c.err
}

// ScaleRowsBackward writes the gradient of the weights and scales both Y and its gradient.
//
//	Y (T, C) act: the unscaled rows; DY (T, C) act: the gradient of the scaled rows
//	W (P) f32; Index (T) i32, each < P, none twice
//	DW (P) f32: element Index[t] becomes Σ_c DY·Y, other elements keep their value
//
// Then it multiplies row t of both DY and Y by W[Index[t]], in place. DY becomes the gradient of the unscaled rows,
// and Y the scaled rows.
type ScaleRowsBackward struct {
	DY, Y, W, DW, Index device.Tensor
	T, C, P             int
}

// Name implements device.Op.
func (a *ScaleRowsBackward) Name() string { return "ScaleRowsBackward" }

// Check implements device.Op. The values of Index are not checked.
func (a *ScaleRowsBackward) Check() error {
	var c checker
	c.scaledRows(a.W, a.Index, a.T, a.C, a.P)
	c.act("Y", a.Y, a.T*a.C)
	c.tensor("DY", a.DY, a.T*a.C, a.Y.DType)
	c.tensor("DW", a.DW, a.P, device.F32)
	return c.err
}

// scaledRows checks the arguments that operations with a factor for each row share: W has P
// factors, and Index selects one for each of T rows.
func (c *checker) scaledRows(w, index device.Tensor, T, C, P int) {
	c.sizes(T, C, P)
	c.tensor("W", w, P, device.F32)
	c.tensor("Index", index, T, device.I32)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ScaleRows) Bytes() int64 {
	return 2*int64(a.T*a.C)*a.X.DType.Size() + 8*int64(a.T)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ScaleRowsBackward) Bytes() int64 {
	return 4*int64(a.T*a.C)*a.Y.DType.Size() + 12*int64(a.T)
}
