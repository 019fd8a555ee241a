package ptx

import (
	"math"

	"mt/base/bf16"
)

// conversion is a decoded cvt from type from to type to. Float results are rounded to nearest even.
type conversion struct {
	from, to string
	integral func(float64) float64 // rounds a float to an integer; nil: no rounding
	flush    bool
	regBytes int // size of the destination register
	lanes    func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64)
	to64     bool
	from64   bool
	pair     bool // bf16x2: a is the high half, b the low half
}

// integrals are the modifiers of cvt that round a float to an integer.
var integrals = map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}

// convert executes cvt, the conversion of a value to another type, for the threads of mask.
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
			d32[i] = brain(a32[i])<<16 | brain(b[i])
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

// brain rounds a float32 to bfloat16. A NaN becomes 0x7fff.
func brain(x uint32) uint32 {
	if x&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return uint32(bf16.Round(f32(x)))
}

// one makes the conversion for one thread and returns the result's bits. The value's bits are in
// a64 if the source register has 64 bits, otherwise in a32.
func (c *conversion) one(a32 uint32, a64 uint64) uint64 {
	if c.to == "bf16" {
		return uint64(brain(a32))
	}
	if isFloat(c.from) {
		return c.fromFloat(c.value(a32, a64))
	}
	v := a64
	if !c.from64 {
		v = extend(uint64(a32), c.from)
	}
	if !isFloat(c.to) {
		return c.keep(v)
	}
	signed := isSigned(c.from)
	switch {
	case c.to == "f64" && signed:
		return bits64(float64(int64(v)))
	case c.to == "f64":
		return bits64(float64(v))
	case signed:
		return uint64(bits32(float32(int64(v))))
	}
	return uint64(bits32(float32(v)))
}

func isFloat(t string) bool  { return t[0] == 'f' || t == "bf16" || t == "bf16x2" }
func isSigned(t string) bool { return t[0] == 's' }

// extend takes the low bits of v as a value of type t and extends it to 64 bits: with its sign if t is signed,
// otherwise with zeros.
func extend(v uint64, t string) uint64 {
	n := 64 - 8*typeBytes(t)
	if isSigned(t) {
		return uint64(int64(v<<n) >> n)
	}
	return v << n >> n
}

func (c *conversion) value(a32 uint32, a64 uint64) float64 {
	if c.from == "f64" {
		return f64(a64)
	}
	if c.flush && a32&0x7f800000 == 0 {
		a32 &= 1 << 31
	}
	return float64(f32(a32))
}

// fromFloat converts v to the destination type.
func (c *conversion) fromFloat(v float64) uint64 {
	if c.integral != nil {
		v = c.integral(v)
	}
	switch {
	case !isFloat(c.to):
		return c.floatToInteger(v)
	case c.to == "f64":
		return bits64(v)
	case v != v:
		return nan32
	}
	x := bits32(float32(v))
	if c.flush && x&0x7f800000 == 0 {
		x &= 1 << 31
	}
	return uint64(x)
}

// floatToInteger converts v to an integer and saturates it to the range of the type. NaN becomes 0 for types of at
// most 32 bits, and 2^63 for 64-bit types, signed or not. The hardware does the same.
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

// keep returns the result v of a conversion as the destination register holds it. The register may be wider than
// the type: v is then sign- or zero-extended.
func (c *conversion) keep(v uint64) uint64 {
	v = extend(v, c.to)
	if n := 64 - 8*c.regBytes; n > 0 {
		v = v << n >> n
	}
	return v
}

// fast returns a function that makes the conversion for all 32 threads at once; nil: the conversion is uncommon,
// and the threads are converted one by one.
func (c *conversion) fast() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if c.flush || c.integral != nil {
		return nil
	}
	if !isFloat(c.from) && !isFloat(c.to) {
		return c.fastInteger()
	}
	switch c.to + "." + c.from {
	case "f32.s32":
		return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d32 {
				d32[i] = bits32(float32(int32(a32[i])))
			}
		}
	case "f32.u32":
		return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d32 {
				d32[i] = bits32(float32(a32[i]))
			}
		}
	case "f64.f32":
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = bits64(float64(f32(a32[i])))
			}
		}
	case "f32.f64":
		return func(d32 *lanes32, _ *lanes64, _ *lanes32, a64 *lanes64) {
			for i := range d32 {
				d32[i] = bits32(float32(f64(a64[i])))
			}
		}
	}
	return nil
}

// fastInteger returns the function of fast for conversions between integer types.
func (c *conversion) fastInteger() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if c.from64 || typeBytes(c.to) < typeBytes(c.from) {
		return c.narrowing()
	}
	if typeBytes(c.from) != 4 {
		return nil
	}
	switch {
	case c.to64 && isSigned(c.from):
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = uint64(int64(int32(a32[i])))
			}
		}
	case c.to64:
		return func(_ *lanes32, d64 *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d64 {
				d64[i] = uint64(a32[i])
			}
		}
	}
	return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) { *d32 = *a32 }
}

// narrowing returns the function of fast for conversions to a narrower integer type, which drop the
// upper bits.
func (c *conversion) narrowing() func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
	if isFloat(c.from) || isFloat(c.to) {
		return nil
	}
	if c.from64 && !c.to64 && typeBytes(c.to) == 4 && typeBytes(c.from) == 8 {
		return func(d32 *lanes32, _ *lanes64, _ *lanes32, a64 *lanes64) {
			for i := range d32 {
				d32[i] = uint32(a64[i])
			}
		}
	}
	if !c.from64 && !c.to64 && c.to == "u16" {
		return func(d32 *lanes32, _ *lanes64, a32 *lanes32, _ *lanes64) {
			for i := range d32 {
				d32[i] = a32[i] & 0xffff
			}
		}
	}
	return func(d32 *lanes32, d64 *lanes64, a32 *lanes32, a64 *lanes64) {
		for i := range d32 {
			v := uint64(a32[i])
			if c.from64 {
				v = a64[i]
			}
			v = c.keep(extend(v, c.from))
			if c.to64 {
				d64[i] = v
			} else {
				d32[i] = uint32(v)
			}
		}
	}
}
