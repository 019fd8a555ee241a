package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() { add(SelectKeys) }

var (
	selectScores = forTypes("select", "select_scores", 12544*4) // two operands, and two squares of 64 by 65 floats
	selectFast   = Kernel{Module: "select", Name: "select_scores_bf16_d128", Shared: 2 * 32 * 128 * 2}
	selectKeys   = Kernel{Module: "select", Name: "select_keys"}
)

// SelectKeys launches op.SelectKeys: two kernels for each segment of queries, whose scores and order of keys fit in scratch
// memory.
func SelectKeys(l Launcher, a *op.SelectKeys) { selectSegments(l, a, a.TQ) }

// selectSegments launches op.SelectKeys with at most most queries in a segment. Tests pass a small number.
func selectSegments(l Launcher, a *op.SelectKeys, most int) {
	const group, threads = 32, 256 // queries and threads of a block of scores
	if a.TQ == 0 || a.MaxK == 0 || a.TopK == 0 {
		return
	}
	k, tile, flags := &selectScores[a.Q.DType], int64(64), 0
	if a.Q.DType == device.BF16 && a.Dim <= 128 {
		k, tile = &selectFast, 256
		flags = attentionFlags(chunked(a.Dim, nil, a.Q), a.Dim%2 == 0 && a.K.Addr%4 == 0)
	}
	some := max(1, min(most, ScratchBytes/(8*a.MaxK)))
	n := int64(some * a.MaxK)
	scratch := l.Scratch(8*n).Tensor(device.I32, 0, 2*n)
	for from := 0; from < a.TQ; from += some {
		end := min(a.TQ, from+some)
		p := l.Params().Tensors(scratch, a.Q, a.K, a.W, a.CuQ, a.CuK).I32(a.Seqs).I32(from).I32(end)
		p.I32(a.Heads).I32(a.Dim).I32(a.MaxK).F32(a.Scale).F32(a.WScale).I32(flags)
		grid := Dim3{uint32(ceilDiv(int64(a.MaxK), tile)), uint32(ceilDiv(int64(end-from), group)), 1}
		if a.Heads > 0 { // else all scores are 0, and no query has more than TopK keys
			l.Launch(k, grid, line(threads), k.Shared, p)
		}
		p = l.Params().Tensors(a.Keys, scratch, scratch.Slice(n, n), a.CuQ, a.CuK).I32(a.Seqs).I32(from).I32(a.MaxK).I32(a.TopK)
		l.Launch(&selectKeys, line(int64(end-from)), line(threads), 0, p)
	}
}
