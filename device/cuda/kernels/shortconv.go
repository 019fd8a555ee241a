package kernels

import "mt/device/op"

func init() {
	add(ShortConv)
	add(ShortConvBackward)
}

// Kernels of a short convolution, by compute type; see shortconv.cu. In a pair, the first kernel is
// for plain rows and the second for gated rows.
var (
	conv         = [2]perType{forTypes("shortconv", "conv", 0), forTypes("shortconv", "gated_conv", 0)}
	convBackward = [2]perType{forTypes("shortconv", "conv_backward", 0), forTypes("shortconv", "gated_conv_backward", 0)}
	convSlice    = [2]perType{forTypes("shortconv", "conv_slice", 0), forTypes("shortconv", "gated_conv_slice", 0)}
	convTail     = forTypes("shortconv", "conv_tail", 0)
)

// second returns the index of a kernel in a pair: 1 if is is true, else 0.
func second(is bool) int {
	if is {
		return 1
	}
	return 0
}

// ShortConv launches op.ShortConv: first its rows, and then, after all rows have read the tail, the kernel that
// updates the tail.
func ShortConv(l Launcher, a *op.ShortConv) {
	if a.T == 0 || a.C == 0 {
		return
	}
	dt := a.X.DType
	p := l.Params().Tensor(a.Y).Tensor(a.X).Tensor(a.W).Tensor(a.Bias).Tensor(a.Cu).Tensor(a.Tail).I32(a.Seqs).I32(a.C).I32(a.Taps).I32(a.XStride)
	l.Launch(&conv[second(a.Gated)][dt], line(int64(a.T)), line(int64(warps(a.C, 256))), 0, p)
	if !a.Tail.None() && a.Taps > 1 {
		width := op.ConvWidth(a.C, a.Gated)
		p := l.Params().Tensor(a.Tail).Tensor(a.X).I32(a.T).I32(width).I32(a.Taps).I32(a.XStride)
		l.Launch(&convTail[dt], line(ceilDiv(int64(width), 256)), line(256), 0, p)
	}
}

// ShortConvBackward launches op.ShortConvBackward.
func ShortConvBackward(l Launcher, a *op.ShortConvBackward) {
	const threads, leastRows, mostSlices = 256, 64, 256
	if a.T == 0 || a.C == 0 {
		return
	}
	dt := a.X.DType
	p := l.Params().Tensor(a.DX).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Bias).Tensor(a.Cu).I32(a.Seqs).I32(a.C).I32(a.Taps).I32(a.XStride).I32(a.DXStride)
	l.Launch(&convBackward[second(a.Gated)][dt], line(int64(a.T)), line(int64(warps(a.C, threads))), 0, p)
	if a.DW.None() && a.DBias.None() {
		return
	}
	taps, columns := int64(a.C*a.Taps), int64(a.C*(a.Taps+1))
	part, slices, each := slicesOf(l, int64(a.T), columns, leastRows, max(1, min(mostSlices, ScratchBytes/4/columns)))
	ofBias := part.Slice(int64(slices)*taps, int64(slices*a.C))
	p = l.Params().Tensor(part).Tensor(ofBias).Tensor(a.DY).Tensor(a.X).Tensor(a.W).Tensor(a.Bias).Tensor(a.Cu).I32(a.Seqs).I32(a.T).I32(a.C).I32(a.Taps).I32(a.XStride).I32(each)
	l.Launch(&convSlice[second(a.Gated)][dt], Dim3{uint32(ceilDiv(int64(a.C), threads)), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, a.DW, part, slices, int(taps))
	addUp(l, a.DBias, ofBias, slices, a.C)
}
