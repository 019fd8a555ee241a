package cpu

import (
	"math"

	"mt/device"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, rmsNorm)
	op.Add(&table, rmsNormBackward)
}

// rmsNorm normalizes every group of every row while it is in the cache. Source: arXiv:1910.07467.
func rmsNorm(s *stream, a *op.RMSNorm) error {
	width := a.Groups * a.Dim
	reads(a.X, a.Rows, a.XStride, width)
	reads(a.W, 1, 0, a.Dim)
	reads(a.Residual, a.Rows, a.YStride, width)
	writes(a.Y, a.Rows, a.YStride, width)
	writes(a.RStd, 1, 0, a.Rows*a.Groups)
	s.forRows(a.Rows, width, func(sc *scratch, from, to int) { normRows(a, sc, from, to) })
	return nil
}

func normRows(a *op.RMSNorm, sc *scratch, from, to int) {
	x, y, residual, width := actOf(a.X), actOf(a.Y), actOf(a.Residual), a.Groups*a.Dim
	w, rstd := normWeight(sc, a.W, a.Dim, a.Offset), f32s(a.RStd, a.Rows*a.Groups)
	for r := from; r < to; r++ {
		in := x.load(sc, 0, r*a.XStride, width)
		var out []float32
		if a.Residual.None() {
			out = y.target(sc, 1, r*a.YStride, width)
		} else {
			out = sc.f32(1, width)
		}
		for g := range a.Groups {
			v := in[g*a.Dim : (g+1)*a.Dim]
			mean := float64(vec.Dot(v, v)) / float64(a.Dim)
			k := float32(1 / math.Sqrt(mean+float64(a.Eps)))
			vec.ScaleMul(out[g*a.Dim:(g+1)*a.Dim], v, w, k)
			if rstd != nil {
				rstd[r*a.Groups+g] = k
			}
		}
		if a.Residual.None() {
			y.store(r*a.YStride, out)
			continue
		}
		vec.Add(out, residual.load(sc, 2, r*a.YStride, width))
		y.put(r*a.YStride, out)
	}
}

// normWeight returns the factors offset + w (n) of a norm: w itself if offset is 0, otherwise a
// copy in the last buffer of sc.
func normWeight(sc *scratch, w device.Tensor, n int, offset float32) []float32 {
	v := f32s(w, n)
	if offset == 0 || n == 0 {
		return v
	}
	sum := sc.f32(numBuffers-1, n)
	for i, x := range v {
		sum[i] = offset + x
	}
	return sum
}

// rmsNormBackward writes DX (or adds to it) and accumulates DW. With g = dy·(Offset + w) and n elements a group:
//
//	dx = rstd·g − x·rstd³·Σ(g·x)/n
//	dw = Σ dy·x·rstd
func rmsNormBackward(s *stream, a *op.RMSNormBackward) error {
	width := a.Groups * a.Dim
	reads(a.X, a.Rows, a.XStride, width)
	reads(a.DY, a.Rows, a.DYStride, width)
	reads(a.W, 1, 0, a.Dim)
	reads(a.RStd, 1, 0, a.Rows*a.Groups)
	writes(a.DX, a.Rows, a.DXStride, width)
	writes(a.DW, 1, 0, a.Dim)
	s.sumRows(a.DW, a.Dim, a.Rows, func(sc *scratch, dw []float32, from, to int) { normGradRows(a, sc, dw, from, to) })
	return nil
}

func normGradRows(a *op.RMSNormBackward, sc *scratch, dw []float32, from, to int) {
	x, dy, dx := actOf(a.X), actOf(a.DY), actOf(a.DX)
	w, rstd := normWeight(sc, a.W, a.Dim, a.Offset), f32s(a.RStd, a.Rows*a.Groups)
	width := a.Groups * a.Dim
	for r := from; r < to; r++ {
		in, grad := x.load(sc, 0, r*a.XStride, width), dy.load(sc, 1, r*a.DYStride, width)
		var out []float32
		if a.Add {
			out = dx.load(sc, 2, r*a.DXStride, width)
		} else {
			out = dx.target(sc, 2, r*a.DXStride, width)
		}
		for g := range a.Groups {
			lo, hi := g*a.Dim, (g+1)*a.Dim
			k := rstd[r*a.Groups+g]
			c := float64(vec.Dot3(in[lo:hi], grad[lo:hi], w)) * float64(k) * float64(k) * float64(k) / float64(a.Dim)
			vec.NormGrad(out[lo:hi], dw, grad[lo:hi], in[lo:hi], w, k, float32(c), a.Add)
		}
		dx.store(r*a.DXStride, out)
	}
}
