package oracle

import "math"

// xieluBeta and xieluEps are the constants of Transformers' XIELUActivation.
const xieluBeta, xieluEps = 0.5, -1e-6

// XIELU writes y = a·x² + x/2 for x > 0, otherwise b·(e^min(x, −1e−6) − 1 − x) + x/2, where a = softplus(alpha[0]) and b =
// 1/2 + softplus(alpha[1]).
func XIELU(y, x, alpha []float64) {
	a, b := math.Log1p(math.Exp(alpha[0])), xieluBeta+math.Log1p(math.Exp(alpha[1]))
	for i, v := range x {
		if v > 0 {
			y[i] = a*v*v + xieluBeta*v
		} else {
			y[i] = b*(math.Expm1(min(v, xieluEps))-v) + xieluBeta*v
		}
	}
}

// XIELUBackward writes the gradient of x to dx and XIELU's result to y, given dy. It adds the gradient of alpha to
// dalpha. dx may be x, and y may be dy.
func XIELUBackward(dx, y, dy, x, alpha, dalpha []float64) {
	a, b := math.Log1p(math.Exp(alpha[0])), xieluBeta+math.Log1p(math.Exp(alpha[1]))
	for i, d := range dy {
		v := x[i]
		slope := 2*a*v + xieluBeta
		if v > 0 {
			dalpha[0] += d * v * v / (1 + math.Exp(-alpha[0]))
		} else {
			dalpha[1] += d * (math.Expm1(min(v, xieluEps)) - v) / (1 + math.Exp(-alpha[1]))
			slope = xieluBeta - b
			if v < xieluEps {
				slope += b * math.Exp(v)
			}
		}
		XIELU(y[i:i+1], []float64{v}, alpha)
		dx[i] = d * slope
	}
}
