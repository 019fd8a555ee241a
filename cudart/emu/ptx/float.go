package ptx

import "math"

const nan32 = 0x7fffffff // the NaN that arithmetic gives

func f32(x uint32) float32    { return math.Float32frombits(x) }
func bits32(x float32) uint32 { return math.Float32bits(x) }
func f64(x uint64) float64    { return math.Float64frombits(x) }
func bits64(x float64) uint64 { return math.Float64bits(x) }

// execFloat executes an f32 instruction for all threads of the warp. Results are
// rounded to nearest even. What the hardware approximates is computed in float64
// and rounded once, which is as exact as Go's functions are.
func execFloat(o op, d, a, b, c *lanes32) {
	switch o {
	case opFAdd:
		addF32(d, a, b)
	case opFSub:
		subF32(d, a, b)
	case opFMul:
		mulF32(d, a, b)
	case opFMA:
		fmaF32(d, a, b, c)
	case opFDiv:
		for i := range d {
			d[i] = bits32(f32(a[i]) / f32(b[i]))
		}
	case opFMin, opFMax, opFMinNaN, opFMaxNaN:
		minMaxLanes(o, d, a, b)
	case opFNeg:
		for i := range d {
			d[i] = a[i] ^ 1<<31
		}
	case opFAbs:
		for i := range d {
			d[i] = a[i] &^ (1 << 31)
		}
	case opFSqrt:
		for i := range d {
			d[i] = bits32(float32(math.Sqrt(float64(f32(a[i])))))
		}
	case opFRsqrt:
		for i := range d {
			d[i] = bits32(float32(1 / math.Sqrt(float64(f32(a[i])))))
		}
	case opFRcp:
		for i := range d {
			d[i] = bits32(1 / f32(a[i]))
		}
	case opFEx2:
		exp2Lanes(d, a)
	case opFLg2:
		for i := range d {
			d[i] = bits32(float32(math.Log2(float64(f32(a[i])))))
		}
	}
}

// oddSum is x + y rounded to odd: the exact sum where float64 has it, else the
// neighbour of it whose last bit is 1. Rounding the result to fewer than 52 bits
// gives what rounding the exact sum gives (Boldo, Melquiond, "Emulation of FMA and
// correctly rounded sums").
func oddSum(x, y float64) float64 {
	s := x + y
	t := s - x
	rest := (x - (s - t)) + (y - t) // Knuth's two-sum: exact
	u := math.Float64bits(s)
	if rest == 0 || rest != rest || u&1 != 0 {
		return s
	}
	if (rest > 0) == (s > 0) {
		return math.Float64frombits(u + 1)
	}
	return math.Float64frombits(u - 1)
}

// minMaxLanes executes min and max. If one operand is a NaN the result is the other
// one, or NaN with .NaN. -0 is less than +0.
func minMaxLanes(o op, d, a, b *lanes32) {
	for i := range d {
		x, y := f32(a[i]), f32(b[i])
		switch {
		case x != x || y != y:
			switch {
			case o == opFMinNaN || o == opFMaxNaN || x != x && y != y:
				d[i] = nan32
			case x != x:
				d[i] = b[i]
			default:
				d[i] = a[i]
			}
		case o == opFMin || o == opFMinNaN:
			d[i] = bits32(min(x, y))
		default:
			d[i] = bits32(max(x, y))
		}
	}
}

// wrapped executes an instruction of fam32 with its operands adjusted before it or
// its result after it.
func (w *warp) wrapped(in *inst, mask uint32) {
	a, b, c := &w.opA, &w.opB, &w.opC
	*a, *b, *c = w.r32[in.a], w.r32[in.b], w.r32[in.c]
	if in.wrap&wrapFlushIn != 0 {
		flush(a)
		flush(b)
		flush(c)
	}
	for i := range a {
		switch {
		case in.wrap&wrapSign16 != 0:
			a[i], b[i] = uint32(int32(int16(a[i]))), uint32(int32(int16(b[i])))
		case in.wrap&wrapSign8 != 0:
			a[i], b[i] = uint32(int32(int8(a[i]))), uint32(int32(int8(b[i])))
		}
	}
	d := &w.tmp32
	exec32(in, d, a, b, c, &w.r32[in.e])
	if in.wrap&wrapFlushOut != 0 {
		flush(d)
	}
	for i := range d {
		if in.wrap&wrapMask16 != 0 {
			d[i] &= 0xffff
		}
		if in.wrap&wrapMask8 != 0 {
			d[i] &= 0xff
		}
	}
	if mask == full {
		w.r32[in.d] = *d
		return
	}
	blend32(&w.r32[in.d], d, mask)
}

// flush turns denormals into zeros of the same sign.
func flush(x *lanes32) {
	for i := range x {
		if x[i]&0x7f800000 == 0 {
			x[i] &= 1 << 31
		}
	}
}

// execDouble executes an f64 instruction for all threads.
func execDouble(o op, d, a, b, c *lanes64) {
	for i := range d {
		x, y := f64(a[i]), f64(b[i])
		var v float64
		switch o {
		case opFAdd:
			v = x + y
		case opFSub:
			v = x - y
		case opFMul:
			v = x * y
		case opFMA:
			v = math.FMA(x, y, f64(c[i]))
		case opFDiv:
			v = x / y
		case opFNeg:
			v = -x
		case opFAbs:
			v = math.Abs(x)
		}
		d[i] = bits64(v)
	}
}
