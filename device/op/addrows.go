package op

import "mt/device"

// AddRows adds row t of Src (T, C) act to row Index[t] of Dst (U, C) f32. Index (T)
// i32 has numbers below U, none of them twice.
type AddRows struct {
	Dst, Src, Index device.Tensor
	U, T, C         int
}

// Name implements device.Op.
func (a *AddRows) Name() string { return "AddRows" }

// Check implements device.Op. The values of Index are not checked.
func (a *AddRows) Check() error {
	var c checker
	c.sizes(a.U, a.T, a.C)
	c.tensor("Dst", a.Dst, a.U*a.C, device.F32)
	c.act("Src", a.Src, a.T*a.C)
	c.tensor("Index", a.Index, a.T, device.I32)
	return c.err
}

// Bytes implements Mover.
func (a *AddRows) Bytes() int64 {
	return int64(a.T*a.C)*(8+a.Src.DType.Size()) + 4*int64(a.T)
}
