package oracle

import "math"

// MatMul computes D (M, N) = op(A)·op(B) + C + bias; C and bias may be nil.
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

// AddBiasGrad computes db (N) += Σ_t dy (T, N).
func AddBiasGrad(db, dy []float64, T, N int) {
	for t := range T {
		for j := range N {
			db[j] += dy[t*N+j]
		}
	}
}

// Norm describes RMSNorm's rows as op.RMSNorm and op.RMSNormBackward do.
type Norm struct {
	Rows, Groups, Dim            int
	XStride, YStride             int // forward
	DXStride, DYStride, XBStride int // backward; XBStride is x's stride
	Eps, Offset                  float64
	Add                          bool
}

// RMSNorm writes y = x·rstd·(Offset + w) and rstd (Rows, Groups). It adds residual, laid out as y, unless residual is
// nil.
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

// RMSNormBackward writes the gradient of x to dx (or adds it, with n.Add) and adds the gradient of
// w to dw, given dy.
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

// RoPE rotates the first rotary elements of every head in place. Pairs are half of rotary apart; with interleaved,
// they are neighbours.
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

// ScatterAddRows adds the rows pos[start[u]:start[u+1]] of dy to row u of drows.
func ScatterAddRows(drows, dy []float64, start, pos []int32, C int) {
	for u := range len(start) - 1 {
		for _, t := range pos[start[u]:start[u+1]] {
			for i := range C {
				drows[u*C+i] += dy[int(t)*C+i]
			}
		}
	}
}

// CrossEntropy writes losses and, unless forwardOnly is set, turns logits (T, V) into their
// gradient times scale. A row with target −100 does not count. limit is as in Softcap; smoothing
// and z are as in op.LossTerms.
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

// softcapped returns x after the softcap with this limit, and the softcap's derivative at each element.
func softcapped(x []float64, limit float64) (y, slopes []float64) {
	y, slopes = make([]float64, len(x)), make([]float64, len(x))
	for i, v := range x {
		y[i], slopes[i] = Softcap(v, limit)
	}
	return y, slopes
}

// Activation returns the value and the slope of a function at x.
type Activation func(x float64) (y, slope float64)

// SiLU is x/(1+e^−x).
func SiLU(x float64) (y, slope float64) {
	s := 1 / (1 + math.Exp(-x))
	return x * s, s * (1 + x*(1-s))
}

// GELUTanh is ½x(1+tanh(√(2/π)(x+0.044715x³))).
func GELUTanh(x float64) (y, slope float64) {
	k := math.Sqrt(2 / math.Pi)
	t := math.Tanh(k * (x + 0.044715*x*x*x))
	return x / 2 * (1 + t), (1+t)/2 + x/2*(1-t*t)*k*(1+3*0.044715*x*x)
}

// GELU is ½x(1+erf(x/√2)).
func GELU(x float64) (y, slope float64) {
	phi := math.Erfc(-x/math.Sqrt2) / 2
	return x * phi, phi + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
}

// ReLU is max(0, x).
func ReLU(x float64) (y, slope float64) {
	if x <= 0 {
		return 0, 0
	}
	return x, 1
}

// SquaredReLU is max(0, x)².
func SquaredReLU(x float64) (y, slope float64) {
	x = max(0, x)
	return x * x, 2 * x
}

// Sigmoid is 1/(1+e^−x).
func Sigmoid(x float64) (y, slope float64) {
	s := 1 / (1 + math.Exp(-x))
	return s, s * (1 - s)
}

// Softcap returns limit·tanh(x/limit) and its slope; for limit 0, x itself.
func Softcap(x, limit float64) (y, slope float64) {
	if limit == 0 {
		return x, 1
	}
	t := math.Tanh(x / limit)
	return limit * t, 1 - t*t
}

// GLU sets y (T, F) to f(gate)·up for gu (T, 2F).
func GLU(f Activation, y, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, _ := f(gu[2*t*F+i])
			y[t*F+i] = g * gu[(2*t+1)*F+i]
		}
	}
}

// GLUBackward writes the gradient of GLU's input gu to dgu, given dy. Unless y is nil it also writes GLU's result to y.
// dgu may be gu, and y may be dy.
func GLUBackward(f Activation, dgu, y, dy, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, slope := f(gu[2*t*F+i])
			up, d := gu[(2*t+1)*F+i], dy[t*F+i]
			if y != nil {
				y[t*F+i] = g * up
			}
			dgu[2*t*F+i], dgu[(2*t+1)*F+i] = d*up*slope, d*g
		}
	}
}

// Activate sets y to f(x), element by element.
func Activate(f Activation, y, x []float64) {
	for i, v := range x {
		y[i], _ = f(v)
	}
}

// ActivateBackward writes the gradient of Activate's input x to dx, given dy. Unless y is nil it also writes Activate's
// result to y. dx may be x, and y may be dy.
func ActivateBackward(f Activation, dx, y, dy, x []float64) {
	for i, d := range dy {
		v, slope := f(x[i])
		if y != nil {
			y[i] = v
		}
		dx[i] = d * slope
	}
}

// LayerNorm writes y = (x − mean)·rstd·w + b for rows of len(w) elements, and stats: mean and rstd of every row. b
// may be nil.
func LayerNorm(y, stats, x, w, b []float64, eps float64) {
	n := len(w)
	for r := 0; r*n < len(x); r++ {
		v := x[r*n:][:n]
		var mean, square float64
		for _, e := range v {
			mean += e / float64(n)
		}
		for _, e := range v {
			square += (e - mean) * (e - mean)
		}
		k := 1 / math.Sqrt(square/float64(n)+eps)
		stats[2*r], stats[2*r+1] = mean, k
		for i, e := range v {
			y[r*n+i] = (e - mean) * k * w[i]
			if b != nil {
				y[r*n+i] += b[i]
			}
		}
	}
}

// LayerNormBackward writes the gradient of x to dx, which may be dy, or adds it if add is set. It
// adds the gradient of w to dw.
func LayerNormBackward(dx, dw, dy, x, w, stats []float64, add bool) {
	n := len(w)
	for r := 0; r*n < len(x); r++ {
		mean, k := stats[2*r], stats[2*r+1]
		var sum, dot float64
		for i, e := range x[r*n:][:n] {
			g, normed := dy[r*n+i], (e-mean)*k
			sum += g * w[i]
			dot += g * w[i] * normed
			dw[i] += g * normed
		}
		for i, e := range x[r*n:][:n] {
			grad := k * (dy[r*n+i]*w[i] - sum/float64(n) - (e-mean)*k*dot/float64(n))
			if add {
				grad += dx[r*n+i]
			}
			dx[r*n+i] = grad
		}
	}
}

// Heads is a layout of heads in rows: element (t, head, c) is at t·Stride + head·Head + c.
type Heads struct{ Stride, Head int }

func (h Heads) at(t, head, c int) int { return t*h.Stride + head*h.Head + c }

// CopyHeads copies C elements of each head of T rows from src to dst, and clears the zeros elements that follow in
// dst.
func CopyHeads(dst, src []float64, T, heads, C, zeros int, to, from Heads) {
	for t := range T {
		for h := range heads {
			for c := range C + zeros {
				dst[to.at(t, h, c)] = 0
				if c < C {
					dst[to.at(t, h, c)] = src[from.at(t, h, c)]
				}
			}
		}
	}
}

// SumHeads sets C elements of each of T rows of dst, stride apart, to the sum over the heads of src.
func SumHeads(dst, src []float64, T, heads, C, stride int, from Heads) {
	for t := range T {
		for c := range C {
			var sum float64
			for h := range heads {
				sum += src[from.at(t, h, c)]
			}
			dst[t*stride+c] = sum
		}
	}
}

// AddPositions sets y to x (T, C) plus row pos[t] of table.
func AddPositions(y, x, table []float64, pos []int32, C int) {
	for i := range y[:len(pos)*C] {
		y[i] = x[i] + table[int(pos[i/C])*C+i%C]
	}
}

// AddPositionsBackward adds row t of dy (T, C) to the row of dtable for its position in its sequence. The rows of dy
// are the T tokens that begin with token number `from`. cu holds the sequences' bounds.
func AddPositionsBackward(dtable, dy []float64, cu []int32, from, T, C int) {
	for s, first := range cu[:len(cu)-1] {
		for t := max(int(first), from); t < min(int(cu[s+1]), from+T); t++ {
			for c := range C {
				dtable[(t-int(first))*C+c] += dy[(t-from)*C+c]
			}
		}
	}
}

// AddNoise adds the noise of op.AddNoise to x (T, C). The arguments have op.AddNoise's names. cu bounds the
// documents.
func AddNoise(x []float64, cu []int32, from, first, step, C int, seed uint64, scale float64) {
	for t := range len(x) / C {
		at, doc := from+t, 0
		for int(cu[doc+1]) <= at {
			doc++
		}
		size := scale / math.Sqrt(float64(cu[doc+1]-cu[doc]))
		for c := range C {
			x[t*C+c] += size * Uniform(seed, step, first+at, c)
		}
	}
}

// Uniform returns a random number in (−1, 1), determined by its arguments alone. c is the column, place the row's
// position, and step the training step.
func Uniform(seed uint64, step, place, c int) float64 {
	l0, l1, r0, r1 := uint64(c/4), uint64(place), uint64(step), uint64(0)
	k0, k1 := seed&math.MaxUint32, seed>>32
	for range 10 { // Philox4x32-10: a round multiplies two words, and their lower halves swap with the other words
		high0, low0 := (l0*0xd2511f53)>>32, (l0*0xd2511f53)&math.MaxUint32
		high1, low1 := (r0*0xcd9e8d57)>>32, (r0*0xcd9e8d57)&math.MaxUint32
		l0, l1, r0, r1 = high1^l1^k0, low1, high0^r1^k1, low0
		k0, k1 = (k0+0x9e3779b9)&math.MaxUint32, (k1+0xbb67ae85)&math.MaxUint32
	}
	word := [4]uint64{l0, l1, r0, r1}[c%4]
	return (float64(word>>8)+0.5)/(1<<23) - 1
}

// WeightedSum computes d = a·x + b·y.
func WeightedSum(d, x, y []float64, a, b float64) {
	for i := range d {
		d[i] = a*x[i] + b*y[i]
	}
}

// DivideByNorm divides x by its norm, or by eps if eps is larger.
func DivideByNorm(x []float64, eps float64) {
	Scale(x, 1/max(math.Sqrt(dot(x, x)), eps))
}

// Coefficients are the numbers a, b and c of torch.optim.Muon's Newton-Schulz iteration (see
// NewtonSchulz).
var Coefficients = [3]float64{3.4445, -4.775, 2.0315}

// NewtonSchulz brings the singular values of x (rows, cols) near 1 in steps iterations. It divides x by its norm, and
// then repeats x = a·x + (b·g + c·g²)·x with g = x·xᵀ. If rows > cols, it works on the transposed matrix. round is
// applied to every stored value. Source: torch.optim.Muon.
func NewtonSchulz(x []float64, rows, cols, steps int, eps float64, round func(float64) float64) {
	if rows > cols {
		t := transposed(x, rows, cols)
		NewtonSchulz(t, cols, rows, steps, eps, round)
		copy(x, transposed(t, cols, rows))
		return
	}
	store := func(v []float64) {
		for i := range v {
			v[i] = round(v[i])
		}
	}
	store(x)
	norm := max(round(math.Sqrt(dot(x, x))), eps)
	for i := range x {
		x[i] = round(x[i] / norm)
	}
	a, b, c := Coefficients[0], Coefficients[1], Coefficients[2]
	g, p, next := make([]float64, rows*rows), make([]float64, rows*rows), make([]float64, rows*cols)
	for range steps {
		MatMul(g, x, x, nil, nil, rows, rows, cols, false, true)
		store(g)
		MatMul(p, g, g, nil, nil, rows, rows, rows, false, false)
		WeightedSum(p, g, p, b, c)
		store(p)
		MatMul(next, p, x, nil, nil, rows, cols, rows, false, false)
		WeightedSum(x, x, next, a, 1)
		store(x)
	}
}

func transposed(x []float64, rows, cols int) []float64 {
	t := make([]float64, len(x))
	for r := range rows {
		for c := range cols {
			t[c*rows+r] = x[r*cols+c]
		}
	}
	return t
}
