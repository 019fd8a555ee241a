package ptx

import (
	"math"
	"math/bits"
)

// exec32 executes an instruction with 32-bit operands a, b, c and e and a 32-bit result d. It
// computes all 32 threads of the warp, inactive ones included, and writes only d. The caller then
// copies the results of the active threads from d to the destination register.
func exec32(in *inst, d, a, b, c, e *lanes32) {
	if in.op >= opFAdd {
		execFloat(in.op, d, a, b, c)
		return
	}
	if f := binary32[min(in.op, opCall-1)]; f != nil {
		f(d, a, b)
		return
	}
	switch in.op {
	case opMov:
		*d = *a
	case opMad:
		for i := range d {
			d[i] = a[i]*b[i] + c[i]
		}
	case opNot:
		for i := range d {
			d[i] = ^a[i]
		}
	case opCall:
		in.x.run(d, a, b, c)
	default:
		execRare(in, d, a, b, c, e)
	}
}

// rare holds the 32-bit integer functions that few programs use. Each computes the result of one thread, while
// other functions compute a whole warp.
var rare = [opCall]func(a, b, c uint32) uint32{
	opMulHiS: func(a, b, _ uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) },
	opMulHiU: func(a, b, _ uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) },
	opDivS:   divS32,
	opDivU:   divU32,
	opRemS:   remS32,
	opRemU:   remU32,
	opMinS:   func(a, b, _ uint32) uint32 { return uint32(min(int32(a), int32(b))) },
	opMinU:   func(a, b, _ uint32) uint32 { return min(a, b) },
	opMaxS:   func(a, b, _ uint32) uint32 { return uint32(max(int32(a), int32(b))) },
	opMaxU:   func(a, b, _ uint32) uint32 { return max(a, b) },
	opAbs:    func(a, _, _ uint32) uint32 { return uint32(max(int32(a), -int32(a))) },
	opNeg:    func(a, _, _ uint32) uint32 { return -a },
	opShfL: func(a, b, c uint32) uint32 {
		return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32)
	},
	opShfR:      func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> (c & 31)) },
	opShfLClamp: func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) << min(c, 32) >> 32) },
	opShfRClamp: func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> min(c, 32)) },
	opBfeU:      func(a, b, c uint32) uint32 { return uint32(uint64(a) >> (b & 0xff) & (uint64(1)<<(c&0xff) - 1)) },
	opBfeS:      func(a, b, c uint32) uint32 { return uint32(bfeS(int64(int32(a)), b, c)) },
	opPopc:      func(a, _, _ uint32) uint32 { return uint32(bits.OnesCount32(a)) },
	opClz:       func(a, _, _ uint32) uint32 { return uint32(bits.LeadingZeros32(a)) },
}

func execRare(in *inst, d, a, b, c, e *lanes32) {
	switch in.op {
	case opPrmt:
		for i := range d {
			d[i] = prmt(uint64(b[i])<<32|uint64(a[i]), c[i])
		}
	case opBfi:
		for i := range d {
			d[i] = bfi(a[i], b[i], c[i], e[i])
		}
	case opMaxS:
		for i := range d {
			d[i] = uint32(max(int32(a[i]), int32(b[i])))
		}
	case opMinS:
		for i := range d {
			d[i] = uint32(min(int32(a[i]), int32(b[i])))
		}
	default:
		f := rare[in.op]
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

func b32(x bool) uint32 {
	if x {
		return 1
	}
	return 0
}

// Division by zero returns all ones, and the remainder is the dividend. PTX leaves both undefined; the hardware
// returns these values.
func divU32(a, b, _ uint32) uint32 {
	if b == 0 {
		return full
	}
	return a / b
}

func remU32(a, b, _ uint32) uint32 {
	if b == 0 {
		return a
	}
	return a % b
}

func divS32(a, b, _ uint32) uint32 {
	if b == 0 {
		return full
	}
	return uint32(int32(a) / int32(b))
}

func remS32(a, b, _ uint32) uint32 {
	if b == 0 {
		return a
	}
	return uint32(int32(a) % int32(b))
}

// prmt composes four bytes from the eight bytes of x. Each 4-bit field of sel chooses one result byte: its low
// three bits number a byte of x. If its top bit is set, the result byte is filled with that byte's sign bit.
func prmt(x uint64, sel uint32) uint32 {
	var d uint32
	for j := range 4 {
		s := sel >> (4 * j)
		v := uint32(uint8(x >> (8 * (s & 7))))
		if s&8 != 0 {
			v = uint32(uint8(int8(v) >> 7))
		}
		d |= v << (8 * j)
	}
	return d
}

// bfeS extracts length bits of a, from bit pos up, and sign-extends them. The sign is the highest extracted bit;
// bits from 32 up do not count.
func bfeS(a int64, pos, length uint32) int64 {
	pos, length = pos&0xff, length&0xff
	if length == 0 {
		return 0
	}
	last := min(pos+length-1, 31)
	sign := a >> last & 1
	if pos > last {
		return -sign
	}
	n := last - pos + 1
	return a >> pos << (64 - n) >> (64 - n)
}

// bfi returns b with its bits from pos up replaced by the low length bits of a.
func bfi(a, b, pos, length uint32) uint32 {
	pos, length = pos&0xff, length&0xff
	if pos >= 32 {
		return b
	}
	mask := (uint64(1)<<length - 1) << pos
	return uint32(uint64(b)&^mask | uint64(a)<<pos&mask)
}

// exec64 executes an instruction with 64-bit operands and a 64-bit result for all threads of the warp. Shift amounts
// are 32-bit.
func exec64(in *inst, d *lanes64, w *warp) {
	if in.op >= opFAdd {
		execDouble(in.op, d, &w.r64[in.a], &w.r64[in.b], &w.r64[in.c])
		return
	}
	a := &w.r64[in.a]
	switch in.op {
	case opShl, opShrU, opShrS:
		shift64(in.op, d, a, &w.r32[in.b])
		return
	}
	b := &w.r64[in.b]
	switch in.op {
	case opMov:
		*d = *a
	case opAdd:
		add64(d, a, b)
	case opSub:
		for i := range d {
			d[i] = a[i] - b[i]
		}
	case opMul:
		for i := range d {
			d[i] = a[i] * b[i]
		}
	case opMad:
		c := &w.r64[in.c]
		for i := range d {
			d[i] = a[i]*b[i] + c[i]
		}
	case opAnd:
		for i := range d {
			d[i] = a[i] & b[i]
		}
	case opOr:
		for i := range d {
			d[i] = a[i] | b[i]
		}
	case opXor:
		for i := range d {
			d[i] = a[i] ^ b[i]
		}
	case opNot:
		for i := range d {
			d[i] = ^a[i]
		}
	default:
		f, c := rare64[in.op], &w.r64[in.c]
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

func shift64(o op, d, a *lanes64, n *lanes32) {
	switch o {
	case opShl:
		for i := range d {
			d[i] = a[i] << n[i]
		}
	case opShrU:
		for i := range d {
			d[i] = a[i] >> n[i]
		}
	case opShrS:
		for i := range d {
			d[i] = uint64(int64(a[i]) >> n[i])
		}
	}
}

// rare64 holds the 64-bit integer functions that few programs use. Each computes the result of one thread.
var rare64 = [opCall]func(a, b, c uint64) uint64{
	opDivS: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return ^uint64(0)
		}
		return uint64(int64(a) / int64(b))
	},
	opDivU: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return ^uint64(0)
		}
		return a / b
	},
	opRemS: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return a
		}
		return uint64(int64(a) % int64(b))
	},
	opRemU: func(a, b, _ uint64) uint64 {
		if b == 0 {
			return a
		}
		return a % b
	},
	opMinS: func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) },
	opMinU: func(a, b, _ uint64) uint64 { return min(a, b) },
	opMaxS: func(a, b, _ uint64) uint64 { return uint64(max(int64(a), int64(b))) },
	opMaxU: func(a, b, _ uint64) uint64 { return max(a, b) },
	opAbs:  func(a, _, _ uint64) uint64 { return uint64(max(int64(a), -int64(a))) },
	opNeg:  func(a, _, _ uint64) uint64 { return -a },
}

// mixed executes, for the threads of mask, an instruction of famMixed: one whose operands and
// result differ in width, such as mul.wide.
func (w *warp) mixed(in *inst, mask uint32) {
	switch in.op {
	case opMulWideS, opMulWideU, opSelp64, opPack64, opZeroHigh, opSignHigh, opBits64, opClock64:
		d := &w.r64[in.d]
		if mask != full {
			d = &w.tmp64
		}
		w.mixed64(in, d)
		if mask != full {
			blend64(&w.r64[in.d], d, mask)
		}
	case opUnpack64, opUnpack32:
		w.unpack(in, mask)
	default:
		d := &w.r32[in.d]
		if mask != full {
			d = &w.tmp32
		}
		w.mixed32(in, d)
		if mask != full {
			blend32(&w.r32[in.d], d, mask)
		}
	}
}

// mixed64 executes an instruction of famMixed whose result d has 64 bits, for all threads.
func (w *warp) mixed64(in *inst, d *lanes64) {
	switch in.op {
	case opMulWideS:
		mulWideS(d, &w.r32[in.a], &w.r32[in.b])
	case opMulWideU:
		mulWideU(d, &w.r32[in.a], &w.r32[in.b])
	case opSelp64:
		a, b, p := &w.r64[in.a], &w.r64[in.b], w.preds[in.c]
		for i := range d {
			if p>>i&1 != 0 {
				d[i] = a[i]
			} else {
				d[i] = b[i]
			}
		}
	case opPack64:
		a, b := &w.r32[in.a], &w.r32[in.b]
		for i := range d {
			d[i] = uint64(b[i])<<32 | uint64(a[i])
		}
	case opZeroHigh:
		a := &w.r32[in.a]
		for i := range d {
			d[i] = uint64(a[i])
		}
	case opSignHigh:
		a := &w.r32[in.a]
		for i := range d {
			d[i] = uint64(int64(int32(a[i])))
		}
	case opBits64:
		p := w.preds[in.a]
		for i := range d {
			d[i] = -uint64(p >> i & 1)
		}
	case opClock64:
		for i := range d {
			d[i] = uint64(w.steps)
		}
	}
}

// mixed32 executes an instruction of famMixed whose result d has 32 bits, for all threads.
func (w *warp) mixed32(in *inst, d *lanes32) {
	switch in.op {
	case opSelp32:
		a, b, p := &w.r32[in.a], &w.r32[in.b], w.preds[in.c]
		for i := range d {
			if p>>i&1 != 0 {
				d[i] = a[i]
			} else {
				d[i] = b[i]
			}
		}
	case opLow:
		a := &w.r64[in.a]
		for i := range d {
			d[i] = uint32(a[i])
		}
	case opPack32:
		a, b := &w.r32[in.a], &w.r32[in.b]
		for i := range d {
			d[i] = b[i]<<16 | a[i]&0xffff
		}
	case opBits32:
		p := w.preds[in.a]
		for i := range d {
			d[i] = uint32(in.imm) * (p >> i & 1)
		}
	case opPopc64:
		for i, a := range &w.r64[in.a] {
			d[i] = uint32(bits.OnesCount64(a))
		}
	case opClz64:
		for i, a := range &w.r64[in.a] {
			d[i] = uint32(bits.LeadingZeros64(a))
		}
	case opClock32:
		for i := range d {
			d[i] = uint32(w.steps)
		}
	case opClockHigh:
		for i := range d {
			d[i] = uint32(w.steps / w.block.launch.period())
		}
	}
}

// unpack splits register a into its lower half (to register d) and its upper half (to register e),
// for the threads of mask.
func (w *warp) unpack(in *inst, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask)
		switch in.op {
		case opUnpack64:
			v := w.r64[in.a][i]
			w.r32[in.d][i], w.r32[in.e][i] = uint32(v), uint32(v>>32)
		case opUnpack32:
			v := w.r32[in.a][i]
			w.r32[in.d][i], w.r32[in.e][i] = v&0xffff, v>>16
		}
	}
}

const nan32 = 0x7fffffff // the NaN that arithmetic returns

func f32(x uint32) float32    { return math.Float32frombits(x) }
func bits32(x float32) uint32 { return math.Float32bits(x) }
func f64(x uint64) float64    { return math.Float64frombits(x) }
func bits64(x float64) uint64 { return math.Float64bits(x) }

// execFloat executes an f32 instruction for all threads of the warp. Results are rounded to nearest even. Instructions
// that the hardware approximates are computed in float64 and rounded once, with the accuracy of Go's functions.
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

// oddSum returns x + y rounded to odd: the exact sum if float64 can represent it, otherwise the neighbour whose
// last bit is 1. Rounding the result again, to fewer than 52 bits, gives the same as rounding the exact sum once.
// Source: Boldo, Melquiond, "Emulation of FMA and correctly rounded sums".
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

// minMaxLanes executes min and max of f32. If one operand is a NaN, the result is the other operand; with the
// modifier .NaN it is NaN. -0 is less than +0.
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

// wrapped executes an instruction of famWrapped. Such an instruction is computed in 32 bits, with
// conversions of operands and result that inst.wrap selects, such as flushing denormals or
// narrowing to 16 bits.
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

// flush replaces denormals by zeros of the same sign.
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
