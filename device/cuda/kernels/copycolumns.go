package kernels

import "mt/device/op"

func init() { add(CopyColumns) }

var (
	copyColumnsWide = Kernel{Module: "copycolumns", Name: "copy_columns16"}
	copyColumns     = forTypes("copycolumns", "copy_columns", 0)
)

// CopyColumns launches op.CopyColumns.
func CopyColumns(l Launcher, a *op.CopyColumns) {
	if a.T == 0 || a.C == 0 {
		return
	}
	k, each := &copyColumns[a.Dst.DType], 1
	if wideAt(a.Dst, a.Src) && wideBy(a.Dst.DType, a.C, a.DstStride, a.SrcStride) {
		k, each = &copyColumnsWide, chunkOf(true, a.Dst.DType)
	}
	grid, block := columnBlocks(a.T, a.C/each, 4, 128)
	p := l.Params().Tensor(a.Dst).Tensor(a.Src).I32(a.C / each).I32(a.DstStride / each).I32(a.SrcStride / each)
	l.Launch(k, grid, block, 0, p)
}
