package kernels

import "mt/device/op"

func init() { add(CrossEntropy) }

// lossKernels are the kernels of one module.
type lossKernels struct{ whole, shard, shardGradient perType }

func lossKernelsOf(module string) *lossKernels {
	return &lossKernels{forTypes(module, module, 0), forTypes(module, module+"_shard", 0), forTypes(module, module+"_shard_gradient", 0)}
}

// Logits without a cap and with one.
var crossEntropy, crossEntropyCap = lossKernelsOf("crossentropy"), lossKernelsOf("crossentropy_cap")

// lossPick picks the module and, where there is a cap, appends it to the
// parameters.
func lossPick(softcap float32, p *Params) *lossKernels {
	if softcap == 0 {
		return crossEntropy
	}
	p.F32(softcap)
	return crossEntropyCap
}

// lossBlock is the block that works on a row of V logits.
func lossBlock(V int) Dim3 { return line(int64(warps(V/64, 512))) }

// CrossEntropy launches op.CrossEntropy. A target outside 0 … V−1 that is not
// IgnoreIndex gives the loss NaN.
func CrossEntropy(l Launcher, a *op.CrossEntropy) {
	if a.T == 0 {
		return
	}
	p := l.Params().Tensor(a.Logits).Tensor(a.Targets).Tensor(a.Losses).I32(a.V).F32(a.Scale).Bool(a.ForwardOnly)
	l.Launch(&lossPick(a.Softcap, p).whole[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
}
