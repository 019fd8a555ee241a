package op

import "mt/device"

// Activate writes Y (T, F) act = f(X), X (T, F) act: the activation of an MLP without a gate. Y may be X.
type Activate struct {
	Activation Activation
	Y, X       device.Tensor
	T, F       int
}

// Name implements device.Op.
func (a *Activate) Name() string { return "Activate" }

// Check implements device.Op.
func (a *Activate) Check() error {
	var c checker
	c.alone(a.Activation)
	c.sizes(a.T, a.F)
	c.act("X", a.X, a.T*a.F)
	c.tensor("Y", a.Y, a.T*a.F, a.X.DType)
	return c.err
}

// ActivateBackward overwrites DX (T, F) act = DY·f'(X), given DY and X (T, F). DX may be X. It also writes Y (T, F)
// as Activate does, unless Y is none. Y may be DY.
type ActivateBackward struct {
	Activation   Activation
	DX, Y, DY, X device.Tensor
	T, F         int
}

// Name implements device.Op.
func (a *ActivateBackward) Name() string { return "ActivateBackward" }

// Check implements device.Op.
func (a *ActivateBackward) Check() error {
	var c checker
	c.alone(a.Activation)
	c.sizes(a.T, a.F)
	c.act("X", a.X, a.T*a.F)
	c.tensor("DX", a.DX, a.T*a.F, a.X.DType)
	c.tensor("DY", a.DY, a.T*a.F, a.X.DType)
	c.optional("Y", a.Y, a.T*a.F, a.X.DType)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Activate) Bytes() int64 { return 2 * int64(a.T*a.F) * a.X.DType.Size() }

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *ActivateBackward) Bytes() int64 {
	tensors := int64(3)
	if !a.Y.None() {
		tensors++
	}
	return tensors * int64(a.T*a.F) * a.X.DType.Size()
}
