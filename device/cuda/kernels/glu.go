package kernels

import "mt/device/op"

func init() {
	add(GLU)
	add(GLUBackward)
}

// The GLU kernels of each activation, forward and backward; see glu.cu.
var (
	gluOf = [...]byAccess{op.SiLU: forAccess("glu", "silu"), op.GELUTanh: forAccess("glu", "gelu"), op.CutSiLU: forAccess("glu", "cut"),
		op.SigmoidGate: forAccess("glu", "sigmoid"), op.GELU: forAccess("glu", "erf"), op.ReLU: forAccess("glu", "relu")}
	gluBackwardOf = [...]byAccess{op.SiLU: forAccess("glu", "silu_backward"), op.GELUTanh: forAccess("glu", "gelu_backward"),
		op.CutSiLU: forAccess("glu", "cut_backward"), op.SigmoidGate: forAccess("glu", "sigmoid_backward"),
		op.GELU: forAccess("glu", "erf_backward"), op.ReLU: forAccess("glu", "relu_backward")}
)

// GLU launches op.GLU.
func GLU(l Launcher, a *op.GLU) {
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.Y, a.GU) && wideBy(a.GU.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	p := l.Params().Tensor(a.Y).Tensor(a.GU).I32(a.F)
	l.Launch(gluOf[a.Activation].of(wide, a.GU.DType), grid, block, 0, cutOff(p, a.Activation, a.Cut))
}

// GLUBackward launches op.GLUBackward.
func GLUBackward(l Launcher, a *op.GLUBackward) {
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.DGU, a.Y, a.DY, a.GU) && wideBy(a.GU.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	p := l.Params().Tensor(a.DGU).Tensor(a.Y).Tensor(a.DY).Tensor(a.GU).I32(a.F)
	l.Launch(gluBackwardOf[a.Activation].of(wide, a.GU.DType), grid, block, 0, cutOff(p, a.Activation, a.Cut))
}

// cutOff appends the limits of op.CutSiLU to a kernel's parameters, if f is that activation.
func cutOff(p *Params, f op.Activation, cut op.Cut) *Params {
	if f == op.CutSiLU {
		p.F32(cut.Alpha).F32(cut.Limit)
	}
	return p
}
