package op

import (
	"fmt"
	"math/bits"

	"mt/device"
)

// MatMul computes D = op(A)·op(B) [+ C] [+ Bias].
//
//	A (M, K), or (K, M) with TransA; B (K, N), or (N, K) with TransB
//	D (M, N); C none or (M, N) of D's dtype, may be D itself (accumulate)
//	Bias none or (N) f32
//	Ragged: M (with TransA: K) depends on the data, as the number of an expert's tokens does. A device that chooses
//	algorithms by shape then chooses one for each power of two
//
// A and B have the same dtype (F32 or BF16), D is F32 or BF16. Products and sums are fp32. D is rounded once, after C
// and Bias were added.
type MatMul struct {
	M, N, K        int
	TransA, TransB bool
	A, B, C, D     device.Tensor
	Bias           device.Tensor
	Ragged         bool
}

// Name implements device.Op.
func (m *MatMul) Name() string { return "MatMul" }

// Check implements device.Op.
func (m *MatMul) Check() error {
	var c checker
	c.sizes(m.M, m.N, m.K)
	c.act("A", m.A, m.M*m.K)
	c.tensor("B", m.B, m.K*m.N, m.A.DType)
	c.act("D", m.D, m.M*m.N)
	c.optional("C", m.C, m.M*m.N, m.D.DType)
	c.optional("Bias", m.Bias, m.N, device.F32)
	return c.err
}

// Work implements Worker. It counts 2·M·N·K. The shape rounds an extent that depends on the data up to a power of
// two.
func (m *MatMul) Work() (shape string, flops float64) {
	return m.shape().String(), 2 * float64(m.M) * float64(m.N) * float64(m.K)
}

// atMost returns "≤" and the power of two at or above n, for n ≥ 0. Profiles use it for extents
// that depend on the data, to have few shapes.
func atMost(n int) string { return fmt.Sprintf("≤%d", 1<<bits.Len(uint(max(n, 1)-1))) }

func transposes(a, b bool) string {
	switch {
	case a && b:
		return " AᵀBᵀ"
	case a:
		return " AᵀB"
	case b:
		return " ABᵀ"
	}
	return " AB"
}

// Bytes implements Mover: the bytes of device memory that are read and written.
func (m *MatMul) Bytes() int64 {
	n := int64(m.M*m.K)*m.A.DType.Size() + int64(m.K*m.N)*m.B.DType.Size() + int64(m.M*m.N)*m.D.DType.Size()
	if !m.C.None() {
		n += int64(m.M*m.N) * m.C.DType.Size()
	}
	return n
}
