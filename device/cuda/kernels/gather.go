package kernels

import "mt/device/op"

func init() { add(GatherRows) }

var (
	gatherWide = Kernel{Module: "rows", Name: "gather_rows16"}
	gatherRows = forTypes("rows", "gather_rows", 0)
)

// GatherRows launches op.GatherRows. The length of Src gives its number of rows.
func GatherRows(l Launcher, a *op.GatherRows) {
	if a.T == 0 || a.C == 0 {
		return
	}
	k, units := &gatherRows[a.Dst.DType], a.C
	if wideAt(a.Dst, a.Src) && wideBy(a.Dst.DType, a.C) {
		k, units = &gatherWide, a.C/chunkOf(true, a.Dst.DType)
	}
	grid, block := columnBlocks(a.T, units, 4, 128)
	p := l.Params().Tensor(a.Dst).Tensor(a.Src).Tensor(a.Index).I32(int(a.Src.Len / int64(a.C))).I32(units)
	l.Launch(k, grid, block, 0, p)
}
