package op

import "mt/device"

// AddBiasGrad accumulates DB (N) f32 += Σ_t DY (T, N) act.
type AddBiasGrad struct {
	DB, DY device.Tensor
	T, N   int
}

// Name implements device.Op.
func (a *AddBiasGrad) Name() string { return "AddBiasGrad" }

// Check implements device.Op.
func (a *AddBiasGrad) Check() error {
	var c checker
	c.sizes(a.T, a.N)
	c.tensor("DB", a.DB, a.N, device.F32)
	c.act("DY", a.DY, a.T*a.N)
	return c.err
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (a *AddBiasGrad) Bytes() int64 {
	return int64(a.T*a.N)*a.DY.DType.Size() + 8*int64(a.N)
}
