package kernels

import "mt/device/op"

func init() { add(ScaleRowsBackward) }

var scaleRowsBackward = forAccess("scale", "scale_rows_backward")

// ScaleRowsBackward launches op.ScaleRowsBackward. An index that W does not have
// gives rows of NaN and no element of DW.
func ScaleRowsBackward(l Launcher, a *op.ScaleRowsBackward) {
	if a.T == 0 {
		return
	}
	wide := wideAt(a.DY, a.Y) && wideBy(a.Y.DType, a.C)
	threads := warps(a.C/chunkOf(wide, a.Y.DType), 256)
	p := l.Params().Tensor(a.DY).Tensor(a.Y).Tensor(a.W).Tensor(a.DW).Tensor(a.Index).I32(a.C).I32(a.P)
	l.Launch(scaleRowsBackward.of(wide, a.Y.DType), line(int64(a.T)), line(int64(threads)), 0, p)
}
