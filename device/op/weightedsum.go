package op

import "mt/device"

// WeightedSum writes D (N) act = A·X + B·Y, computed in fp32 and rounded once. X (N) has D's type and may be D. Y (N)
// is fp32.
type WeightedSum struct {
	D, X, Y device.Tensor
	N       int64
	A, B    float32
}

// Name implements device.Op.
func (a *WeightedSum) Name() string { return "WeightedSum" }

// Check implements device.Op.
func (a *WeightedSum) Check() error {
	var c checker
	c.sizes(int(a.N))
	c.act("D", a.D, int(a.N))
	c.tensor("X", a.X, int(a.N), a.D.DType)
	c.tensor("Y", a.Y, int(a.N), device.F32)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *WeightedSum) Bytes() int64 { return a.N * (2*a.D.DType.Size() + 4) }
