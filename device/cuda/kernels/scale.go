package kernels

import "mt/device"

var (
	scale             = forAccess("scale", "scale")
	scaleRows         = forAccess("scale", "scale_rows")
	scaleRowsBackward = forAccess("scale", "scale_rows_backward")
)

// scaleElems is how many elements of a tensor a thread takes.
const scaleElems = 16

// Scale launches Ops.Scale.
func Scale(l Launcher, x device.Tensor, n int64, factor float32) {
	const threads = 256
	if n == 0 {
		return
	}
	wide := wideAt(x) && n*x.DType.Size()%16 == 0
	l.Launch(scale.of(wide, x.DType), line(ceilDiv(n, threads*scaleElems)), line(threads), 0, new(Params).Tensor(x).I64(n).F32(factor))
}

// ScaleRows launches Ops.ScaleRows. An index that W does not have gives a row of
// NaN.
func ScaleRows(l Launcher, a device.ScaleRows) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.X) && wideBy(a.X.DType, a.C)
	grid, block := columnBlocks(a.T, a.C, scaleElems, 256)
	l.Launch(scaleRows.of(wide, a.X.DType), grid, block, 0, new(Params).Tensor(a.X).Tensor(a.W).Tensor(a.Index).I32(a.C).I32(a.P))
}

// ScaleRowsBackward launches Ops.ScaleRowsBackward. An index that W does not have
// gives rows of NaN and no element of DW.
func ScaleRowsBackward(l Launcher, a device.ScaleRowsBackward) {
	if a.T == 0 {
		return
	}
	wide := wideAt(a.DY, a.Y) && wideBy(a.Y.DType, a.C)
	threads := warps(a.C/chunkOf(wide, a.Y.DType), 256)
	p := new(Params).Tensor(a.DY).Tensor(a.Y).Tensor(a.W).Tensor(a.DW).Tensor(a.Index).I32(a.C).I32(a.P)
	l.Launch(scaleRowsBackward.of(wide, a.Y.DType), line(int64(a.T)), line(int64(threads)), 0, p)
}
