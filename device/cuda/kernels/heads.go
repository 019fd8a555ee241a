package kernels

import "mt/device/op"

func init() {
	add(CopyHeads)
	add(SumHeads)
}

var (
	copyHeadsWide = Kernel{Module: "heads", Name: "copy_heads16"}
	copyHeads     = forTypes("heads", "copy_heads", 0)
	sumHeads      = forAccess("heads", "sum_heads")
)

// CopyHeads launches op.CopyHeads.
func CopyHeads(l Launcher, a *op.CopyHeads) {
	wide := a.C + a.Zeros
	if a.T == 0 || a.Heads == 0 || wide == 0 {
		return
	}
	k, each := &copyHeads[a.Dst.DType], 1
	if wideAt(a.Dst, a.Src) && wideBy(a.Dst.DType, a.C, a.Zeros, a.DstStride, a.DstHead, a.SrcStride, a.SrcHead) {
		k, each = &copyHeadsWide, chunkOf(true, a.Dst.DType)
	}
	grid, block := columnBlocks(a.T, a.Heads*wide/each, 4, 128)
	p := l.Params().Tensor(a.Dst).Tensor(a.Src).I32(a.Heads).I32(a.C / each).I32(wide / each).I32(a.DstStride / each).I32(a.DstHead / each)
	l.Launch(k, grid, block, 0, p.I32(a.SrcStride/each).I32(a.SrcHead/each))
}

// SumHeads launches op.SumHeads.
func SumHeads(l Launcher, a *op.SumHeads) {
	const threads = 128
	if a.T == 0 || a.C == 0 {
		return
	}
	dt := a.Dst.DType
	wide := wideAt(a.Dst, a.Src) && wideBy(dt, a.C, a.DstStride, a.SrcStride, a.SrcHead)
	chunks := a.C / chunkOf(wide, dt)
	p := l.Params().Tensor(a.Dst).Tensor(a.Src).I32(a.T).I32(a.Heads).I32(chunks).I32(a.DstStride).I32(a.SrcStride).I32(a.SrcHead)
	l.Launch(sumHeads.of(wide, dt), line(ceilDiv(int64(a.T)*int64(chunks), threads)), line(threads), 0, p)
}
