package op

import "mt/device"

// RoPE rotates the first Rotary of the Dim elements of each head, in place. Source: arXiv:2104.09864. The paper
// rotates neighbouring elements (Interleaved: element 2i pairs with 2i + 1). Most Hugging Face models have the
// half-split layout (element i pairs with i + Rotary/2).
//
//	X act: element (t, head, c) at t·Stride + head·Dim + c
//	Cos, Sin (P, Rotary/2) f32 tables; Pos (T) i32, each < P
//	Inverse rotates back: the gradient of the rotation
type RoPE struct {
	X, Cos, Sin, Pos              device.Tensor
	T, Heads, Dim, Rotary, Stride int
	Inverse, Interleaved          bool
}

// Name implements device.Op.
func (a *RoPE) Name() string { return "RoPE" }

// Check implements device.Op. The tables must hold at least one position. The values of Pos are not checked.
func (a *RoPE) Check() error {
	var c checker
	c.sizes(a.T, a.Heads, a.Dim, a.Rotary, a.Stride)
	if a.Rotary%2 != 0 || a.Rotary > a.Dim {
		c.fail("Rotary is %d: want an even number up to Dim = %d", a.Rotary, a.Dim)
	}
	c.act("X", a.X, strided(a.T, a.Stride, strided(a.Heads, a.Dim, a.Rotary)))
	c.tensor("Cos", a.Cos, a.Rotary/2, device.F32)
	c.tensor("Sin", a.Sin, a.Rotary/2, device.F32)
	c.tensor("Pos", a.Pos, a.T, device.I32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *RoPE) Bytes() int64 {
	return 2*int64(a.T*a.Heads*a.Rotary)*a.X.DType.Size() + 4*int64(a.T*a.Rotary)
}
