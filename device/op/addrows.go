package op

import "mt/device"

// AddRows adds row t of Src (T, C) act to row Index[t] of Dst (U, C) f32. Index (T) i32 holds distinct numbers below
// U.
//
// With W and Bias it adds W[Pairs[t]]·(row + Bias) instead: an expert's weighted contribution to a token.
//
//	W (P) f32; if none, Pairs and Bias are none too
//	Pairs (T) i32, each < P; Bias (C) f32, or none
type AddRows struct {
	Dst, Src, Index device.Tensor
	U, T, C         int
	W, Pairs, Bias  device.Tensor
	P               int
}

// Name implements device.Op.
func (a *AddRows) Name() string { return "AddRows" }

// Check implements device.Op. The values of Index and Pairs are not checked.
func (a *AddRows) Check() error {
	var c checker
	c.sizes(a.U, a.T, a.C, a.P)
	c.tensor("Dst", a.Dst, a.U*a.C, device.F32)
	c.act("Src", a.Src, a.T*a.C)
	c.tensor("Index", a.Index, a.T, device.I32)
	if a.W.None() && a.Pairs.None() && a.Bias.None() {
		return c.err
	}
	c.tensor("W", a.W, a.P, device.F32)
	c.tensor("Pairs", a.Pairs, a.T, device.I32)
	c.optional("Bias", a.Bias, a.C, device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AddRows) Bytes() int64 {
	return int64(a.T*a.C)*(8+a.Src.DType.Size()) + 4*int64(a.T)
}
