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

// Norm says where the rows of RMSNorm lie.
type Norm struct {
	Rows, Groups, Dim            int
	XStride, YStride             int // forward
	DXStride, DYStride, XBStride int // backward; XBStride is that of x
	Eps, Offset                  float64
	Add                          bool
}

// RMSNorm writes y = x·rstd·(Offset + w) and rstd (Rows, Groups). It adds residual,
// which lies as y does, unless that is nil.
func RMSNorm(y, rstd, x, w, residual []float64, n Norm) {
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
				at, out := r*n.YStride+g*n.Dim+i, e*k*(n.Offset+w[i])
				if residual != nil {
					out += residual[at]
				}
				y[at] = out
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
				dot += d[i] * (n.Offset + w[i]) * v[i]
				dw[i] += d[i] * v[i] * k
			}
			for i := range n.Dim {
				grad := k*d[i]*(n.Offset+w[i]) - v[i]*k*k*k*dot/float64(n.Dim)
				at := r*n.DXStride + g*n.Dim + i
				if n.Add {
					grad += dx[at]
				}
				dx[at] = grad
			}
		}
	}
}

// RoPE rotates the first rotary elements of every head in place: pairs of elements half of them
// apart or, where interleaved is set, of neighbours.
func RoPE(x, cos, sin []float64, pos []int32, T, heads, dim, rotary, stride int, inverse, interleaved bool) {
	half := rotary / 2
	for t := range T {
		for h := range heads {
			v := x[t*stride+h*dim:]
			for i := range half {
				c, s := cos[int(pos[t])*half+i], sin[int(pos[t])*half+i]
				if inverse {
					s = -s
				}
				a, b := i, i+half
				if interleaved {
					a, b = 2*i, 2*i+1
				}
				v[a], v[b] = v[a]*c-v[b]*s, v[b]*c+v[a]*s
			}
		}
	}
}

// GatherRows sets row t of dst (T, C) to row index[t] of src.
func GatherRows(dst, src []float64, index []int32, C int) {
	for t, u := range index {
		copy(dst[t*C:(t+1)*C], src[int(u)*C:(int(u)+1)*C])
	}
}

// CopyColumns copies C elements from each of T rows of src to the same row of dst.
func CopyColumns(dst, src []float64, T, C, dstStride, srcStride int) {
	for t := range T {
		copy(dst[t*dstStride:t*dstStride+C], src[t*srcStride:t*srcStride+C])
	}
}

// ScatterAddRows adds to row u of drows the rows pos[start[u]:start[u+1]] of dy.
func ScatterAddRows(drows, dy []float64, start, pos []int32, C int) {
	for u := range len(start) - 1 {
		for _, t := range pos[start[u]:start[u+1]] {
			for i := range C {
				drows[u*C+i] += dy[int(t)*C+i]
			}
		}
	}
}

// CrossEntropy writes losses and, unless forwardOnly is set, turns logits (T, V)
// into their gradient times scale. A target of −100 does not count. For limit see
// Softcap, for smoothing and z op.LossTerms.
func CrossEntropy(logits []float64, targets []int32, losses []float64, V int, scale, limit, smoothing, z float64, forwardOnly bool) {
	for t, target := range targets {
		out := logits[t*V : (t+1)*V]
		row, slopes := softcapped(out, limit)
		if target == -100 {
			losses[t] = 0
			if !forwardOnly {
				clear(out)
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
		lse, mean := math.Log(sum)+top, 0.0
		for _, x := range row {
			mean += x / float64(V)
		}
		losses[t] = lse - (1-smoothing)*row[target] - smoothing*mean + z*lse*lse
		if forwardOnly {
			continue
		}
		for i, x := range row {
			out[i] = (math.Exp(x-top)/sum*(1+2*z*lse) - smoothing/float64(V)) * scale * slopes[i]
		}
		out[target] -= (1 - smoothing) * scale * slopes[target]
	}
}

// softcapped is x with the cap applied, and the slopes there.
func softcapped(x []float64, limit float64) (y, slopes []float64) {
	y, slopes = make([]float64, len(x)), make([]float64, len(x))
	for i, v := range x {
		y[i], slopes[i] = Softcap(v, limit)
	}
	return y, slopes
}
