package jinja

import (
	"math"
	"math/big"
)

// maxBits bounds integers, which Python lets grow without end.
const maxBits = 1 << 14

// small is i op j where neither they nor the result is far from zero.
func small(op string, i, j int64) (int64, bool) {
	const far = 1 << 31
	if i < -far || i > far || j < -far || j > far {
		return 0, false
	}
	switch op {
	case "+":
		return i + j, true
	case "-":
		return i - j, true
	case "*":
		return i * j, true
	}
	if i < 0 || j <= 0 {
		return 0, false
	}
	switch op {
	case "//":
		return i / j, true
	case "%":
		return i % j, true
	}
	return 0, false
}

// integer is a op b for integers, x and y their values.
func (r *run) integer(op string, a, b any, x, y *big.Int) any {
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		r.grow(x.BitLen() + y.BitLen())
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			r.fail("integer division or modulo by zero")
		}
		rest := new(big.Int)
		z.QuoRem(x, y, rest)
		if rest.Sign() != 0 && rest.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			z = rest
		}
	case "**":
		if y.Sign() < 0 {
			f, _ := asFloat(a)
			g, _ := asFloat(b)
			return r.float(op, f, g)
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > int64(maxBits/(x.BitLen()-1))) {
			r.fail("the result of ** is too large an integer")
		}
		z.Exp(x, y, nil)
	}
	if z.BitLen() > maxBits {
		r.fail("the result of %s is too large an integer", op)
	}
	return shrink(z)
}

// float is f op g.
func (r *run) float(op string, f, g float64) any {
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "**":
		return r.power(f, g)
	}
	if g == 0 {
		r.fail("division by zero")
	}
	if op == "/" {
		return f / g
	}
	rest := math.Mod(f, g)
	quotient := (f - rest) / g
	if rest != 0 {
		if (g < 0) != (rest < 0) {
			rest += g
			quotient--
		}
	} else {
		rest = math.Copysign(0, g)
	}
	if op == "%" {
		return rest
	}
	if quotient == 0 {
		return math.Copysign(0, f/g)
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole
}

func (r *run) power(f, g float64) any {
	if f == 0 && g < 0 {
		r.fail("0.0 cannot be raised to a negative power")
	}
	if f < 0 && !math.IsInf(f, 0) && g != math.Trunc(g) && !math.IsInf(g, 0) {
		r.fail("a negative number to the power of a fraction is complex, which is not supported")
	}
	p := math.Pow(f, g)
	if math.IsInf(p, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) {
		r.fail("the result of ** is too large a float")
	}
	return p
}

// intOf is f as an integer value: int64, or *big.Int where that is too small. f
// is finite and whole.
func intOf(f float64) any {
	if math.Abs(f) < 1<<63 {
		return int64(f)
	}
	b, _ := big.NewFloat(f).Int(nil)
	return b
}
