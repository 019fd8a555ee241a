package op

import "mt/device"

// WeightedBiasGrad accumulates the gradients of the bias and of the weights of AddRows.
//
//	DY (T, C) act: the gradient of the rows; B (C) f32; W (P) f32; Index (T) i32, each < P, none twice
//	DB (C) f32 += Σ_t W[Index[t]]·DY, or none
//	DW (P) f32: element Index[t] += Σ_c DY·B, other elements keep their value
type WeightedBiasGrad struct {
	DB, DW, DY, B, W, Index device.Tensor
	T, C, P                 int
}

// Name implements device.Op.
func (a *WeightedBiasGrad) Name() string { return "WeightedBiasGrad" }

// Check implements device.Op. The values of Index are not checked.
func (a *WeightedBiasGrad) Check() error {
	var c checker
	c.scaledRows(a.W, a.Index, a.T, a.C, a.P)
	c.act("DY", a.DY, a.T*a.C)
	c.optional("DB", a.DB, a.C, device.F32)
	c.tensor("DW", a.DW, a.P, device.F32)
	c.tensor("B", a.B, a.C, device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *WeightedBiasGrad) Bytes() int64 {
	return int64(a.T*a.C)*a.DY.DType.Size() + 16*int64(a.T) + 12*int64(a.C)
}
