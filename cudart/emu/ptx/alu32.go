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
	case opLop3:
		lop3(uint8(in.imm), d, a, b, c)
	case opCall:
		in.x.run(d, a, b, c)
	default:
		execRare(in, d, a, b, c, e)
	}
}

// lop3 computes any bitwise function of three operands: its result for the bits a,
// b and c is bit (a<<2 | b<<1 | c) of table.
func lop3(table uint8, d, a, b, c *lanes32) {
	var m [8]uint32
	for j := range m {
		m[j] = -uint32(table >> j & 1)
	}
	for i := range d {
		x, y, z := a[i], b[i], c[i]
		ny := m[0]&^z | m[1]&z
		py := m[2]&^z | m[3]&z
		nx := ny&^y | py&y
		ny = m[4]&^z | m[5]&z
		py = m[6]&^z | m[7]&z
		px := ny&^y | py&y
		d[i] = nx&^x | px&x
	}
}

// rare are the integer functions that few programs use. They work on one thread at
// a time.
var rare = [opCall]func(a, b, c uint32) uint32{
	opMulHiS: func(a, b, _ uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) },
	opMulHiU: func(a, b, _ uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) },
	opMadHiS: func(a, b, c uint32) uint32 { return uint32(int64(int32(a))*int64(int32(b))>>32) + c },
	opMadHiU: func(a, b, c uint32) uint32 { return uint32(uint64(a)*uint64(b)>>32) + c },
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
	opCnot:   func(a, _, _ uint32) uint32 { return b32(a == 0) },
	opShfL: func(a, b, c uint32) uint32 {
		return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32)
	},
	opShfR:      func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> (c & 31)) },
	opShfLClamp: func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) << min(c, 32) >> 32) },
	opShfRClamp: func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> min(c, 32)) },
	opBfeU:      func(a, b, c uint32) uint32 { return uint32(bfeU(uint64(a), b, c)) },
	opBfeS:      func(a, b, c uint32) uint32 { return uint32(bfeS(int64(int32(a)), b, c, 32)) },
	opPopc:      func(a, _, _ uint32) uint32 { return uint32(bits.OnesCount32(a)) },
	opClz:       func(a, _, _ uint32) uint32 { return uint32(bits.LeadingZeros32(a)) },
	opBrev:      func(a, _, _ uint32) uint32 { return bits.Reverse32(a) },
	opFindU:     func(a, _, _ uint32) uint32 { return uint32(31 - bits.LeadingZeros32(a)) },
	opFindS: func(a, _, _ uint32) uint32 {
		return uint32(31 - bits.LeadingZeros32(a^uint32(int32(a)>>31)))
	},
	opSadS: func(a, b, c uint32) uint32 {
		return c + uint32(max(int64(int32(a))-int64(int32(b)), int64(int32(b))-int64(int32(a))))
	},
	opSadU:     func(a, b, c uint32) uint32 { return c + max(a, b) - min(a, b) },
	opAddSat:   func(a, b, _ uint32) uint32 { return clamp32(int64(int32(a)) + int64(int32(b))) },
	opSubSat:   func(a, b, _ uint32) uint32 { return clamp32(int64(int32(a)) - int64(int32(b))) },
	opMulHi16S: func(a, b, _ uint32) uint32 { return uint32(int32(a) * int32(b) >> 16) },
	opMulHi16U: func(a, b, _ uint32) uint32 { return a * b >> 16 },
	opMul24S:   func(a, b, c uint32) uint32 { return uint32(int32(a<<8)>>8*(int32(b<<8)>>8)) + c },
	opMul24U:   func(a, b, c uint32) uint32 { return a&0xffffff*(b&0xffffff) + c },
}

func execRare(in *inst, d, a, b, c, e *lanes32) {
	switch in.op {
	case opPrmt:
		for i := range d {
			d[i] = prmt(uint64(b[i])<<32|uint64(a[i]), c[i], in.imm)
		}
	case opBfi:
		for i := range d {
			d[i] = uint32(bfi(uint64(a[i]), uint64(b[i]), c[i], e[i], 32))
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

func clamp32(x int64) uint32 { return uint32(int32(max(min(x, 1<<31-1), -1<<31))) }

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

// prmt picks four of the eight bytes of x. Mode 0 is the general one; the others
// are f4e, b4e, rc8, ecl, ecr and rc16, whose selector has two bits.
func prmt(x uint64, sel uint32, mode int64) uint32 {
	if mode != 0 {
		sel = prmtModes[mode-1][sel&3]
	}
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

var prmtModes = [6][4]uint32{
	{0x3210, 0x4321, 0x5432, 0x6543}, // f4e
	{0x5670, 0x6701, 0x7012, 0x0123}, // b4e
	{0x0000, 0x1111, 0x2222, 0x3333}, // rc8
	{0x3210, 0x3211, 0x3222, 0x3333}, // ecl
	{0x0000, 0x1110, 0x2210, 0x3210}, // ecr
	{0x1010, 0x3232, 0x1010, 0x3232}, // rc16
}

// bfeU extracts length bits of a, from bit pos on.
func bfeU(a uint64, pos, length uint32) uint64 {
	pos, length = pos&0xff, length&0xff
	return a >> pos & (uint64(1)<<length - 1)
}

// bfeS does the same and extends the sign: that of the last extracted bit which
// lies inside the width.
func bfeS(a int64, pos, length, width uint32) int64 {
	pos, length = pos&0xff, length&0xff
	if length == 0 {
		return 0
	}
	last := min(pos+length-1, width-1)
	sign := a >> last & 1
	if pos > last {
		return -sign
	}
	n := last - pos + 1
	return a >> pos << (64 - n) >> (64 - n)
}

// bfi puts the low length bits of a at pos into b.
func bfi(a, b uint64, pos, length, width uint32) uint64 {
	pos, length = pos&0xff, length&0xff
	if pos >= width {
		return b
	}
	mask := (uint64(1)<<length - 1) << pos
	return b&^mask | a<<pos&mask
}
