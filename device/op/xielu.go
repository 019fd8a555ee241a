package op

import "mt/device"

// XIELU writes Y (T, F) act = f(X), X (T, F) act: the activation of an MLP without a gate, with two parameters. f(x) is
// a·x² + x/2 for x > 0, otherwise b·(e^min(x, −1e−6) − 1 − x) + x/2. Y may be X. Source: arXiv:2411.13010, with the
// constants of Transformers' XIELUActivation.
//
//	Alpha (2) f32: a = softplus(Alpha[0]), b = 1/2 + softplus(Alpha[1])
type XIELU struct {
	Y, X, Alpha device.Tensor
	T, F        int
}

// Name implements device.Op.
func (a *XIELU) Name() string { return "XIELU" }

// Check implements device.Op.
func (a *XIELU) Check() error {
	var c checker
	c.sizes(a.T, a.F)
	c.act("X", a.X, a.T*a.F)
	c.tensor("Y", a.Y, a.T*a.F, a.X.DType)
	c.tensor("Alpha", a.Alpha, min(2, a.T*a.F), device.F32)
	return c.err
}

// XIELUBackward overwrites DX (T, F) act = DY·f'(X), given DY and X (T, F), and accumulates DAlpha (2) f32 unless it is
// none. DX may be X. It also writes Y (T, F) as XIELU does. Y may be DY.
type XIELUBackward struct {
	DX, Y, DY, X, Alpha, DAlpha device.Tensor
	T, F                        int
}

// Name implements device.Op.
func (a *XIELUBackward) Name() string { return "XIELUBackward" }

// Check implements device.Op.
func (a *XIELUBackward) Check() error {
	var c checker
	c.sizes(a.T, a.F)
	c.act("X", a.X, a.T*a.F)
	c.tensor("DX", a.DX, a.T*a.F, a.X.DType)
	c.tensor("DY", a.DY, a.T*a.F, a.X.DType)
	c.tensor("Y", a.Y, a.T*a.F, a.X.DType)
	c.tensor("Alpha", a.Alpha, min(2, a.T*a.F), device.F32)
	c.optional("DAlpha", a.DAlpha, 2, device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *XIELU) Bytes() int64 { return 2 * int64(a.T*a.F) * a.X.DType.Size() }

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *XIELUBackward) Bytes() int64 { return 4 * int64(a.T*a.F) * a.X.DType.Size() }
