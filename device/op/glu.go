package op

import (
	"fmt"

	"mt/device"
)

// Activation is the function of an MLP, or of its gate.
type Activation uint8

// The activations.
const (
	SiLU     Activation = iota // x/(1+e^−x)
	GELUTanh                   // ½x(1+tanh(√(2/π)(x+0.044715x³))). Source: arXiv:1606.08415
	GELU                       // ½x(1+erf(x/√2)), of the same source; of Activate alone
)

func (f Activation) String() string {
	switch f {
	case SiLU:
		return "silu"
	case GELUTanh:
		return "gelu_tanh"
	case GELU:
		return "gelu"
	}
	return fmt.Sprintf("Activation(%d)", uint8(f))
}

// GLU writes Y (T, F) act = f(gate)·up. Each row of GU (T, 2F) act holds first the
// gate and then the up. Source: arXiv:2002.05202.
type GLU struct {
	Activation Activation
	Y, GU      device.Tensor
	T, F       int
}

// Name implements device.Op.
func (a *GLU) Name() string { return "GLU" }

// Check implements device.Op.
func (a *GLU) Check() error {
	var c checker
	c.gate(a.Activation)
	c.sizes(a.T, a.F)
	c.act("GU", a.GU, 2*a.T*a.F)
	c.tensor("Y", a.Y, a.T*a.F, a.GU.DType)
	return c.err
}

// GLUBackward overwrites DGU (T, 2F) act, given DY (T, F) and GU (T, 2F); DGU may
// be GU. Unless Y (T, F) is none it is written too, as GLU would write it; Y may be
// DY.
type GLUBackward struct {
	Activation     Activation
	DGU, Y, DY, GU device.Tensor
	T, F           int
}

// Name implements device.Op.
func (a *GLUBackward) Name() string { return "GLUBackward" }

// Check implements device.Op.
func (a *GLUBackward) Check() error {
	var c checker
	c.gate(a.Activation)
	c.sizes(a.T, a.F)
	c.act("GU", a.GU, 2*a.T*a.F)
	c.tensor("DGU", a.DGU, 2*a.T*a.F, a.GU.DType)
	c.tensor("DY", a.DY, a.T*a.F, a.GU.DType)
	c.optional("Y", a.Y, a.T*a.F, a.GU.DType)
	return c.err
}

// activation checks that f is one of the activations.
func (c *checker) activation(f Activation) {
	if f > GELU {
		c.fail("%v is no activation", f)
	}
}

// gate checks that f is one of the activations that a gate may have.
func (c *checker) gate(f Activation) {
	if c.activation(f); f == GELU {
		c.fail("%v is not computed of a gate", f)
	}
}

// Bytes implements Mover.
func (a *GLU) Bytes() int64 {
	return 3 * int64(a.T*a.F) * a.GU.DType.Size()
}

// Bytes implements Mover.
func (a *GLUBackward) Bytes() int64 {
	tensors := int64(5) // DY, and both halves of GU and of DGU
	if !a.Y.None() {
		tensors++
	}
	return tensors * int64(a.T*a.F) * a.GU.DType.Size()
}
