package ptx

import (
	"math"
	"math/bits"
	"strings"
)

// conversion is what a cvt does. It converts one thread's value at a time, by way
// of an int64, a uint64 or a float64.
type conversion struct {
	from, to string
	how      rounding
	integer  bool // a float is rounded to an integer and stays a float
	flush    bool
	saturate bool
	relu     bool
	regBytes int // of the destination register
	lanes    func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64)
	to64     bool
	from64   bool
	pair     bool // bf16x2 or f16x2: a becomes the high half, b the low one
}

// convert executes cvt.
func (w *warp) convert(in *inst, mask uint32) {
	c := in.x.convert
	a32, a64 := &w.r32[0], &w.r64[0]
	if c.from64 {
		a64 = &w.r64[in.a]
	} else {
		a32 = &w.r32[in.a]
	}
	d32, d64 := &w.tmp32, &w.tmp64
	if mask == full && c.to64 {
		d64 = &w.r64[in.d]
	} else if mask == full {
		d32 = &w.r32[in.d]
	}
	switch {
	case c.pair:
		b := &w.r32[in.b]
		for i := range d32 {
			d32[i] = c.small(a32[i])<<16 | c.small(b[i])
		}
	case c.lanes != nil:
		c.lanes(d32, d64, a32, a64)
	case c.to64:
		for i := range d64 {
			d64[i] = c.one(a32[i], a64[i])
		}
	default:
		for i := range d32 {
			d32[i] = uint32(c.one(a32[i], a64[i]))
		}
	}
	if mask != full && c.to64 {
		blend64(&w.r64[in.d], d64, mask)
	} else if mask != full {
		blend32(&w.r32[in.d], d32, mask)
	}
}

// small converts f32 to bf16 or f16.
func (c *conversion) small(x uint32) uint32 {
	if c.relu && (f32(x) < 0 || x == 1<<31) {
		x = 0
	}
	if strings.HasPrefix(c.to, "bf16") {
		return brain(x, c.how)
	}
	return half(float64(f32(x)), c.how)
}

// one converts one value; a32 or a64 has its bits.
func (c *conversion) one(a32 uint32, a64 uint64) uint64 {
	if c.to == "bf16" && c.from == "f32" || c.to == "f16" && c.from == "f32" {
		return uint64(c.small(a32))
	}
	if isFloat(c.from) {
		return c.fromFloat(c.value(a32, a64))
	}
	v := a64
	if !c.from64 {
		v = extend(uint64(a32), c.from)
	}
	if isFloat(c.to) {
		return c.integerToFloat(v)
	}
	return c.integers(v)
}

func isFloat(t string) bool  { return t[0] == 'f' || t == "bf16" || t == "tf32" }
func isSigned(t string) bool { return t[0] == 's' }

// extend widens the low bits of v to 64 bits, as the type t says.
func extend(v uint64, t string) uint64 {
	n := 64 - 8*typeBytes(t)
	if isSigned(t) {
		return uint64(int64(v<<n) >> n)
	}
	return v << n >> n
}

func (c *conversion) value(a32 uint32, a64 uint64) float64 {
	switch c.from {
	case "f64":
		return f64(a64)
	case "bf16":
		return float64(f32(a32 << 16))
	case "f16":
		return unhalf(a32)
	}
	if c.flush && a32&0x7f800000 == 0 {
		a32 &= 1 << 31
	}
	return float64(f32(a32))
}

// fromFloat converts v to the destination type.
func (c *conversion) fromFloat(v float64) uint64 {
	if !isFloat(c.to) {
		return c.floatToInteger(integral(v, c.how))
	}
	if c.integer {
		v = integral(v, c.how)
	}
	if c.saturate {
		v = min(max(v, 0), 1)
		if v != v {
			v = 0
		}
	}
	switch c.to {
	case "f64":
		return bits64(v)
	case "f16":
		return uint64(half(v, c.how))
	case "bf16":
		return uint64(brain(bits32(float32(v)), c.how))
	case "tf32":
		return uint64((bits32(float32(v)) + 0x1000) &^ 0x1fff)
	}
	if v != v {
		return nan32
	}
	x := bits32(narrow(v, c.how))
	if c.flush && x&0x7f800000 == 0 {
		x &= 1 << 31
	}
	return uint64(x)
}

// floatToInteger clamps v to the range of the type. A NaN gives 0 where the type
// has 32 bits or fewer; with 64 bits it gives the smallest integer, or 2^63 without
// a sign. The hardware does the same.
func (c *conversion) floatToInteger(v float64) uint64 {
	n := 8 * typeBytes(c.to)
	if v != v {
		if n == 64 {
			return 1 << 63
		}
		return 0
	}
	if isSigned(c.to) {
		limit := math.Ldexp(1, n-1)
		if v >= limit {
			return c.keep(uint64(1)<<(n-1) - 1)
		}
		return c.keep(uint64(int64(max(v, -limit))))
	}
	if v >= math.Ldexp(1, n) {
		return c.keep(^uint64(0) >> (64 - n))
	}
	return c.keep(uint64(max(v, 0)))
}

// keep fits v, which has been extended to 64 bits, into the destination register.
func (c *conversion) keep(v uint64) uint64 {
	v = extend(v, c.to)
	if n := 64 - 8*c.regBytes; n > 0 {
		v = v << n >> n
	}
	return v
}

func (c *conversion) integers(v uint64) uint64 {
	if !c.saturate {
		return c.keep(v)
	}
	n := 8 * typeBytes(c.to)
	negative := isSigned(c.from) && int64(v) < 0
	if isSigned(c.to) {
		top := uint64(1)<<(n-1) - 1
		if negative {
			return c.keep(uint64(max(int64(v), -int64(top)-1)))
		}
		return c.keep(min(v, top))
	}
	if negative {
		return 0
	}
	return c.keep(min(v, ^uint64(0)>>(64-n)))
}

func (c *conversion) integerToFloat(v uint64) uint64 {
	negative := isSigned(c.from) && int64(v) < 0
	m := v
	if negative {
		m = -v
	}
	if c.to == "f64" {
		return bits64(integerToDouble(m, negative, c.how))
	}
	if shift := bits.Len64(m) - 53; shift > 0 { // rounded to odd, to 53 bits
		lost := m & (uint64(1)<<shift - 1)
		m = m >> shift << shift
		if lost != 0 {
			m |= uint64(1) << shift
		}
	}
	x := float64(m)
	if negative {
		x = -x
	}
	switch c.to {
	case "f16":
		return uint64(half(x, c.how))
	case "bf16":
		return uint64(brain(bits32(float32(x)), c.how))
	}
	return uint64(bits32(narrow(x, c.how)))
}

func integerToDouble(m uint64, negative bool, how rounding) float64 {
	x := float64(m)
	if back := x; how != toNearest && back < 0x1p64 && uint64(back) != m || how != toNearest && back >= 0x1p64 {
		larger := back >= 0x1p64 || uint64(back) > m
		up := how == toPlus && !negative || how == toMinus && negative
		if larger && !up {
			x = math.Nextafter(x, 0)
		} else if !larger && up {
			x = math.Nextafter(x, math.Inf(1))
		}
	}
	if negative {
		return -x
	}
	return x
}
