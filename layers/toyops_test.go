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
	a, b := d.load(m.A, m.M*m.K), d.load(m.B, m.K*m.N)
	ai, ak, bk, bj := m.K, 1, m.N, 1
	if m.TransA {
		ai, ak = 1, m.M
	}
	if m.TransB {
		bk, bj = 1, m.K
	}
	out := make([]float64, m.M*m.N)
	if !m.C.None() {
		out = d.load(m.C, m.M*m.N)
	}
	for i := range m.M {
		for j := range m.N {
			for k := range m.K {
				out[i*m.N+j] += a[i*ai+k*ak] * b[k*bk+j*bj]
			}
		}
	}
	if !m.Bias.None() {
		for i, v := range d.load(m.Bias, m.N) {
			for r := range m.M {
				out[r*m.N+i] += v
			}
		}
	}
	d.storeAll(m.D, out)
}

func (d *toy) addBiasGrad(a *op.AddBiasGrad) {
	exact("AddBiasGrad db", a.DB, a.N)
	sum := d.load(a.DB, a.N)
	for i, v := range d.load(a.DY, a.T*a.N) {
		sum[i%a.N] += v
	}
	d.storeAll(a.DB, sum)
}

func (d *toy) rmsNorm(a *op.RMSNorm) {
	if a.Y.Addr != a.X.Addr {
		disjoint("RMSNorm", a.Y, a.X)
	}
	x, w := d.load(a.X, (a.Rows-1)*a.XStride+a.Groups*a.Dim), d.load(a.W, a.Dim)
	for r := range a.Rows {
		for g := range a.Groups {
			in := x[r*a.XStride+g*a.Dim:][:a.Dim]
			var sum float64
			for _, v := range in {
				sum += v * v
			}
			rstd := 1 / math.Sqrt(sum/float64(a.Dim)+float64(a.Eps))
			for i, v := range in {
				at, y := r*a.YStride+g*a.Dim+i, v*rstd*(float64(a.Offset)+w[i])
				if !a.Residual.None() {
					y += d.load(a.Residual.Slice(int64(at), 1), 1)[0]
				}
				d.store(a.Y, at, y)
			}
			if !a.RStd.None() {
				d.store(a.RStd, r*a.Groups+g, rstd)
			}
		}
	}
}

func (d *toy) rmsNormBackward(a *op.RMSNormBackward) {
	if a.Add || a.DX.Addr != a.DY.Addr {
		disjoint("RMSNormBackward", a.DX, a.DY)
	}
	disjoint("RMSNormBackward", a.DX, a.X)
	x, dy := d.load(a.X, (a.Rows-1)*a.XStride+a.Groups*a.Dim), d.load(a.DY, (a.Rows-1)*a.DYStride+a.Groups*a.Dim)
	w, dw, rstds := offset(d.load(a.W, a.Dim), a.Offset), make([]float64, a.Dim), d.load(a.RStd, a.Rows*a.Groups)
	if !a.DW.None() {
		dw = d.load(a.DW, a.Dim)
	}
	old := make([]float64, (a.Rows-1)*a.DXStride+a.Groups*a.Dim)
	if a.Add {
		old = d.load(a.DX, len(old))
	}
	for r := range a.Rows {
		for g := range a.Groups {
			in, up, rstd := x[r*a.XStride+g*a.Dim:][:a.Dim], dy[r*a.DYStride+g*a.Dim:][:a.Dim], rstds[r*a.Groups+g]
			var mean float64
			for i, v := range in {
				mean += v * rstd * up[i] * w[i] / float64(a.Dim)
			}
			for i, v := range in {
				dw[i] += up[i] * v * rstd
				at := r*a.DXStride + g*a.Dim + i
				d.store(a.DX, at, old[at]+rstd*(up[i]*w[i]-v*rstd*mean))
			}
		}
	}
	if !a.DW.None() {
		d.storeAll(a.DW, dw)
	}
}

func offset(w []float64, by float32) []float64 {
	for i := range w {
		w[i] += float64(by)
	}
	return w
}

func (d *toy) rope(a *op.RoPE) {
	half := a.Rotary / 2
	x, pos := d.load(a.X, (a.T-1)*a.Stride+a.Heads*a.Dim), d.loadInt(a.Pos, a.T)
	cos, sin := d.load(a.Cos, int(a.Cos.Len)), d.load(a.Sin, int(a.Sin.Len))
	for t := range a.T {
		for h := range a.Heads {
			for i := range half {
				head, c, s := t*a.Stride+h*a.Dim, cos[pos[t]*half+i], sin[pos[t]*half+i]
				p, q := head+i, head+i+half
				if a.Interleaved {
					p, q = head+2*i, head+2*i+1
				}
				if a.Inverse {
					s = -s
				}
				d.store(a.X, p, x[p]*c-x[q]*s)
				d.store(a.X, q, x[q]*c+x[p]*s)
			}
		}
	}
}

// scores calls f for every query: its row and head, and the keys it sees with
// their scaled scores, capped, and the slopes of the cap.
func (d *toy) scores(a op.AttentionShape, q, k []float64, qs, ks int, f func(t, h, key0 int, s, slopes []float64)) {
	cuq, cuk := d.loadInt(a.CuQ, a.Seqs+1), d.loadInt(a.CuK, a.Seqs+1)
	for i := range a.Seqs {
		last := cuk[i+1] - cuk[i] - (cuq[i+1] - cuq[i])
		for t := cuq[i]; t < cuq[i+1]; t++ {
			for h := range a.Heads {
				n, key0 := t-cuq[i]+last+1, cuk[i]
				if a.Window > 0 && n > a.Window {
					n, key0 = a.Window, key0+n-a.Window
				}
				s, slopes := make([]float64, n), make([]float64, n)
				for j := range s {
					for e := range a.Dim {
						s[j] += q[t*qs+h*a.Dim+e] * k[(key0+j)*ks+h/(a.Heads/a.KVHeads)*a.Dim+e]
					}
					s[j], slopes[j] = oracle.Softcap(s[j]*float64(a.Scale), float64(a.Softcap))
				}
				f(t, h, key0, s, slopes)
			}
		}
	}
}

func logSumExp(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

func (d *toy) attention(a *op.Attention) {
	exact("Attention O", a.O, a.TQ*a.Heads*a.Dim)
	disjoint("Attention", a.O, a.Q, a.K, a.V)
	q := d.load(a.Q, (a.TQ-1)*a.QStride+a.Heads*a.Dim)
	k, v := d.load(a.K, (a.TK-1)*a.KStride+a.KVHeads*a.Dim), d.load(a.V, (a.TK-1)*a.KStride+a.KVHeads*a.Dim)
	d.scores(a.AttentionShape, q, k, a.QStride, a.KStride, func(t, h, key0 int, s, _ []float64) {
		d.attended += 4 * int64(len(s)) * int64(a.Dim)
		lse := logSumExp(s)
		o := make([]float64, a.Dim)
		for j := range s {
			for e := range o {
				o[e] += math.Exp(s[j]-lse) * v[(key0+j)*a.KStride+h/(a.Heads/a.KVHeads)*a.Dim+e]
			}
		}
		for e := range o {
			d.store(a.O, (t*a.Heads+h)*a.Dim+e, o[e])
		}
		if !a.LSE.None() {
			d.store(a.LSE, h*a.TQ+t, lse)
		}
	})
}

func (d *toy) attentionBackward(a *op.AttentionBackward) {
	exact("AttentionBackward Delta", a.Delta, a.TQ*a.Heads)
	disjoint("AttentionBackward", a.DQ, a.Q, a.K, a.V, a.DO, a.O, a.LSE)
	q := d.load(a.Q, (a.TQ-1)*a.QStride+a.Heads*a.Dim)
	k, v := d.load(a.K, (a.TK-1)*a.KStride+a.KVHeads*a.Dim), d.load(a.V, (a.TK-1)*a.KStride+a.KVHeads*a.Dim)
	o, do, lse := d.load(a.O, a.TQ*a.Heads*a.Dim), d.load(a.DO, a.TQ*a.Heads*a.Dim), d.load(a.LSE, a.TQ*a.Heads)
	kv := a.KVHeads * a.Dim
	dq, dk, dv := make([]float64, a.TQ*a.Heads*a.Dim), make([]float64, a.TK*kv), make([]float64, a.TK*kv)
	d.scores(a.AttentionShape, q, k, a.QStride, a.KStride, func(t, h, key0 int, s, slopes []float64) {
		head, at := h/(a.Heads/a.KVHeads)*a.Dim, (t*a.Heads+h)*a.Dim
		var delta float64
		for e := range a.Dim {
			delta += do[at+e] * o[at+e]
		}
		d.store(a.Delta, h*a.TQ+t, delta)
		for j := range s {
			p, key := math.Exp(s[j]-lse[h*a.TQ+t]), key0+j
			var dp float64
			for e := range a.Dim {
				dp += do[at+e] * v[key*a.KStride+head+e]
				dv[key*kv+head+e] += p * do[at+e]
			}
			ds := p * (dp - delta) * float64(a.Scale) * slopes[j]
			for e := range a.Dim {
				dq[at+e] += ds * k[key*a.KStride+head+e]
				dk[key*kv+head+e] += ds * q[t*a.QStride+h*a.Dim+e]
			}
		}
	})
	d.storeStrided(a.DQ, dq, a.Heads*a.Dim, a.DQStride)
	d.storeStrided(a.DK, dk, kv, a.DKStride)
	d.storeStrided(a.DV, dv, kv, a.DKStride)
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
	x := d.load(a.Src, int(a.Src.Len))
	for i := range a.T * a.C {
		d.store(a.Dst, i/a.C*a.DstStride+i%a.C, x[i/a.C*a.SrcStride+i%a.C])
	}
}

func (d *toy) copyHeads(a *op.CopyHeads) {
	disjoint("CopyHeads", a.Dst, a.Src)
	x := d.load(a.Src, int(a.Src.Len))
	for t := range a.T {
		for h := range a.Heads {
			for c := range a.C + a.Zeros {
				v := 0.0
				if c < a.C {
					v = x[t*a.SrcStride+h*a.SrcHead+c]
				}
				d.store(a.Dst, t*a.DstStride+h*a.DstHead+c, v)
			}
		}
	}
}

func (d *toy) sumHeads(a *op.SumHeads) {
	disjoint("SumHeads", a.Dst, a.Src)
	x := d.load(a.Src, int(a.Src.Len))
	for t := range a.T {
		for c := range a.C {
			var sum float64
			for h := range a.Heads {
				sum += x[t*a.SrcStride+h*a.SrcHead+c]
			}
			d.store(a.Dst, t*a.DstStride+c, sum)
		}
	}
}

func (d *toy) gatherRows(a *op.GatherRows) {
	x := d.load(a.Src, int(a.Src.Len))
	for t, u := range d.loadInt(a.Index, a.T) {
		for c := range a.C {
			d.store(a.Dst, t*a.C+c, x[u*a.C+c])
		}
	}
}

func (d *toy) scatterAddRows(a *op.ScatterAddRows) {
	sum, x, first, at := d.load(a.DRows, a.U*a.C), d.load(a.DY, a.T*a.C), d.loadInt(a.Start, a.U+1), d.loadInt(a.Pos, a.T)
	for u := range a.U {
		for _, t := range at[first[u]:first[u+1]] {
			for c := range a.C {
				sum[u*a.C+c] += x[t*a.C+c]
			}
		}
	}
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
	weights, cu := make([]float64, a.T), intsOf(d.loadInt(a.Cu, 2*a.Pairs+1))
	oracle.PreferenceWeights(weights, d.load(a.Losses, a.T), intsOf(d.loadInt(a.Targets, a.T)), cu, d.load(a.Reference, 2*a.Pairs),
		int(a.Loss.Kind), float64(a.Loss.Beta), float64(a.Loss.Smoothing), float64(a.Likelihood))
	d.storeAll(a.Weights, weights)
}

func intsOf(v []int) (out []int32) {
	for _, x := range v {
		out = append(out, int32(x))
	}
	return out
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
		lse := logSumExp(row)
		if !a.First {
			lse = logSumExp([]float64{d.load(a.LSE.Slice(int64(t), 1), 1)[0], lse})
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
	x := d.load(a.Logits, a.T*a.V)
	for t, target := range d.loadInt(a.Targets, a.T) {
		row, slopes := capped(x[t*a.V:(t+1)*a.V], a.Softcap)
		lse, scale := logSumExp(row), float64(a.Scale)*d.weight(a.Weights, t)
		loss := 0.0
		if target == op.IgnoreIndex {
			scale = 0
		} else {
			loss = lse - takenBy(a.Terms, row, target, a.V) + float64(a.Terms.Z)*lse*lse
		}
		d.store(a.Losses, t, loss)
		for i, v := range row {
			p := logitGrad(a.Terms, v, lse, a.V, i == target)
			if !a.ForwardOnly {
				d.store(a.Logits, t*a.V+i, p*scale*slopes[i])
			}
		}
	}
}

func (d *toy) convert(a *op.Convert) {
	d.storeAll(a.Dst, d.load(a.Src, int(a.N)))
}
