package kernels

import "mt/device/op"

func init() { add(WeightedBiasGrad) }

var (
	weightedSlice = forAccess("bias", "weighted_slice")
	weightGrad    = forAccess("bias", "weight_grad")
)

// WeightedBiasGrad launches op.WeightedBiasGrad. An index outside W makes DB NaN and writes no element of DW.
func WeightedBiasGrad(l Launcher, a *op.WeightedBiasGrad) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.DY, a.B) && wideBy(a.DY.DType, a.C)
	if !a.DB.None() {
		sumSlices(l, &weightedSlice, a.DB, a.DY, a.T, a.C, wide, func(p *Params) { p.Tensor(a.W).Tensor(a.Index).I32(a.P) })
	}
	p := l.Params().Tensor(a.DW).Tensor(a.DY).Tensor(a.B).Tensor(a.Index).I32(a.C).I32(a.P)
	l.Launch(weightGrad.of(wide, a.DY.DType), line(int64(a.T)), line(int64(warps(a.C/chunkOf(wide, a.DY.DType), 256))), 0, p)
}
