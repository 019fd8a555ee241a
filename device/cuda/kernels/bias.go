package kernels

import "mt/device"

var (
	biasSlice = forAccess("bias", "bias_slice")
	addSlices = Kernel{Module: "bias", Name: "add_slices"}
)

// AddBiasGrad launches Ops.AddBiasGrad: sums of slices of rows, then of those.
func AddBiasGrad(l Launcher, db, dy device.Tensor, T, N int) {
	const threads, leastRows, wantBlocks = 256, 64, 1024
	if T == 0 || N == 0 {
		return
	}
	wide := wideAt(dy) && wideBy(dy.DType, N)
	columns := ceilDiv(int64(N), int64(32*chunkOf(wide, dy.DType)))
	most := min(ceilDiv(wantBlocks, columns), ScratchBytes/4/int64(N))
	part, slices, each := slicesOf(l, int64(T), int64(N), leastRows, most)
	p := new(Params).Tensor(part).Tensor(dy).I32(T).I32(N).I32(each)
	l.Launch(biasSlice.of(wide, dy.DType), Dim3{uint32(columns), uint32(slices), 1}, line(threads), 0, p)
	addUp(l, db, part, slices, N)
}

// slicesOf cuts count rows into at most `most` slices of each rows, at least
// `least`, and gives the memory for the sums of their columns. Only shapes and
// their alignment count.
func slicesOf(l Launcher, count, columns, least, most int64) (part device.Tensor, slices, each int) {
	size := max(least, ceilDiv(count, max(most, 1)))
	n := ceilDiv(count, size)
	return l.Scratch(4*n*columns).Tensor(device.F32, 0, n*columns), int(n), int(size)
}

// addUp launches dst (columns) f32 += Σ part (slices, columns).
func addUp(l Launcher, dst, part device.Tensor, slices, columns int) {
	p := new(Params).Tensor(dst).Tensor(part).I32(slices).I32(columns)
	l.Launch(&addSlices, line(ceilDiv(int64(columns), 32)), line(1024), 0, p)
}
