package kernels

import "mt/device"

var (
	crossEntropy  = forTypes("crossentropy", "crossentropy", 0)
	shardForward  = forTypes("crossentropy", "crossentropy_shard", 0)
	shardGradient = forTypes("crossentropy", "crossentropy_shard_gradient", 0)
)

// lossBlock is the block of a row of V logits.
func lossBlock(V int) Dim3 { return line(int64(warps(V/64, 512))) }

// CrossEntropy launches Ops.CrossEntropy. A target outside 0 … V−1 that is not
// IgnoreIndex gives the loss NaN.
func CrossEntropy(l Launcher, a device.CrossEntropy) {
	if a.T == 0 {
		return
	}
	p := new(Params).Tensor(a.Logits).Tensor(a.Targets).Tensor(a.Losses).I32(a.V).F32(a.Scale).Bool(a.ForwardOnly)
	l.Launch(&crossEntropy[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
}

// CrossEntropyShard launches Ops.CrossEntropyShard. A target that no shard holds
// and that is not IgnoreIndex gives the loss NaN.
func CrossEntropyShard(l Launcher, a device.CrossEntropyShard) {
	if a.T == 0 {
		return
	}
	if a.Gradient {
		p := new(Params).Tensor(a.Logits).Tensor(a.Targets).Tensor(a.LSE).I32(a.V).I32(a.From).F32(a.Scale)
		l.Launch(&shardGradient[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
		return
	}
	p := new(Params).Tensor(a.Logits).Tensor(a.Targets).Tensor(a.LSE).Tensor(a.Losses).I32(a.V).I32(a.From).Bool(a.First).Bool(a.Last)
	l.Launch(&shardForward[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
}
