package oracle

import "math"

// LayerNorm writes y = (x − mean)·rstd·w + b for rows of len(w) elements, and stats: mean
// and rstd of every row. b may be nil.
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

// LayerNormBackward writes dx, which may be dy (or adds to it), and accumulates dw.
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
