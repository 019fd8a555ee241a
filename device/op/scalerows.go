package op

import "mt/device"

// ScaleRowsBackward is for rows that are each multiplied by a weight before they are added up (AddRows with W): it writes
// the gradient of the weights and scales both Y and its gradient.
//
//	Y (T, C) act: the rows before they were scaled; DY (T, C) act: the gradient
//	of the scaled rows
//	W (P) f32; Index (T) i32, each < P, none twice
//	DW (P) f32: element Index[t] becomes Σ_c DY·Y, the others stay
//
// Then row t of both DY and Y is multiplied by W[Index[t]], in place. DY becomes
// the gradient of the rows before they were scaled, and Y the scaled rows.
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

// scaledRows checks what operations on rows that have weights need: for each of T rows, one of P factors.
func (c *checker) scaledRows(w, index device.Tensor, T, C, P int) {
	c.sizes(T, C, P)
	c.tensor("W", w, P, device.F32)
	c.tensor("Index", index, T, device.I32)
}

// Bytes implements Mover.
func (a *ScaleRowsBackward) Bytes() int64 {
	return 4*int64(a.T*a.C)*a.Y.DType.Size() + 12*int64(a.T)
}
