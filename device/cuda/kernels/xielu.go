package kernels

import "mt/device/op"

func init() {
	add(XIELU)
	add(XIELUBackward)
}

var xielu, xieluBackward = forAccess("xielu", "xielu"), forAccess("xielu", "xielu_backward")

// XIELU launches op.XIELU.
func XIELU(l Launcher, a *op.XIELU) {
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.Y, a.X) && wideBy(a.X.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	l.Launch(xielu.of(wide, a.X.DType), grid, block, 0, l.Params().Tensor(a.Y).Tensor(a.X).Tensor(a.Alpha).I32(a.F))
}

// XIELUBackward launches op.XIELUBackward: first sums over slices of the rows, then the sum of the slices.
func XIELUBackward(l Launcher, a *op.XIELUBackward) {
	const leastRows, mostSlices = 4, 256
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.DX, a.Y, a.DY, a.X) && wideBy(a.X.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	part, slices, each := slicesOf(l, int64(a.T), 2*int64(grid.Y), leastRows, mostSlices)
	grid.X = uint32(slices)
	p := l.Params().Tensor(part).Tensor(a.DX).Tensor(a.Y).Tensor(a.DY).Tensor(a.X).Tensor(a.Alpha).I64(int64(a.T)).I32(a.F).I32(each)
	l.Launch(xieluBackward.of(wide, a.X.DType), grid, block, 0, p)
	addUp(l, a.DAlpha, part, slices*int(grid.Y), 2)
}
