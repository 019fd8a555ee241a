package cpu

import (
	"mt/device"
	"mt/device/cpu/gemm"
	"mt/device/op"
)

func init() { op.Add(&table, matMul) }

// matMul computes the product with gemm.Run.
func matMul(s *stream, m *op.MatMul) error {
	if raceEnabled {
		reads(m.A, 1, 0, m.M*m.K)
		reads(m.B, 1, 0, m.K*m.N)
		reads(m.C, 1, 0, m.M*m.N)
		reads(m.Bias, 1, 0, m.N)
		writes(m.D, 1, 0, m.M*m.N)
	}
	gemm.Run(s.pool, &s.gemm, gemm.Args{
		M: m.M, N: m.N, K: m.K, TransA: m.TransA, TransB: m.TransB,
		A: pointer(m.A.Addr), B: pointer(m.B.Addr), C: pointer(m.C.Addr), D: pointer(m.D.Addr),
		ABF16: m.A.DType == device.BF16, BBF16: m.B.DType == device.BF16, DBF16: m.D.DType == device.BF16,
		Bias: pointer(m.Bias.Addr),
	})
	return nil
}
