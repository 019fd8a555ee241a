package kernels

import "mt/device/op"

func init() { add(AddRows) }

var addRows, addWeightedRows = forAccess("rows", "add_rows"), forAccess("rows", "add_weighted_rows")

// AddRows launches op.AddRows. An index outside Dst adds nothing.
func AddRows(l Launcher, a *op.AddRows) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.Dst, a.Src, a.Bias) && wideBy(a.Src.DType, a.C)
	grid, block := columnBlocks(a.T, a.C, 16, 128)
	p, kernels := l.Params().Tensor(a.Dst).Tensor(a.Src).Tensor(a.Index).I32(a.U).I32(a.C), &addRows
	if !a.W.None() {
		kernels = &addWeightedRows
		p.Tensor(a.Bias).Tensor(a.W).Tensor(a.Pairs).I32(a.P)
	}
	l.Launch(kernels.of(wide, a.Src.DType), grid, block, 0, p)
}
