package layers

import (
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func (d *toy) matMul(m *op.MatMul) {
	exact("MatMul A", m.A, m.M*m.K)
	exact("MatMul B", m.B, m.K*m.N)
	exact("MatMul D", m.D, m.M*m.N)
	disjoint("MatMul", m.D, m.A, m.B, m.Bias)
	if m.A.DType != m.B.DType {
		panic("toy: MatMul of " + m.A.DType.String() + " and " + m.B.DType.String())
	}
	d.matmuls += 2 * int64(m.M) * int64(m.N) * int64(m.K)
	out := make([]float64, m.M*m.N)
	oracle.MatMul(out, d.load(m.A, m.M*m.K), d.load(m.B, m.K*m.N), d.loadAny(m.C, m.M*m.N), d.loadAny(m.Bias, m.N), m.M, m.N, m.K, m.TransA, m.TransB)
	d.storeAll(m.D, out)
}

// loadAny is load, and nil where there is no tensor.
func (d *toy) loadAny(t device.Tensor, n int) []float64 {
	if t.None() {
		return nil
	}
	return d.load(t, n)
}

func (d *toy) addBiasGrad(a *op.AddBiasGrad) {
	exact("AddBiasGrad db", a.DB, a.N)
	sum := d.load(a.DB, a.N)
	oracle.AddBiasGrad(sum, d.load(a.DY, a.T*a.N), a.T, a.N)
	d.storeAll(a.DB, sum)
}

func (d *toy) rmsNorm(a *op.RMSNorm) {
	if a.Y.Addr != a.X.Addr {
		disjoint("RMSNorm", a.Y, a.X)
	}
	n := oracle.Norm{Rows: a.Rows, Groups: a.Groups, Dim: a.Dim, XStride: a.XStride, YStride: a.YStride, Eps: float64(a.Eps), Offset: float64(a.Offset)}
	rows := func(stride int) int { return (a.Rows-1)*stride + a.Groups*a.Dim }
	y, rstd := d.load(a.Y, rows(a.YStride)), make([]float64, a.Rows*a.Groups)
	oracle.RMSNorm(y, rstd, d.load(a.X, rows(a.XStride)), d.load(a.W, a.Dim), d.loadAny(a.Residual, rows(a.YStride)), n)
	d.storeAll(a.Y, y)
	if !a.RStd.None() {
		d.storeAll(a.RStd, rstd)
	}
}

func (d *toy) rmsNormBackward(a *op.RMSNormBackward) {
	if a.Add || a.DX.Addr != a.DY.Addr {
		disjoint("RMSNormBackward", a.DX, a.DY)
	}
	disjoint("RMSNormBackward", a.DX, a.X)
	n := oracle.Norm{Rows: a.Rows, Groups: a.Groups, Dim: a.Dim, XBStride: a.XStride, DXStride: a.DXStride, DYStride: a.DYStride, Offset: float64(a.Offset), Add: a.Add}
	rows := func(stride int) int { return (a.Rows-1)*stride + a.Groups*a.Dim }
	dx, dw := d.load(a.DX, rows(a.DXStride)), make([]float64, a.Dim)
	if !a.DW.None() {
		dw = d.load(a.DW, a.Dim)
	}
	oracle.RMSNormBackward(dx, dw, d.load(a.DY, rows(a.DYStride)), d.load(a.X, rows(a.XStride)), d.load(a.W, a.Dim), d.load(a.RStd, a.Rows*a.Groups), n)
	d.storeAll(a.DX, dx)
	if !a.DW.None() {
		d.storeAll(a.DW, dw)
	}
}

func (d *toy) rope(a *op.RoPE) {
	x := d.load(a.X, (a.T-1)*a.Stride+a.Heads*a.Dim)
	oracle.RoPE(x, d.load(a.Cos, int(a.Cos.Len)), d.load(a.Sin, int(a.Sin.Len)), d.loadIDs(a.Pos, a.T), a.T, a.Heads, a.Dim, a.Rotary, a.Stride, a.Inverse, a.Interleaved)
	d.storeAll(a.X, x)
}

// shape is a as the oracle has it, and how many keys all queries see, each counted for every head.
func (d *toy) shape(a op.AttentionShape, qs, ks int) (s oracle.Shape, seen int64) {
	s = oracle.Shape{CuQ: d.loadIDs(a.CuQ, a.Seqs+1), CuK: d.loadIDs(a.CuK, a.Seqs+1), TQ: a.TQ, Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.Dim,
		Scale: float64(a.Scale), Window: a.Window, Softcap: float64(a.Softcap), QStride: qs, KStride: ks}
	for i := range a.Seqs {
		nq, nk := int(s.CuQ[i+1]-s.CuQ[i]), int(s.CuK[i+1]-s.CuK[i])
		for t := range nq {
			n := nk - nq + t + 1
			if a.Window > 0 {
				n = min(n, a.Window)
			}
			seen += int64(n * a.Heads)
		}
	}
	return s, seen
}

func (d *toy) attention(a *op.Attention) {
	exact("Attention O", a.O, a.TQ*a.Heads*a.Dim)
	disjoint("Attention", a.O, a.Q, a.K, a.V)
	s, seen := d.shape(a.AttentionShape, a.QStride, a.KStride)
	d.attended += 4 * seen * int64(a.Dim)
	queries, keys := (a.TQ-1)*a.QStride+a.Heads*a.Dim, (a.TK-1)*a.KStride+a.KVHeads*a.Dim
	o, lse := d.load(a.O, a.TQ*a.Heads*a.Dim), make([]float64, a.TQ*a.Heads)
	oracle.Attention(o, lse, d.load(a.Q, queries), d.load(a.K, keys), d.load(a.V, keys), s)
	d.storeAll(a.O, o)
	if !a.LSE.None() {
		d.storeAll(a.LSE, lse)
	}
}

func (d *toy) attentionBackward(a *op.AttentionBackward) {
	exact("AttentionBackward Delta", a.Delta, a.TQ*a.Heads)
	disjoint("AttentionBackward", a.DQ, a.Q, a.K, a.V, a.DO, a.O, a.LSE)
	s, _ := d.shape(a.AttentionShape, a.QStride, a.KStride)
	s.DQStride, s.DKStride = a.Heads*a.Dim, a.KVHeads*a.Dim
	queries, keys := (a.TQ-1)*a.QStride+a.Heads*a.Dim, (a.TK-1)*a.KStride+a.KVHeads*a.Dim
	o, do := d.load(a.O, a.TQ*a.Heads*a.Dim), d.load(a.DO, a.TQ*a.Heads*a.Dim)
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	dq, dk, dv := make([]float64, a.TQ*wide), make([]float64, a.TK*narrow), make([]float64, a.TK*narrow)
	oracle.AttentionBackward(dq, dk, dv, do, o, d.load(a.LSE, a.TQ*a.Heads), d.load(a.Q, queries), d.load(a.K, keys), d.load(a.V, keys), s)
	for at := range a.TQ * a.Heads {
		var delta float64
		for e := range a.Dim {
			delta += do[at*a.Dim+e] * o[at*a.Dim+e]
		}
		d.store(a.Delta, at%a.Heads*a.TQ+at/a.Heads, delta)
	}
	d.storeStrided(a.DQ, dq, wide, a.DQStride)
	d.storeStrided(a.DK, dk, narrow, a.DKStride)
	d.storeStrided(a.DV, dv, narrow, a.DKStride)
}

func (d *toy) storeStrided(t device.Tensor, v []float64, width, stride int) {
	for i := range v {
		d.store(t, i/width*stride+i%width, v[i])
	}
}

func (d *toy) glu(a *op.GLU) {
	exact("GLU y", a.Y, a.T*a.F)
	disjoint("GLU", a.Y, a.GU)
	gu, y := d.load(a.GU, 2*a.T*a.F), make([]float64, a.T*a.F)
	if a.Activation == op.CutSiLU {
		oracle.CutGLU(float64(a.Cut.Alpha), float64(a.Cut.Limit), y, gu, a.T, a.F)
	} else {
		oracle.GLU(activation(a.Activation), y, gu, a.T, a.F)
	}
	d.storeAll(a.Y, y)
}

func (d *toy) gluBackward(a *op.GLUBackward) {
	exact("GLUBackward dgu", a.DGU, 2*a.T*a.F)
	disjoint("GLUBackward", a.DGU, a.DY, a.Y)
	gu, dy, y := d.load(a.GU, 2*a.T*a.F), d.load(a.DY, a.T*a.F), make([]float64, a.T*a.F)
	if a.Activation == op.CutSiLU {
		oracle.CutGLUBackward(float64(a.Cut.Alpha), float64(a.Cut.Limit), gu, y, dy, gu, a.T, a.F)
	} else {
		oracle.GLUBackward(activation(a.Activation), gu, y, dy, gu, a.T, a.F)
	}
	d.storeAll(a.DGU, gu)
	if !a.Y.None() {
		d.storeAll(a.Y, y)
	}
}

func activation(f op.Activation) oracle.Activation {
	return [...]oracle.Activation{op.SiLU: oracle.SiLU, op.GELUTanh: oracle.GELUTanh, op.GELU: oracle.GELU, op.SigmoidGate: oracle.Sigmoid, op.ReLU: oracle.ReLU}[f]
}

func (d *toy) copyColumns(a *op.CopyColumns) {
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.CopyColumns(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.C, a.DstStride, a.SrcStride)
	d.storeAll(a.Dst, dst)
}

func (d *toy) copyHeads(a *op.CopyHeads) {
	disjoint("CopyHeads", a.Dst, a.Src)
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.CopyHeads(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.Heads, a.C, a.Zeros, oracle.Heads{Stride: a.DstStride, Head: a.DstHead}, oracle.Heads{Stride: a.SrcStride, Head: a.SrcHead})
	d.storeAll(a.Dst, dst)
}

func (d *toy) sumHeads(a *op.SumHeads) {
	disjoint("SumHeads", a.Dst, a.Src)
	dst := d.load(a.Dst, int(a.Dst.Len))
	oracle.SumHeads(dst, d.load(a.Src, int(a.Src.Len)), a.T, a.Heads, a.C, a.DstStride, oracle.Heads{Stride: a.SrcStride, Head: a.SrcHead})
	d.storeAll(a.Dst, dst)
}

func (d *toy) gatherRows(a *op.GatherRows) {
	dst := make([]float64, a.T*a.C)
	oracle.GatherRows(dst, d.load(a.Src, int(a.Src.Len)), d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.Dst, dst)
}

func (d *toy) scatterAddRows(a *op.ScatterAddRows) {
	sum := d.load(a.DRows, a.U*a.C)
	oracle.ScatterAddRows(sum, d.load(a.DY, a.T*a.C), d.loadIDs(a.Start, a.U+1), d.loadIDs(a.Pos, a.T), a.C)
	d.storeAll(a.DRows, sum)
}

func capped(x []float64, limit float32) (y, slopes []float64) {
	slopes = make([]float64, len(x))
	for i, v := range x {
		x[i], slopes[i] = oracle.Softcap(v, float64(limit))
	}
	return x, slopes
}

// takenBy is what logits take off a log-sum-exp to make a loss of it; target is below 0 where it is none of them.
func takenBy(t op.LossTerms, logits []float64, target, vocab int) (sum float64) {
	if target >= 0 {
		sum = (1 - float64(t.Smoothing)) * logits[target]
	}
	if t.Smoothing > 0 {
		for _, x := range logits {
			sum += float64(t.Smoothing) / float64(vocab) * x
		}
	}
	return sum
}

// logitGrad is the gradient of a loss with respect to the logit x.
func logitGrad(t op.LossTerms, x, lse float64, vocab int, target bool) float64 {
	p := math.Exp(x-lse) * (1 + 2*float64(t.Z)*lse)
	if t.Smoothing > 0 {
		p -= float64(t.Smoothing) / float64(vocab)
	}
	if target {
		p -= 1 - float64(t.Smoothing)
	}
	return p
}

// weight is element t of weights; 1 where there are none.
func (d *toy) weight(weights device.Tensor, t int) float64 {
	if weights.None() {
		return 1
	}
	return d.load(weights.Slice(int64(t), 1), 1)[0]
}

func (d *toy) preferenceWeights(a *op.PreferenceWeights) {
	exact("PreferenceWeights", a.Losses, a.T)
	weights, cu := make([]float64, a.T), d.loadIDs(a.Cu, 2*a.Pairs+1)
	oracle.PreferenceWeights(weights, d.load(a.Losses, a.T), d.loadIDs(a.Targets, a.T), cu, d.load(a.Reference, 2*a.Pairs),
		int(a.Loss.Kind), float64(a.Loss.Beta), float64(a.Loss.Smoothing), float64(a.Likelihood))
	d.storeAll(a.Weights, weights)
}

func (d *toy) crossEntropyShard(a *op.CrossEntropyShard) {
	exact("CrossEntropyShard", a.Logits, a.T*a.V)
	x := d.load(a.Logits, a.T*a.V)
	for t, target := range d.loadInt(a.Targets, a.T) {
		row, slopes := capped(x[t*a.V:(t+1)*a.V], a.Softcap)
		at := target - a.From
		here := at >= 0 && at < a.V
		if a.Gradient {
			lse, scale := d.load(a.LSE.Slice(int64(t), 1), 1)[0], float64(a.Scale)*d.weight(a.Weights, t)
			for i, v := range row {
				p := logitGrad(a.Terms, v, lse, a.Vocab, i == at)
				if target == op.IgnoreIndex {
					p = 0
				}
				d.store(a.Logits, t*a.V+i, p*scale*slopes[i])
			}
			continue
		}
		lse := oracle.LogSumExp(row)
		if !a.First {
			lse = oracle.LogSumExp([]float64{d.load(a.LSE.Slice(int64(t), 1), 1)[0], lse})
		}
		d.store(a.LSE, t, lse)
		taken := 0.0
		if !a.First {
			taken = d.load(a.Losses.Slice(int64(t), 1), 1)[0]
		}
		if !here {
			at = -1
		}
		d.store(a.Losses, t, taken+takenBy(a.Terms, row, at, a.Vocab))
		switch {
		case a.Last && target == op.IgnoreIndex:
			d.store(a.Losses, t, 0)
		case a.Last:
			d.store(a.Losses, t, lse-d.load(a.Losses.Slice(int64(t), 1), 1)[0]+float64(a.Terms.Z)*lse*lse)
		}
	}
}

func (d *toy) crossEntropy(a *op.CrossEntropy) {
	exact("CrossEntropy", a.Logits, a.T*a.V)
	x, targets, losses := d.load(a.Logits, a.T*a.V), d.loadIDs(a.Targets, a.T), make([]float64, a.T)
	for t := range a.T {
		oracle.CrossEntropy(x[t*a.V:(t+1)*a.V], targets[t:t+1], losses[t:t+1], a.V, float64(a.Scale)*d.weight(a.Weights, t), float64(a.Softcap),
			float64(a.Terms.Smoothing), float64(a.Terms.Z), a.ForwardOnly)
	}
	d.storeAll(a.Losses, losses)
	if !a.ForwardOnly {
		d.storeAll(a.Logits, x)
	}
}

func (d *toy) convert(a *op.Convert) {
	d.storeAll(a.Dst, d.load(a.Src, int(a.N)))
}
