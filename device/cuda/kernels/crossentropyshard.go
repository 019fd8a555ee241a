package kernels

import "mt/device/op"

func init() { add(CrossEntropyShard) }

// CrossEntropyShard launches op.CrossEntropyShard. An invalid target, which lies in no shard and is
// not IgnoreIndex, gives the loss NaN.
func CrossEntropyShard(l Launcher, a *op.CrossEntropyShard) {
	if a.T == 0 {
		return
	}
	if a.Gradient {
		p := l.Params().Tensor(a.Logits).Tensor(a.Targets).Tensor(a.LSE).Tensor(a.Weights).I32(a.V).I32(a.From).F32(a.Scale)
		l.Launch(&lossPick(a.Terms, a.Vocab, a.Softcap, p).shardGradient[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
		return
	}
	p := l.Params().Tensor(a.Logits).Tensor(a.Targets).Tensor(a.LSE).Tensor(a.Losses).I32(a.V).I32(a.From).Bool(a.First).Bool(a.Last)
	l.Launch(&lossPick(a.Terms, a.Vocab, a.Softcap, p).shard[a.Logits.DType], line(int64(a.T)), lossBlock(a.V), 0, p)
}
