package op

import "mt/device"

// ScatterAddRows adds the rows Pos[Start[u]:Start[u+1]] of DY (T, C) act, in that order, to row u of DRows (U, C)
// f32.
//
//	Start (U+1) i32, none if U is 0; Pos (T) i32
type ScatterAddRows struct {
	DRows, DY, Start, Pos device.Tensor
	U, T, C               int
}

// Name implements device.Op.
func (a *ScatterAddRows) Name() string { return "ScatterAddRows" }

// Check implements device.Op. The values of Start and Pos are not checked.
func (a *ScatterAddRows) Check() error {
	var c checker
	c.sizes(a.U, a.T, a.C)
	c.tensor("DRows", a.DRows, a.U*a.C, device.F32)
	c.act("DY", a.DY, a.T*a.C)
	c.tensor("Start", a.Start, min(a.U, 1)*(a.U+1), device.I32)
	c.tensor("Pos", a.Pos, a.T, device.I32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ScatterAddRows) Bytes() int64 {
	return int64(a.T*a.C)*a.DY.DType.Size() + 8*int64(a.U*a.C) + 4*int64(a.U+a.T)
}
