package kernels

import "mt/device/op"

func init() {
	add(ScaleRows)
	add(ScaleRowsBackward)
}

var (
	scaleRows         = forAccess("scale", "scale_rows")
	scaleRowsBackward = forAccess("scale", "scale_rows_backward")
)

// ScaleRows launches op.ScaleRows. An index outside W gives a row of NaN.
func ScaleRows(l Launcher, a *op.ScaleRows) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.X) && wideBy(a.X.DType, a.C)
	grid, block := columnBlocks(a.T, a.C, scaleElems, 256)
	l.Launch(scaleRows.of(wide, a.X.DType), grid, block, 0, l.Params().Tensor(a.X).Tensor(a.W).Tensor(a.Index).I32(a.C).I32(a.P))
}

// ScaleRowsBackward launches op.ScaleRowsBackward. An index outside W gives rows of NaN and writes no element of DW.
func ScaleRowsBackward(l Launcher, a *op.ScaleRowsBackward) {
	if a.T == 0 {
		return
	}
	wide := wideAt(a.DY, a.Y) && wideBy(a.Y.DType, a.C)
	threads := warps(a.C/chunkOf(wide, a.Y.DType), 256)
	p := l.Params().Tensor(a.DY).Tensor(a.Y).Tensor(a.W).Tensor(a.DW).Tensor(a.Index).I32(a.C).I32(a.P)
	l.Launch(scaleRowsBackward.of(wide, a.Y.DType), line(int64(a.T)), line(int64(threads)), 0, p)
}
