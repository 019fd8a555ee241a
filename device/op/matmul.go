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
//	Batch: the op computes several such products, of parts of A, B, C and D, without Bias
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
	Batch          Batch
}

// Batch says how many products of the same sizes a MatMul computes, and where their matrices lie. C lies as D does. With N
// 0 there is one product, of matrices without gaps.
type Batch struct {
	N       int
	A, B, D Place
}

// Place says where the matrices of an operand lie, in elements: rows begin Row apart, the matrices of successive products
// Next apart. The matrices may be columns of one wider matrix, such as the heads of attention.
type Place struct{ Row, Next int }

// Matrix is an operand of a product as it lies in memory.
type Matrix struct {
	Rows, Cols int
	Place
}

// Stored returns A, B and D of the first product; C lies as D does.
func (m *MatMul) Stored() (a, b, d Matrix) {
	a, b, d = Matrix{m.M, m.K, m.Batch.A}, Matrix{m.K, m.N, m.Batch.B}, Matrix{m.M, m.N, m.Batch.D}
	if m.TransA {
		a.Rows, a.Cols = m.K, m.M
	}
	if m.TransB {
		b.Rows, b.Cols = m.N, m.K
	}
	if m.Batch.N == 0 {
		a.Row, b.Row, d.Row = a.Cols, b.Cols, d.Cols
	}
	return a, b, d
}

// Product returns product i of the batch as a MatMul of its own.
func (m *MatMul) Product(i int) MatMul {
	p := *m
	p.Batch.N = min(p.Batch.N, 1)
	p.A, p.B, p.C, p.D = m.Batch.A.of(m.A, i), m.Batch.B.of(m.B, i), m.Batch.D.of(m.C, i), m.Batch.D.of(m.D, i)
	return p
}

// of returns t from matrix i on.
func (p Place) of(t device.Tensor, i int) device.Tensor {
	at := min(int64(i*p.Next), t.Len) // C may be none
	return t.Slice(at, t.Len-at)
}

// span returns how many elements of an operand n products read or write.
func (m Matrix) span(n int) int { return strided(n, m.Next, strided(m.Rows, m.Row, m.Cols)) }

// Name implements device.Op.
func (m *MatMul) Name() string { return "MatMul" }

// Check implements device.Op.
func (m *MatMul) Check() error {
	var c checker
	n := max(1, m.Batch.N)
	a, b, d := m.Stored()
	c.sizes(m.M, m.N, m.K, m.Batch.N, a.Row, a.Next, b.Row, b.Next, d.Row, d.Next)
	if a.Row < a.Cols || b.Row < b.Cols || d.Row < d.Cols || n > 1 && d.Next < d.Cols || m.Batch.N > 0 && !m.Bias.None() {
		c.fail("a batch with overlapping rows or results, or with a bias: %+v", m.Batch)
	}
	c.act("A", m.A, a.span(n))
	c.tensor("B", m.B, b.span(n), m.A.DType)
	c.act("D", m.D, d.span(n))
	c.optional("C", m.C, d.span(n), m.D.DType)
	c.optional("Bias", m.Bias, m.N, device.F32)
	return c.err
}

// Work implements Worker. It counts 2·M·N·K for each product. The shape rounds an extent that depends on the data up to
// a power of two.
func (m *MatMul) Work() (shape string, flops float64) {
	s, _, flops := m.MostWork()
	return s.String(), flops
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
	return int64(max(1, m.Batch.N)) * n
}
