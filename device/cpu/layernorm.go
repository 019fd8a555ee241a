package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, layerNorm)
	op.Add(&table, layerNormBackward)
}

// layerNorm normalizes every row while it is in the cache. Source: arXiv:1607.06450.
func layerNorm(s *stream, a *op.LayerNorm) error {
	reads(a.X, 1, 0, a.Rows*a.Dim)
	reads(a.W, 1, 0, a.Dim)
	reads(a.B, 1, 0, a.Dim)
	writes(a.Y, 1, 0, a.Rows*a.Dim)
	writes(a.Stats, 1, 0, 2*a.Rows)
	x, y, n := actOf(a.X), actOf(a.Y), a.Dim
	w, bias, stats := f32s(a.W, n), f32s(a.B, n), f32s(a.Stats, 2*a.Rows)
	s.forRows(a.Rows, n, func(sc *scratch, from, to int) {
		for r := from; r < to; r++ {
			in, out := x.load(sc, 0, r*n, n), y.target(sc, 1, r*n, n)
			mean := vec.Sum(in) / float32(n)
			vec.Shift(out, in, -mean)
			k := float32(1 / math.Sqrt(float64(vec.Dot(out, out))/float64(n)+float64(a.Eps)))
			vec.ScaleMul(out, out, w, k)
			if bias != nil {
				vec.Add(out, bias)
			}
			if stats != nil {
				stats[2*r], stats[2*r+1] = mean, k
			}
			y.store(r*n, out)
		}
	})
	return nil
}

// layerNormBackward writes DX (or adds to it) and accumulates DW. With g = dy·w, c = x − mean and n elements a row:
//
//	dx = rstd·(g − Σg/n) − c·rstd³·Σ(g·c)/n
//	dw = Σ dy·c·rstd
func layerNormBackward(s *stream, a *op.LayerNormBackward) error {
	reads(a.X, 1, 0, a.Rows*a.Dim)
	reads(a.DY, 1, 0, a.Rows*a.Dim)
	reads(a.W, 1, 0, a.Dim)
	reads(a.Stats, 1, 0, 2*a.Rows)
	writes(a.DX, 1, 0, a.Rows*a.Dim)
	writes(a.DW, 1, 0, a.Dim)
	x, dy, dx, n := actOf(a.X), actOf(a.DY), actOf(a.DX), a.Dim
	w, stats := f32s(a.W, n), f32s(a.Stats, 2*a.Rows)
	s.sumRows(a.DW, n, a.Rows, func(sc *scratch, dw []float32, from, to int) {
		for r := from; r < to; r++ {
			grad, centred := dy.load(sc, 1, r*n, n), sc.f32(3, n)
			vec.Shift(centred, x.load(sc, 0, r*n, n), -stats[2*r])
			var out []float32
			if a.Add {
				out = dx.load(sc, 2, r*n, n)
			} else {
				out = dx.target(sc, 2, r*n, n)
			}
			k := stats[2*r+1]
			mean := k * vec.Dot(grad, w) / float32(n) // before dx is written, which may be dy
			c := float64(vec.Dot3(centred, grad, w)) * float64(k) * float64(k) * float64(k) / float64(n)
			vec.NormGrad(out, dw, grad, centred, w, k, float32(c), a.Add)
			vec.Shift(out, out, -mean)
			dx.store(r*n, out)
		}
	})
	return nil
}
