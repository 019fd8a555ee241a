package op

import "mt/device"

// Sinks adds attention sinks to the result of Attention. With a sink, every head's softmax has one more score, whose
// value vector is 0. In place, Sinks multiplies row t of head h of O by σ(LSE·ln 2 − sink) and sets LSE to log₂(2^LSE
// + e^sink). AttentionBackward with the new O and LSE then gives the gradients of attention with sinks. Source: the
// gpt-oss model card, arXiv:2508.10925.
//
//	O (T, Heads·Dim) act, LSE (Heads, T) f32, as Attention wrote them
//	Sinks (Heads) f32
type Sinks struct {
	O, LSE, Sinks device.Tensor
	T, Heads, Dim int
}

// Name implements device.Op.
func (a *Sinks) Name() string { return "Sinks" }

// Check implements device.Op.
func (a *Sinks) Check() error {
	var c checker
	c.sizes(a.T, a.Heads, a.Dim)
	c.act("O", a.O, a.T*a.Heads*a.Dim)
	c.tensor("LSE", a.LSE, a.Heads*a.T, device.F32)
	c.tensor("Sinks", a.Sinks, a.Heads, device.F32)
	return c.err
}

// SinksGrad accumulates DSinks (Heads) f32: −Σ_t e^sink·2^−LSE·Delta for each head.
//
//	LSE (Heads, T) f32 as Sinks left it, Delta (Heads, T) f32 as AttentionBackward left it
type SinksGrad struct {
	DSinks, LSE, Delta, Sinks device.Tensor
	T, Heads                  int
}

// Name implements device.Op.
func (a *SinksGrad) Name() string { return "SinksGrad" }

// Check implements device.Op.
func (a *SinksGrad) Check() error {
	var c checker
	c.sizes(a.T, a.Heads)
	c.tensor("DSinks", a.DSinks, a.Heads, device.F32)
	c.tensor("LSE", a.LSE, a.Heads*a.T, device.F32)
	c.tensor("Delta", a.Delta, a.Heads*a.T, device.F32)
	c.tensor("Sinks", a.Sinks, a.Heads, device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Sinks) Bytes() int64 {
	return 2*int64(a.T*a.Heads*a.Dim)*a.O.DType.Size() + 8*int64(a.T*a.Heads)
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *SinksGrad) Bytes() int64 { return 8 * int64(a.T*a.Heads) }
