package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() { add(AddBiasGrad) }

var (
	biasSlice = forAccess("bias", "bias_slice")
	addSlices = Kernel{Module: "bias", Name: "add_slices"}
)

// AddBiasGrad launches op.AddBiasGrad.
func AddBiasGrad(l Launcher, a *op.AddBiasGrad) {
	if a.T == 0 || a.N == 0 {
		return
	}
	wide := wideAt(a.DY) && wideBy(a.DY.DType, a.N)
	sumSlices(l, &biasSlice, a.DB, a.DY, a.T, a.N, wide, nil)
}

// sumSlices adds the sum of the rows of x (rows, columns) to dst (columns). One of kernels sums
// slices, which are ranges of rows; wide selects the form with accesses of 16 bytes. A second
// kernel adds the slices' sums to dst. If `further` is not nil, it appends more parameters of the
// first kernel.
func sumSlices(l Launcher, kernels *byAccess, dst, x device.Tensor, rows, columns int, wide bool, further func(*Params)) {
	const threads, leastRows, wantBlocks = 256, 64, 1024
	blocks := ceilDiv(int64(columns), int64(32*chunkOf(wide, x.DType)))
	most := min(ceilDiv(wantBlocks, blocks), ScratchBytes/4/int64(columns))
	part, slices, each := slicesOf(l, int64(rows), int64(columns), leastRows, most)
	p := l.Params().Tensor(part).Tensor(x).I32(rows).I32(columns).I32(each)
	if further != nil {
		further(p)
	}
	l.Launch(kernels.of(wide, x.DType), Dim3{uint32(blocks), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, dst, part, slices, columns)
}

// slicesOf cuts count rows into at most `most` slices of each rows, where each is at least `least`.
// It returns the number and the size of slices, and scratch memory part for one sum for each slice
// and column. All of it depends only on shapes and their alignment, so the order of sums does too.
func slicesOf(l Launcher, count, columns, least, most int64) (part device.Tensor, slices, each int) {
	size := max(least, ceilDiv(count, max(most, 1)))
	n := ceilDiv(count, size)
	return l.Scratch(4*n*columns).Tensor(device.F32, 0, n*columns), int(n), int(size)
}

// addUp launches the kernel that adds the sums of the slices, part (slices, columns), to dst (columns) f32. It does
// nothing if dst is none.
func addUp(l Launcher, dst, part device.Tensor, slices, columns int) {
	if dst.None() {
		return
	}
	p := l.Params().Tensor(dst).Tensor(part).I32(slices).I32(columns)
	l.Launch(&addSlices, line(ceilDiv(int64(columns), 32)), line(1024), 0, p)
}
