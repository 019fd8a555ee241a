package op

import (
	"fmt"

	"mt/device"
)

// Activation is the activation function of an MLP or of its gate.
type Activation uint8

// The activations. Each comment has the formula.
const (
	SiLU        Activation = iota // x/(1+e^−x)
	GELUTanh                      // ½x(1+tanh(√(2/π)(x+0.044715x³))). Source: arXiv:1606.08415
	CutSiLU                       // a function of gate and up together, see Cut
	GELU                          // ½x(1+erf(x/√2)), from the same source
	SigmoidGate                   // 1/(1+e^−x), for gates only
	ReLU                          // max(0, x), whose slope at 0 is 0
	SquaredReLU                   // max(0, x)², for MLPs without a gate only. Source: arXiv:2109.08668
)

// Cut parametrizes CutSiLU and is zero for other activations. With g = min(gate, Limit) and u = up clamped to ±Limit,
// the result is g·σ(Alpha·g)·(u+1). Clamped inputs have gradient 0. Source: the gpt-oss model card, arXiv:2508.10925.
type Cut struct{ Alpha, Limit float32 }

func (f Activation) String() string {
	switch f {
	case SiLU:
		return "silu"
	case GELUTanh:
		return "gelu_tanh"
	case CutSiLU:
		return "cut_silu"
	case GELU:
		return "gelu"
	case SigmoidGate:
		return "sigmoid"
	case ReLU:
		return "relu"
	case SquaredReLU:
		return "relu2"
	}
	return fmt.Sprintf("Activation(%d)", uint8(f))
}

// GLU writes Y (T, F) act = f(gate)·up. Each row of GU (T, 2F) act holds the gate, then up. Source: arXiv:2002.05202.
type GLU struct {
	Activation Activation
	Cut        Cut
	Y, GU      device.Tensor
	T, F       int
}

// Name implements device.Op.
func (a *GLU) Name() string { return "GLU" }

// Check implements device.Op.
func (a *GLU) Check() error {
	var c checker
	c.gate(a.Activation, a.Cut)
	c.sizes(a.T, a.F)
	c.act("GU", a.GU, 2*a.T*a.F)
	c.tensor("Y", a.Y, a.T*a.F, a.GU.DType)
	return c.err
}

// GLUBackward overwrites DGU (T, 2F) act, given DY (T, F) and GU (T, 2F). DGU may be GU. It also writes Y (T, F) as
// GLU does, unless Y is none. Y may be DY.
type GLUBackward struct {
	Activation     Activation
	Cut            Cut
	DGU, Y, DY, GU device.Tensor
	T, F           int
}

// Name implements device.Op.
func (a *GLUBackward) Name() string { return "GLUBackward" }

// Check implements device.Op.
func (a *GLUBackward) Check() error {
	var c checker
	c.gate(a.Activation, a.Cut)
	c.sizes(a.T, a.F)
	c.act("GU", a.GU, 2*a.T*a.F)
	c.tensor("DGU", a.DGU, 2*a.T*a.F, a.GU.DType)
	c.tensor("DY", a.DY, a.T*a.F, a.GU.DType)
	c.optional("Y", a.Y, a.T*a.F, a.GU.DType)
	return c.err
}

// activation checks that f is a valid Activation.
func (c *checker) activation(f Activation) {
	if f > SquaredReLU {
		c.fail("%v is no activation", f)
	}
}

// alone checks that f may be the activation of an MLP without a gate: f has one input.
func (c *checker) alone(f Activation) {
	if c.activation(f); f == CutSiLU || f == SigmoidGate {
		c.fail("%v is computed of a gate", f)
	}
}

// gate checks that f may be the activation of a gate, and that cut has the numbers that f needs.
func (c *checker) gate(f Activation, cut Cut) {
	c.activation(f)
	switch {
	case f == SquaredReLU:
		c.fail("%v is no activation of a gate", f)
	case f == CutSiLU && !(cut.Alpha > 0 && cut.Limit > 0):
		c.fail("%v with alpha %v and limit %v: both must be above 0", f, cut.Alpha, cut.Limit)
	case f != CutSiLU && cut != Cut{}:
		c.fail("%v has no alpha and no limit", f)
	}
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *GLU) Bytes() int64 {
	return 3 * int64(a.T*a.F) * a.GU.DType.Size()
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *GLUBackward) Bytes() int64 {
	tensors := int64(5) // DY, and both halves of GU and of DGU
	if !a.Y.None() {
		tensors++
	}
	return tensors * int64(a.T*a.F) * a.GU.DType.Size()
}
