package op

import "mt/device"

// Scale multiplies elements of X, of type act, by Factor in place, rounding once. Rows 0: X is N contiguous elements.
// Otherwise Scale multiplies the first N elements of each of Rows rows. Rows begin Stride elements apart.
type Scale struct {
	X            device.Tensor
	N            int64
	Factor       float32
	Rows, Stride int
}

// Name implements device.Op.
func (a *Scale) Name() string { return "Scale" }

// Check implements device.Op.
func (a *Scale) Check() error {
	var c checker
	c.sizes(int(a.N), a.Rows, a.Stride)
	if a.Rows == 0 {
		c.act("X", a.X, int(a.N))
	} else {
		c.act("X", a.X, strided(a.Rows, a.Stride, int(a.N)))
	}
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Scale) Bytes() int64 {
	return 2 * a.N * int64(max(1, a.Rows)) * a.X.DType.Size()
}
