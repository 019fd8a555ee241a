package oracle

import "math"

// Activation returns the value of a function at x and its slope there.
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

// Sigmoid is 1/(1+e^−x).
func Sigmoid(x float64) (y, slope float64) {
	s := 1 / (1 + math.Exp(-x))
	return s, s * (1 - s)
}

// Softcap is limit·tanh(x/limit) and its slope; where limit is 0 it is x itself.
func Softcap(x, limit float64) (y, slope float64) {
	if limit == 0 {
		return x, 1
	}
	t := math.Tanh(x / limit)
	return limit * t, 1 - t*t
}

// GLU sets y (T, F) to f(gate)·up, of gu (T, 2F).
func GLU(f Activation, y, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, _ := f(gu[2*t*F+i])
			y[t*F+i] = g * gu[(2*t+1)*F+i]
		}
	}
}

// GLUBackward overwrites dgu, which may be gu, and y unless that is nil; y may be
// dy.
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

// ActivateBackward overwrites dx, which may be x, and y unless that is nil; y may be dy.
func ActivateBackward(f Activation, dx, y, dy, x []float64) {
	for i, d := range dy {
		v, slope := f(x[i])
		if y != nil {
			y[i] = v
		}
		dx[i] = d * slope
	}
}
