package oracle

import "math"

// MatMul is D (M, N) = op(A)·op(B) + C + bias; C and bias may be nil.
func MatMul(d, a, b, c, bias []float64, M, N, K int, transA, transB bool) {
	out := make([]float64, M*N)
	for i := range M {
		for j := range N {
			var s float64
			for k := range K {
				x, y := i*K+k, k*N+j
				if transA {
					x = k*M + i
				}
				if transB {
					y = j*K + k
				}
				s += a[x] * b[y]
			}
			if c != nil {
				s += c[i*N+j]
			}
			if bias != nil {
				s += bias[j]
			}
			out[i*N+j] = s
		}
	}
	copy(d, out)
}

// AddBiasGrad is db (N) += Σ_t dy (T, N).
func AddBiasGrad(db, dy []float64, T, N int) {
	for t := range T {
		for j := range N {
			db[j] += dy[t*N+j]
		}
	}
}

// Norm says how the rows of RMSNorm lie.
type Norm struct {
	Rows, Groups, Dim            int
	XStride, YStride             int // forward
	DXStride, DYStride, XBStride int // backward; XBStride is that of x
	Eps                          float64
	Add                          bool
}

// RMSNorm writes y = x·rstd·w and rstd (Rows, Groups).
func RMSNorm(y, rstd, x, w []float64, n Norm) {
	for r := range n.Rows {
		for g := range n.Groups {
			v := x[r*n.XStride+g*n.Dim:][:n.Dim]
			var sum float64
			for _, e := range v {
				sum += e * e
			}
			k := 1 / math.Sqrt(sum/float64(n.Dim)+n.Eps)
			rstd[r*n.Groups+g] = k
			for i, e := range v {
				y[r*n.YStride+g*n.Dim+i] = e * k * w[i]
			}
		}
	}
}

// RMSNormBackward writes dx (or adds to it) and accumulates dw.
func RMSNormBackward(dx, dw, dy, x, w, rstd []float64, n Norm) {
	for r := range n.Rows {
		for g := range n.Groups {
			k := rstd[r*n.Groups+g]
			v, d := x[r*n.XBStride+g*n.Dim:][:n.Dim], dy[r*n.DYStride+g*n.Dim:][:n.Dim]
			var dot float64
			for i := range n.Dim {
				dot += d[i] * w[i] * v[i]
				dw[i] += d[i] * v[i] * k
			}
			for i := range n.Dim {
				grad := k*d[i]*w[i] - v[i]*k*k*k*dot/float64(n.Dim)
				at := r*n.DXStride + g*n.Dim + i
				if n.Add {
					grad += dx[at]
				}
				dx[at] = grad
			}
		}
	}
}

// RoPE rotates the first rotary elements of every head in place.
func RoPE(x, cos, sin []float64, pos []int32, T, heads, dim, rotary, stride int, inverse bool) {
	half := rotary / 2
	for t := range T {
		for h := range heads {
			v := x[t*stride+h*dim:]
			for i := range half {
				c, s := cos[int(pos[t])*half+i], sin[int(pos[t])*half+i]
				if inverse {
					s = -s
				}
				v[i], v[i+half] = v[i]*c-v[i+half]*s, v[i+half]*c+v[i]*s
			}
		}
	}
}

func silu(x float64) (y, slope float64) {
	s := 1 / (1 + math.Exp(-x))
	return x * s, s * (1 + x*(1-s))
}

// SwiGLU is y (T, F) = silu(gate)·up of gu (T, 2F).
func SwiGLU(y, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, _ := silu(gu[2*t*F+i])
			y[t*F+i] = g * gu[(2*t+1)*F+i]
		}
	}
}

// SwiGLUBackward overwrites dgu, which may be gu, and y unless nil; y may be dy.
func SwiGLUBackward(dgu, y, dy, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, slope := silu(gu[2*t*F+i])
			up, d := gu[(2*t+1)*F+i], dy[t*F+i]
			if y != nil {
				y[t*F+i] = g * up
			}
			dgu[2*t*F+i], dgu[(2*t+1)*F+i] = d*up*slope, d*g
		}
	}
}

// GatherRows is dst (T, C) = src rows index.
func GatherRows(dst, src []float64, index []int32, C int) {
	for t, u := range index {
		copy(dst[t*C:(t+1)*C], src[int(u)*C:(int(u)+1)*C])
	}
}

// ScatterAddRows adds to row u of drows rows pos[start[u]:start[u+1]] of dy.
func ScatterAddRows(drows, dy []float64, start, pos []int32, C int) {
	for u := range len(start) - 1 {
		for _, t := range pos[start[u]:start[u+1]] {
			for i := range C {
				drows[u*C+i] += dy[int(t)*C+i]
			}
		}
	}
}

// CrossEntropy writes losses and, unless forwardOnly, turns logits (T, V) into
// their gradient times scale. A target of −100 does not count.
func CrossEntropy(logits []float64, targets []int32, losses []float64, V int, scale float64, forwardOnly bool) {
	for t, target := range targets {
		row := logits[t*V : (t+1)*V]
		if target == -100 {
			losses[t] = 0
			if !forwardOnly {
				clear(row)
			}
			continue
		}
		top := math.Inf(-1)
		for _, x := range row {
			top = max(top, x)
		}
		var sum float64
		for _, x := range row {
			sum += math.Exp(x - top)
		}
		losses[t] = math.Log(sum) + top - row[target]
		if forwardOnly {
			continue
		}
		for i, x := range row {
			row[i] = math.Exp(x-top) / sum * scale
		}
		row[target] -= scale
	}
}

// CrossEntropyShard is CrossEntropy over columns from … from+V of a vocabulary
// that comes in shards: a sweep for lse and losses, one for the gradient.
func CrossEntropyShard(logits []float64, targets []int32, lse, losses []float64, V, from int, scale float64, first, last, gradient bool) {
	for t, target := range targets {
		row, at := logits[t*V:(t+1)*V], int(target)-from
		if gradient {
			for i, x := range row {
				row[i] = math.Exp(x-lse[t]) * scale
			}
			if target == -100 {
				clear(row)
			} else if at >= 0 && at < V {
				row[at] -= scale
			}
			continue
		}
		top := math.Inf(-1)
		if !first {
			top = lse[t]
		}
		for _, x := range row {
			top = max(top, x)
		}
		var sum float64
		if !first {
			sum = math.Exp(lse[t] - top)
		}
		for _, x := range row {
			sum += math.Exp(x - top)
		}
		lse[t] = top + math.Log(sum)
		if at >= 0 && at < V {
			losses[t] = row[at]
		}
		switch {
		case last && target == -100:
			losses[t] = 0
		case last:
			losses[t] = lse[t] - losses[t]
		}
	}
}
