package kernels

import "mt/device/op"

func init() {
	add(AddPositions)
	add(AddPositionsBackward)
}

var (
	positionsOf         = forAccess("positions", "add_positions")
	positionsBackwardOf = forAccess("positions", "add_positions_backward")
)

// AddPositions launches op.AddPositions. The length of Table gives its number of rows.
func AddPositions(l Launcher, a *op.AddPositions) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.Y, a.X, a.Table) && wideBy(a.X.DType, a.C)
	grid, block := columnBlocks(a.T, a.C, 16, 128)
	p := l.Params().Tensor(a.Y).Tensor(a.X).Tensor(a.Table).Tensor(a.Pos).I32(int(a.Table.Len / int64(a.C))).I32(a.C)
	l.Launch(positionsOf.of(wide, a.X.DType), grid, block, 0, p)
}

// AddPositionsBackward launches op.AddPositionsBackward.
func AddPositionsBackward(l Launcher, a *op.AddPositionsBackward) {
	const threads = 128
	if a.T == 0 || a.C == 0 || a.Longest == 0 {
		return
	}
	wide := wideAt(a.DTable, a.DY) && wideBy(a.DY.DType, a.C)
	columns := ceilDiv(int64(a.C), int64(threads*chunkOf(wide, a.DY.DType)))
	p := l.Params().Tensor(a.DTable).Tensor(a.DY).Tensor(a.Cu).I32(a.Seqs).I32(a.From).I32(a.T).I32(a.C)
	l.Launch(positionsBackwardOf.of(wide, a.DY.DType), Dim3{uint32(a.Longest), uint32(columns), 1}, line(threads), 0, p)
}
