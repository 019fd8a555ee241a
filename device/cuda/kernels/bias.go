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

// AddBiasGrad launches op.AddBiasGrad: first sums over slices of the rows, then the
// sum of those.
func AddBiasGrad(l Launcher, a *op.AddBiasGrad) {
	const threads, leastRows, wantBlocks = 256, 64, 1024
	if a.T == 0 || a.N == 0 {
		return
	}
	wide := wideAt(a.DY) && wideBy(a.DY.DType, a.N)
	columns := ceilDiv(int64(a.N), int64(32*chunkOf(wide, a.DY.DType)))
	most := min(ceilDiv(wantBlocks, columns), ScratchBytes/4/int64(a.N))
	part, slices, each := slicesOf(l, int64(a.T), int64(a.N), leastRows, most)
	p := l.Params().Tensor(part).Tensor(a.DY).I32(a.T).I32(a.N).I32(each)
	l.Launch(biasSlice.of(wide, a.DY.DType), Dim3{uint32(columns), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, a.DB, part, slices, a.N)
}

// slicesOf cuts count rows into at most `most` slices. A slice has each rows, at
// least `least`. It also gives the memory for the sums of the slices' columns. All
// this depends on shapes and their alignment alone.
func slicesOf(l Launcher, count, columns, least, most int64) (part device.Tensor, slices, each int) {
	size := max(least, ceilDiv(count, max(most, 1)))
	n := ceilDiv(count, size)
	return l.Scratch(4*n*columns).Tensor(device.F32, 0, n*columns), int(n), int(size)
}

// addUp launches the kernel for dst (columns) f32 += Σ part (slices, columns).
func addUp(l Launcher, dst, part device.Tensor, slices, columns int) {
	if dst.None() {
		return
	}
	p := l.Params().Tensor(dst).Tensor(part).I32(slices).I32(columns)
	l.Launch(&addSlices, line(ceilDiv(int64(columns), 32)), line(1024), 0, p)
}
