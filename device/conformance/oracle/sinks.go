package oracle

import "math"

// Sinks turns o (T, heads·dim) and lse (heads, T) of attention into those of attention with sinks (heads): one
// more score a head, whose value is 0.
func Sinks(o, lse, sinks []float64, T, dim int) {
	for h, sink := range sinks {
		for t := range T {
			all := LogSumExp([]float64{lse[h*T+t], sink})
			Scale(o[(t*len(sinks)+h)*dim:][:dim], math.Exp(lse[h*T+t]-all))
			lse[h*T+t] = all
		}
	}
}

// SinksGrad adds to dsinks (heads) the gradient of the sinks, given lse (heads, T) as Sinks left it and delta (heads, T)
// = Σ do·o.
func SinksGrad(dsinks, lse, delta, sinks []float64, T int) {
	for h, sink := range sinks {
		for t := range T {
			dsinks[h] -= math.Exp(sink-lse[h*T+t]) * delta[h*T+t]
		}
	}
}

// AddWeightedRows adds w[pairs[t]]·(row t of src + bias) to row index[t] of dst; bias may be nil.
func AddWeightedRows(dst, src, bias, w []float64, index, pairs []int32, C int) {
	for t, u := range index {
		sum := dst[int(u)*C : (int(u)+1)*C]
		add(sum, w[pairs[t]], src[t*C:(t+1)*C])
		add(sum, w[pairs[t]], bias)
	}
}

// WeightedBiasGrad adds the gradients of b and of w to db and dw, given that of y.
func WeightedBiasGrad(db, dw, dy, b, w []float64, index []int32) {
	for t, p := range index {
		row := dy[t*len(b) : (t+1)*len(b)]
		add(db, w[p], row)
		dw[p] += dot(row, b)
	}
}

// CutGLU sets y (T, F) to g·σ(alpha·g)·(u+1) of gu (T, 2F), where g is the gate, limit at most, and u the up, limit in
// magnitude at most.
func CutGLU(alpha, limit float64, y, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, u := min(gu[2*t*F+i], limit), min(max(gu[(2*t+1)*F+i], -limit), limit)
			y[t*F+i] = g / (1 + math.Exp(-alpha*g)) * (u + 1)
		}
	}
}

// CutGLUBackward is GLUBackward for CutGLU. What is cut off has no gradient; what lies at the limit has one.
func CutGLUBackward(alpha, limit float64, dgu, y, dy, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			gate, up, d := gu[2*t*F+i], gu[(2*t+1)*F+i], dy[t*F+i]
			g, u := min(gate, limit), min(max(up, -limit), limit)
			s := 1 / (1 + math.Exp(-alpha*g))
			if y != nil {
				y[t*F+i] = g * s * (u + 1)
			}
			dgu[2*t*F+i], dgu[(2*t+1)*F+i] = 0, 0
			if gate <= limit {
				dgu[2*t*F+i] = d * (u + 1) * s * (1 + alpha*g*(1-s))
			}
			if up <= limit && up >= -limit {
				dgu[(2*t+1)*F+i] = d * g * s
			}
		}
	}
}
