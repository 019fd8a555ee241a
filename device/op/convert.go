package op

import "mt/device"

// Convert writes Dst (N) = Src (N) in the type of Dst, and rounds bf16 to nearest even. Both are fp32 or bf16.
type Convert struct {
	Dst, Src device.Tensor
	N        int64
}

// Name implements device.Op.
func (a *Convert) Name() string { return "Convert" }

// Check implements device.Op.
func (a *Convert) Check() error {
	var c checker
	c.sizes(int(a.N))
	c.act("Dst", a.Dst, int(a.N))
	c.act("Src", a.Src, int(a.N))
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *Convert) Bytes() int64 {
	return a.N * (a.Dst.DType.Size() + a.Src.DType.Size())
}
