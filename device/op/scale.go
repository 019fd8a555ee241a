package op

import "mt/device"

// Scale multiplies X (N) act by Factor in place, rounding once.
type Scale struct {
	X      device.Tensor
	N      int64
	Factor float32
}

// Name implements device.Op.
func (a *Scale) Name() string { return "Scale" }

// Check implements device.Op.
func (a *Scale) Check() error {
	var c checker
	c.sizes(int(a.N))
	c.act("X", a.X, int(a.N))
	return c.err
}

// Bytes implements Mover.
func (a *Scale) Bytes() int64 {
	return 2 * a.N * a.X.DType.Size()
}
