package ptx

import "math/bits"

// exec32 executes an instruction whose operands and result have 32 bits. It does so
// for all threads of the warp, also for those that do not take part: it writes to d
// alone, and the caller keeps what they had there.
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

// rare are the integer functions that few programs use. They work on one thread at
// a time.
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

// Division by zero gives all ones, and its remainder is the dividend. The
// specification leaves both open; this is what the hardware does.
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

// prmt picks four of the eight bytes of x.
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

// bfeS extracts length bits of a, from bit pos on, and extends the sign: that of the last extracted
// bit which lies inside the 32.
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

// bfi puts the low length bits of a at pos into b.
func bfi(a, b, pos, length uint32) uint32 {
	pos, length = pos&0xff, length&0xff
	if pos >= 32 {
		return b
	}
	mask := (uint64(1)<<length - 1) << pos
	return uint32(uint64(b)&^mask | uint64(a)<<pos&mask)
}
