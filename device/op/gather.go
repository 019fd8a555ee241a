package op

import "mt/device"

// GatherRows writes Dst (T, C) = Src (U, C) rows Index (T) i32; Dst and Src act.
type GatherRows struct {
	Dst, Src, Index device.Tensor
	T, C            int
}

// Name implements device.Op.
func (a *GatherRows) Name() string { return "GatherRows" }

// Check implements device.Op. Of Src one row has to be there; which rows Index
// names is not looked at.
func (a *GatherRows) Check() error {
	var c checker
	c.sizes(a.T, a.C)
	c.act("Dst", a.Dst, a.T*a.C)
	c.tensor("Src", a.Src, min(a.T, 1)*a.C, a.Dst.DType)
	c.tensor("Index", a.Index, a.T, device.I32)
	return c.err
}
