package op

import (
	"math"

	"mt/device"
)

// DivideByNorm divides X (N) act in place by max(‖X‖, Eps), Eps > 0. ‖X‖ is the Frobenius norm, rounded to X's type.
// The quotients are rounded once. The order of the sum of squares depends on N alone.
type DivideByNorm struct {
	X   device.Tensor
	N   int64
	Eps float32
}

// Name implements device.Op.
func (a *DivideByNorm) Name() string { return "DivideByNorm" }

// Check implements device.Op.
func (a *DivideByNorm) Check() error {
	var c checker
	c.sizes(int(a.N))
	c.act("X", a.X, int(a.N))
	if a.N > 0 && !(a.Eps > 0 && a.Eps <= math.MaxFloat32) {
		c.fail("Eps is %v: want a positive number", a.Eps)
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *DivideByNorm) Bytes() int64 { return 3 * a.N * a.X.DType.Size() }
