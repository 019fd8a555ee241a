package kernels

import "mt/device"

// The kernels of each activation; see glu.cu.
var (
	gluOf         = [2]byAccess{device.SiLU: forAccess("glu", "silu"), device.GELUTanh: forAccess("glu", "gelu")}
	gluBackwardOf = [2]byAccess{device.SiLU: forAccess("glu", "silu_backward"), device.GELUTanh: forAccess("glu", "gelu_backward")}
)

// GLU launches Ops.GLU.
func GLU(l Launcher, f device.Activation, y, gu device.Tensor, T, F int) {
	if T == 0 || F == 0 {
		return
	}
	wide := wideAt(y, gu) && wideBy(gu.DType, F)
	grid, block := columnBlocks(T, F, 16, 256)
	l.Launch(gluOf[f].of(wide, gu.DType), grid, block, 0, new(Params).Tensor(y).Tensor(gu).I32(F))
}

// GLUBackward launches Ops.GLUBackward.
func GLUBackward(l Launcher, f device.Activation, dgu, y, dy, gu device.Tensor, T, F int) {
	if T == 0 || F == 0 {
		return
	}
	wide := wideAt(dgu, y, dy, gu) && wideBy(gu.DType, F)
	grid, block := columnBlocks(T, F, 16, 256)
	p := new(Params).Tensor(dgu).Tensor(y).Tensor(dy).Tensor(gu).I32(F)
	l.Launch(gluBackwardOf[f].of(wide, gu.DType), grid, block, 0, p)
}
