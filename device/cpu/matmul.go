package cpu

import (
	"mt/device"
	"mt/device/args"
	"mt/device/cpu/gemm"
)

// MatMul is gemm.Run.
func (o ops) MatMul(s device.Stream, m device.MatMul) {
	on(s).do("MatMul", args.MatMul(m), func(s *stream) error {
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
	})
}
