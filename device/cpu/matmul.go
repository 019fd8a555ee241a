package cpu

import (
	"mt/device"
	"mt/device/cpu/gemm"
	"mt/device/op"
)

func init() { op.Add(&table, matMul) }

// matMul computes the product, or those of a batch one after the other, with gemm.Run.
func matMul(s *stream, m *op.MatMul) error {
	for i := range max(1, m.Batch.N) {
		m := m.Product(i)
		a, b, d := m.Stored()
		if raceEnabled {
			reads(m.A, a.Rows, a.Row, a.Cols)
			reads(m.B, b.Rows, b.Row, b.Cols)
			reads(m.C, d.Rows, d.Row, d.Cols)
			reads(m.Bias, 1, 0, m.N)
			writes(m.D, d.Rows, d.Row, d.Cols)
		}
		gemm.Run(s.pool, &s.gemm, gemm.Args{
			M: m.M, N: m.N, K: m.K, TransA: m.TransA, TransB: m.TransB,
			A: pointer(m.A.Addr), B: pointer(m.B.Addr), C: pointer(m.C.Addr), D: pointer(m.D.Addr),
			ABF16: m.A.DType == device.BF16, BBF16: m.B.DType == device.BF16, DBF16: m.D.DType == device.BF16,
			Bias: pointer(m.Bias.Addr), LDA: a.Row, LDB: b.Row, LDD: d.Row,
		})
	}
	return nil
}
