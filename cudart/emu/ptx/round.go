package ptx

import (
	"math"

	"mt/internal/bfloat"
)

// rounding says how a result that has too many bits is rounded.
type rounding uint8

const (
	toNearest rounding = iota
	toZero
	toMinus
	toPlus
	toNearestAway // rna
)

// roundings are the modifiers that say how floating-point results are rounded;
// those that end in i round to an integer.
var roundings = map[string]rounding{
	"rn": toNearest, "rz": toZero, "rm": toMinus, "rp": toPlus, "rna": toNearestAway,
	"rni": toNearest, "rzi": toZero, "rmi": toMinus, "rpi": toPlus,
}

// narrow rounds x to float32. Where x stands for an exact value that float64 cannot
// hold, x must have been rounded to odd.
func narrow(x float64, how rounding) float32 {
	v := float32(x)
	if how == toNearest || x != x || float64(v) == x {
		return v
	}
	up := how == toPlus || how == toZero && x < 0 // to the larger of the two numbers around x
	switch {
	case up && float64(v) < x:
		return math.Nextafter32(v, float32(math.Inf(1)))
	case !up && float64(v) > x:
		return math.Nextafter32(v, float32(math.Inf(-1)))
	}
	return v
}

// integral rounds x to an integer.
func integral(x float64, how rounding) float64 {
	switch how {
	case toZero:
		return math.Trunc(x)
	case toMinus:
		return math.Floor(x)
	case toPlus:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// brain rounds float32 to bfloat16; NaN becomes 0x7fff.
func brain(x uint32, how rounding) uint32 {
	if x&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	switch {
	case how == toNearest:
		return uint32(bfloat.Round(f32(x)))
	case how == toMinus && x>>31 == 1 || how == toPlus && x>>31 == 0:
		return (x + 0xffff) >> 16
	}
	return x >> 16
}

// half rounds to float16; NaN becomes 0x7fff.
func half(x float64, how rounding) uint32 {
	if x != x {
		return 0x7fff
	}
	sign := uint32(math.Float64bits(x) >> 63 << 15)
	m := math.Abs(x)
	if sign != 0 {
		how = map[rounding]rounding{toMinus: toPlus, toPlus: toMinus}[how]
	}
	if math.IsInf(m, 0) {
		return sign | 0x7c00
	}
	_, e := math.Frexp(m)
	unit := math.Ldexp(1, max(e-11, -24)) // the value of the last place
	n := integral(m/unit, how)
	v := n * unit
	switch {
	case v > 65504 && (how == toZero || how == toMinus):
		return sign | 0x7bff
	case v > 65504:
		return sign | 0x7c00
	case v < 0x1p-14:
		return sign | uint32(v*0x1p24)
	}
	_, e = math.Frexp(v)
	return sign | uint32(e+14)<<10 | uint32(math.Ldexp(v, 11-e))&0x3ff
}

// unhalf is the value of a float16.
func unhalf(h uint32) float64 {
	m, e := float64(h&0x3ff), int(h>>10&31)
	var v float64
	switch {
	case e == 31 && m != 0:
		return math.NaN()
	case e == 31:
		v = math.Inf(1)
	case e == 0:
		v = m * 0x1p-24
	default:
		v = math.Ldexp(1024+m, e-25)
	}
	if h>>15&1 != 0 {
		return -v
	}
	return v
}

// directed is the function of an f32 instruction that rounds otherwise than to
// nearest, nil where there is none.
func directed(o op, how rounding) func(d, a, b, c *lanes32) {
	f := map[op]func(x, y, z float64) float64{
		opFAdd:  func(x, y, _ float64) float64 { return oddSum(x, y) },
		opFSub:  func(x, y, _ float64) float64 { return oddSum(x, -y) },
		opFMul:  func(x, y, _ float64) float64 { return x * y },
		opFMA:   func(x, y, z float64) float64 { return oddSum(x*y, z) },
		opFDiv:  func(x, y, _ float64) float64 { return oddQuotient(x, y) },
		opFRcp:  func(x, _, _ float64) float64 { return oddQuotient(1, x) },
		opFSqrt: func(x, _, _ float64) float64 { return oddRoot(x) },
	}[o]
	if f == nil {
		return nil
	}
	return func(d, a, b, c *lanes32) {
		for i := range d {
			d[i] = bits32(narrow(f(float64(f32(a[i])), float64(f32(b[i])), float64(f32(c[i]))), how))
		}
	}
}

// oddQuotient is x/y rounded to odd.
func oddQuotient(x, y float64) float64 {
	q := x / y
	if math.IsInf(q, 0) || q != q || math.IsInf(y, 0) {
		return q
	}
	rest := -math.FMA(q, y, -x) // x - q·y, exact
	return towards(q, rest, (rest > 0) == (y > 0))
}

// oddRoot is √x rounded to odd.
func oddRoot(x float64) float64 {
	q := math.Sqrt(x)
	if math.IsInf(q, 0) || q != q {
		return q
	}
	rest := -math.FMA(q, q, -x)
	return towards(q, rest, rest > 0)
}

// towards makes the last bit of q odd when there is a rest; more says that the
// exact value is larger than q.
func towards(q, rest float64, more bool) float64 {
	u := math.Float64bits(q)
	if rest == 0 || u&1 != 0 {
		return q
	}
	if more == (q > 0) {
		return math.Float64frombits(u + 1)
	}
	return math.Float64frombits(u - 1)
}
