package kernels

import "mt/device/op"

func init() {
	add(ShortConv)
	add(ShortConvBackward)
}

// Kernels of a convolution, by compute type; see shortconv.cu.
var (
	conv         = forTypes("shortconv", "conv", 0)
	convTail     = forTypes("shortconv", "conv_tail", 0)
	convBackward = forTypes("shortconv", "conv_backward", 0)
	convSlice    = forTypes("shortconv", "conv_slice", 0)
)

// ShortConv launches op.ShortConv: first its rows, and then, after all rows have read the tail, the kernel that
// updates the tail.
func ShortConv(l Launcher, a *op.ShortConv) {
	if a.T == 0 || a.C == 0 {
		return
	}
	dt := a.X.DType
	p := l.Params().Tensor(a.Y).Tensor(a.X).Tensor(a.W).Tensor(a.Cu).Tensor(a.Tail).I32(a.Seqs).I32(a.C).I32(a.Taps).I32(a.XStride)
	l.Launch(&conv[dt], line(int64(a.T)), line(int64(warps(a.C, 256))), 0, p)
	if !a.Tail.None() && a.Taps > 1 {
		p := l.Params().Tensor(a.Tail).Tensor(a.X).I32(a.T).I32(a.C).I32(a.Taps).I32(a.XStride)
		l.Launch(&convTail[dt], line(ceilDiv(int64(a.C), 256)), line(256), 0, p)
	}
}

// ShortConvBackward launches op.ShortConvBackward.
func ShortConvBackward(l Launcher, a *op.ShortConvBackward) {
	const threads, leastRows, mostSlices = 256, 64, 256
	if a.T == 0 || a.C == 0 {
		return
	}
	dt := a.X.DType
	p := l.Params().Tensor(a.DX).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Cu).I32(a.Seqs).I32(a.C).I32(a.Taps).I32(a.XStride).I32(a.DXStride)
	l.Launch(&convBackward[dt], line(int64(a.T)), line(int64(warps(a.C, threads))), 0, p)
	if a.DW.None() {
		return
	}
	columns := int64(a.C * a.Taps)
	part, slices, each := slicesOf(l, int64(a.T), columns, leastRows, max(1, min(mostSlices, ScratchBytes/4/columns)))
	p = l.Params().Tensor(part).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Cu).I32(a.Seqs).I32(a.T).I32(a.C).I32(a.Taps).I32(a.XStride).I32(each)
	l.Launch(&convSlice[dt], Dim3{uint32(ceilDiv(int64(a.C), threads)), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, a.DW, part, slices, int(columns))
}
