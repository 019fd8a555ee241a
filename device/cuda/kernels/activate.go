package kernels

import "mt/device/op"

func init() {
	add(Activate)
	add(ActivateBackward)
}

// The kernels of each activation, forward and backward; see activate.cu.
var (
	activateOf = [...]byAccess{op.SiLU: forAccess("activate", "activate_silu"), op.GELUTanh: forAccess("activate", "activate_gelu"),
		op.GELU: forAccess("activate", "activate_erf"), op.ReLU: forAccess("activate", "activate_relu"),
		op.SquaredReLU: forAccess("activate", "activate_relu2")}
	activateBackwardOf = [...]byAccess{op.SiLU: forAccess("activate", "activate_silu_backward"),
		op.GELUTanh: forAccess("activate", "activate_gelu_backward"), op.GELU: forAccess("activate", "activate_erf_backward"),
		op.ReLU: forAccess("activate", "activate_relu_backward"), op.SquaredReLU: forAccess("activate", "activate_relu2_backward")}
)

// Activate launches op.Activate.
func Activate(l Launcher, a *op.Activate) {
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.Y, a.X) && wideBy(a.X.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	l.Launch(activateOf[a.Activation].of(wide, a.X.DType), grid, block, 0, l.Params().Tensor(a.Y).Tensor(a.X).I32(a.F))
}

// ActivateBackward launches op.ActivateBackward.
func ActivateBackward(l Launcher, a *op.ActivateBackward) {
	if a.T == 0 || a.F == 0 {
		return
	}
	wide := wideAt(a.DX, a.Y, a.DY, a.X) && wideBy(a.X.DType, a.F)
	grid, block := columnBlocks(a.T, a.F, 16, 256)
	p := l.Params().Tensor(a.DX).Tensor(a.Y).Tensor(a.DY).Tensor(a.X).I32(a.F)
	l.Launch(activateBackwardOf[a.Activation].of(wide, a.X.DType), grid, block, 0, p)
}
