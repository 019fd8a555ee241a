package cpu

import (
	"math"

	"mt/device/op"
)

func init() {
	op.Add(&table, xielu)
	op.Add(&table, xieluBackward)
}

// xieluBeta and xieluEps are beta and eps of Transformers' XIELUActivation.
const xieluBeta, xieluEps = 0.5, -1e-6

// xieluAlphas returns the two parameters a and b of xIELU, which are functions of the numbers stored in alpha. da and
// db are their derivatives by the stored numbers.
func xieluAlphas(alpha []float32) (a, b, da, db float64) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	p, n := float64(alpha[0]), float64(alpha[1])
	return softplus(p), xieluBeta + softplus(n), sigmoid(p), sigmoid(n)
}

// xielu computes Y row by row. All steps of a row run while the row is in the cache.
func xielu(s *stream, a *op.XIELU) error {
	reads(a.X, 1, 0, a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	if a.T*a.F == 0 {
		return nil
	}
	reads(a.Alpha, 1, 0, 2)
	in, out := actOf(a.X), actOf(a.Y)
	p, n, _, _ := xieluAlphas(f32s(a.Alpha, 2))
	s.forRows(a.T, 12*a.F, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			y := out.target(sc, 1, t*a.F, a.F)
			for i, v := range in.load(sc, 0, t*a.F, a.F) {
				x, part := float64(v), 0.0
				if x > 0 {
					part = p * x * x
				} else {
					part = n * (math.Expm1(min(x, xieluEps)) - x)
				}
				y[i] = float32(part + xieluBeta*x)
			}
			out.store(t*a.F, y)
		}
	})
	return nil
}

// xieluBackward sums the parameters' gradients in blocks of rows, and then adds the blocks' sums in
// order. So any number of threads gives the same bits. DX may be X, Y may be DY.
func xieluBackward(s *stream, a *op.XIELUBackward) error {
	reads(a.X, 1, 0, a.T*a.F)
	reads(a.DY, 1, 0, a.T*a.F)
	writes(a.DX, 1, 0, a.T*a.F)
	writes(a.Y, 1, 0, a.T*a.F)
	if a.T*a.F == 0 {
		return nil
	}
	reads(a.Alpha, 1, 0, 2)
	writes(a.DAlpha, 1, 0, 2)
	in, grad, din, out := actOf(a.X), actOf(a.DY), actOf(a.DX), actOf(a.Y)
	p, n, dp, dn := xieluAlphas(f32s(a.Alpha, 2))
	s.sumRows(a.DAlpha, 2, a.T, func(sc *scratch, sum []float32, from, to int) {
		for t := from; t < to; t++ {
			x, dy := in.load(sc, 0, t*a.F, a.F), grad.load(sc, 1, t*a.F, a.F)
			dx, y := din.target(sc, 2, t*a.F, a.F), out.target(sc, 3, t*a.F, a.F)
			var sumP, sumN float64
			for i := range x {
				v, d := float64(x[i]), float64(dy[i])
				var value, slope float64
				if v > 0 {
					value, slope = p*v*v, 2*p*v
					sumP += d * v * v
				} else {
					rest := math.Expm1(min(v, xieluEps)) - v
					value, slope = n*rest, -n
					if v < xieluEps {
						slope = n * (rest + v)
					}
					sumN += d * rest
				}
				y[i], dx[i] = float32(value+xieluBeta*v), float32(d*(slope+xieluBeta))
			}
			out.store(t*a.F, y)
			din.store(t*a.F, dx)
			sum[0], sum[1] = sum[0]+float32(dp*sumP), sum[1]+float32(dn*sumN)
		}
	})
	return nil
}
