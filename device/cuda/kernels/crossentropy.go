package kernels

import "mt/device/op"

func init() { add(CrossEntropy) }

// lossKernels are the kernels for the loss in one module: for a whole vocabulary, for a shard of it, and for a shard's
// gradient.
type lossKernels struct{ whole, shard, shardGradient perType }

func lossKernelsOf(module string) *lossKernels {
	return &lossKernels{forTypes(module, module, 0), forTypes(module, module+"_shard", 0), forTypes(module, module+"_shard_gradient", 0)}
}

// The loss kernels without and with additional terms (op.LossTerms), each without and with a
// softcap on logits.
var (
	crossEntropy, crossEntropyCap           = lossKernelsOf("crossentropy"), lossKernelsOf("crossentropy_cap")
	crossEntropyTerms, crossEntropyTermsCap = lossKernelsOf("crossentropy_terms"), lossKernelsOf("crossentropy_terms_cap")
)

// lossPick returns the kernels for a loss with these terms and this softcap. If there are terms or a softcap, it
// appends their parameters to p. vocab is the size of the whole vocabulary.
func lossPick(terms op.LossTerms, vocab int, softcap float32, p *Params) *lossKernels {
	plain, limited := crossEntropy, crossEntropyCap
	if !terms.None() {
		plain, limited = crossEntropyTerms, crossEntropyTermsCap
		p.F32(1 - terms.Smoothing).F32(terms.Smoothing / float32(vocab)).F32(terms.Z).I32(vocab)
	}
	if softcap == 0 {
		return plain
	}
	p.F32(softcap)
	return limited
}

// lossBlock returns the size of the thread block that computes one row of V logits.
func lossBlock(V int) Dim3 { return line(int64(warps(V/64, 512))) }

// CrossEntropy launches op.CrossEntropy. An invalid target, outside 0 … V−1 and not IgnoreIndex, gives the loss NaN.
func CrossEntropy(l Launcher, a *op.CrossEntropy) {
	if a.T == 0 {
		return
	}
	p := l.Params().Tensor(a.Logits).Tensor(a.Targets).Tensor(a.Losses).Tensor(a.Weights).I32(a.V).F32(a.Scale).Bool(a.ForwardOnly)
	l.Launch(&lossPick(a.Terms, a.V, a.Softcap, p).whole[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
}
