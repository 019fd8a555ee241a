package kernels

import "mt/device/op"

func init() { add(ScatterAddRows) }

var scatterRows = forAccess("rows", "scatter_add_rows")

// ScatterAddRows launches op.ScatterAddRows.
func ScatterAddRows(l Launcher, a *op.ScatterAddRows) {
	const threads = 128
	if a.U == 0 || a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.DRows, a.DY) && wideBy(a.DY.DType, a.C)
	grid := Dim3{uint32(a.U), uint32(ceilDiv(int64(a.C), int64(threads*chunkOf(wide, a.DY.DType)))), 1}
	p := l.Params().Tensor(a.DRows).Tensor(a.DY).Tensor(a.Start).Tensor(a.Pos).I32(a.T).I32(a.C)
	l.Launch(scatterRows.of(wide, a.DY.DType), grid, line(threads), 0, p)
}
