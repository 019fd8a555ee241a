package vec

import "math"

// unit is one implementation of a gated linear unit (GLU): the forward and the gradient.
type unit struct {
	forward func(y, gate, up *float32, n int)
	grad    func(dgate, dup, dy, gate, up *float32, n int)
	gradY   func(dgate, dup, y, dy, gate, up *float32, n int) // both gradients and the result
}

func (u *unit) result(y, gate, up []float32) {
	same(len(y), len(gate), len(up))
	u.forward(first(y), first(gate), first(up), len(y))
}

func (u *unit) gradient(dgate, dup, y, dy, gate, up []float32) {
	same(len(dy), len(dgate), len(dup), len(gate), len(up))
	if y == nil {
		u.grad(first(dgate), first(dup), first(dy), first(gate), first(up), len(dy))
		return
	}
	same(len(dy), len(y))
	u.gradY(first(dgate), first(dup), first(y), first(dy), first(gate), first(up), len(dy))
}

// SwiGLU writes y = silu(gate)·up with silu(x) = x/(1+e^−x).
func SwiGLU(y, gate, up []float32) { chosen.swiglu.result(y, gate, up) }

// SwiGLUGrad writes the gradients of gate and up, given dy, the gradient of SwiGLU's result. It also writes the
// result, unless y is nil. dgate may be gate, dup may be up and y may be dy.
func SwiGLUGrad(dgate, dup, y, dy, gate, up []float32) {
	chosen.swiglu.gradient(dgate, dup, y, dy, gate, up)
}

// GeGLU writes y = gelu(gate)·up with gelu(x) = x/(1+e^−z), z = 2√(2/π)(x +
// 0.044715x³), which is ½x(1+tanh(z/2)).
func GeGLU(y, gate, up []float32) { chosen.geglu.result(y, gate, up) }

// GeGLUGrad writes the gradients for GeGLU, with arguments as in SwiGLUGrad.
func GeGLUGrad(dgate, dup, y, dy, gate, up []float32) {
	chosen.geglu.gradient(dgate, dup, y, dy, gate, up)
}

// ErfGLU writes y = gelu(gate)·up with the exact gelu(x) = x/2·(1+erf(x/√2)). That equals x/(1+e^−z), where z is the
// logit of the normal distribution at x.
func ErfGLU(y, gate, up []float32) { chosen.erfglu.result(y, gate, up) }

// ErfGLUGrad writes the gradients for ErfGLU, with arguments as in SwiGLUGrad.
func ErfGLUGrad(dgate, dup, y, dy, gate, up []float32) {
	chosen.erfglu.gradient(dgate, dup, y, dy, gate, up)
}

// Softcap writes y = limit·tanh(scale·x/limit), which lies within ±limit; y may be x.
func Softcap(y, x []float32, scale, limit float32) {
	same(len(y), len(x))
	k := scale / limit
	for i, v := range x {
		y[i] = limit * tanh(k*v)
	}
}

// SoftcapGrad takes a gradient dx through Softcap: it multiplies dx by 1 − (y/limit)², where y is the result of
// Softcap. The caller must multiply by Softcap's scale.
func SoftcapGrad(dx, y []float32, limit float32) {
	same(len(dx), len(y))
	k := 1 / limit
	for i, v := range y {
		t := k * v
		dx[i] *= (1 - t) * (1 + t)
	}
}

// tanh is the hyperbolic tangent to fp32 precision. Near 0, where an exponential would lose digits, it uses Lambert's
// continued fraction, elsewhere an exponential.
func tanh(x float32) float32 {
	z := x * x
	if z < 0.5 { // the relative error of the fraction is below 1e-9
		return x * (135135 + z*(17325+z*(378+z))) / (135135 + z*(62370+z*(3150+z*28)))
	}
	y := 1 - 2/(1+exp(2*abs(x)))
	if x < 0 {
		return -y
	}
	return y
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
