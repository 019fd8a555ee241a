package op

import "mt/device"

// GatherRows sets row t of Dst (T, C) act to row Index[t] of Src (U, C) act. Index (T) is i32.
type GatherRows struct {
	Dst, Src, Index device.Tensor
	T, C            int
}

// Name implements device.Op.
func (a *GatherRows) Name() string { return "GatherRows" }

// Check implements device.Op. Src must hold at least one row; the values of Index
// are not checked.
func (a *GatherRows) Check() error {
	var c checker
	c.sizes(a.T, a.C)
	c.act("Dst", a.Dst, a.T*a.C)
	c.tensor("Src", a.Src, min(a.T, 1)*a.C, a.Dst.DType)
	c.tensor("Index", a.Index, a.T, device.I32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *GatherRows) Bytes() int64 {
	return 2*int64(a.T*a.C)*a.Dst.DType.Size() + 4*int64(a.T)
}
