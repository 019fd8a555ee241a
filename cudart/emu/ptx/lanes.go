package ptx

import "math"

// binary32 has the functions that compute d from two 32-bit integers a and b for all 32 threads. On amd64, assembly
// replaces some of them.
var binary32 = [opCall]func(d, a, b *lanes32){
	opAdd: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] + b[i]
		}
	},
	opSub: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] - b[i]
		}
	},
	opMul: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] * b[i]
		}
	},
	opAnd: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] & b[i]
		}
	},
	opOr: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] | b[i]
		}
	},
	opXor: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] ^ b[i]
		}
	},
	opShl: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] << b[i]
		}
	},
	opShrU: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = a[i] >> b[i]
		}
	},
	opShrS: func(d, a, b *lanes32) {
		for i := range d {
			d[i] = uint32(int32(a[i]) >> b[i])
		}
	},
}

// More functions on whole registers. On amd64, init replaces them by assembly if the processor has
// the instructions for it.
var (
	add64 = func(d, a, b *lanes64) {
		for i := range d {
			d[i] = a[i] + b[i]
		}
	}
	mulWideS = func(d *lanes64, a, b *lanes32) {
		for i := range d {
			d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
		}
	}
	mulWideU = func(d *lanes64, a, b *lanes32) {
		for i := range d {
			d[i] = uint64(a[i]) * uint64(b[i])
		}
	}
	// offsets32 writes the sum a + imm of every thread to off. The threads form eight groups, by thread number
	// modulo 8. For group j, bounds receives the minimum (0), the maximum (1) and the bitwise or (2) of the sums.
	offsets32 = func(off *lanes64, a *lanes32, imm uint32, bounds *[3][8]uint32) {
		bounds[0] = [8]uint32{full, full, full, full, full, full, full, full}
		bounds[1], bounds[2] = [8]uint32{}, [8]uint32{}
		for i := range off {
			v, j := a[i]+imm, i&7
			off[i] = uint64(v)
			bounds[0][j], bounds[1][j], bounds[2][j] = min(bounds[0][j], v), max(bounds[1][j], v), bounds[2][j]|v
		}
	}
	// offsets64 is offsets32 for 64-bit values and four groups. It compares the sums as signed numbers.
	offsets64 = func(off, a *lanes64, imm uint64, bounds *[3][4]uint64) {
		lo, hi, or := int64(math.MaxInt64), int64(math.MinInt64), uint64(0)
		for i := range off {
			v := a[i] + imm
			off[i], lo, hi, or = v, min(lo, int64(v)), max(hi, int64(v)), or|v
		}
		for j := range 4 {
			bounds[0][j], bounds[1][j], bounds[2][j] = uint64(lo), uint64(hi), or
		}
	}
)

func addF32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) + f32(b[i]))
	}
}

func subF32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) - f32(b[i]))
	}
}

func mulF32Go(d, a, b *lanes32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) * f32(b[i]))
	}
}

// fmaF32Go is fma.rn: a·b + c rounded once. The product is exact in float64. But rounding the float64 sum to
// float32 rounds twice, to 53 bits and then to 24. This differs from rounding once only in two cases. Either the
// 53-bit sum lies half-way between two float32 (its last 29 bits are 100…0), or the result is denormal. In these
// cases fmaF32Go uses oddSum.
func fmaF32Go(d, a, b, c *lanes32) {
	for i := range d {
		p, z := float64(f32(a[i]))*float64(f32(b[i])), float64(f32(c[i]))
		s := p + z
		u := math.Float64bits(s)
		if u&(1<<29-1) == 1<<28 || u>>52&0x7ff < 1023-126 {
			s = oddSum(p, z)
		}
		d[i] = bits32(float32(s))
	}
}

// productGo adds the matrix product a·b to sums. sums is 16×8 and a is 16×16, both row-major with two floats per
// word; b is 16×8, row-major. Only the first depth columns of a and rows of b count. Products are added in the
// order of a's columns. A product of two bfloat16 is exact, so each addition rounds once.
func productGo(sums *[64]uint64, a *[128]uint64, b *[16][8]float32, depth int) {
	for r := range 16 {
		s := (*[4]uint64)(sums[4*r:])
		s0, s1, s2, s3 := f32(uint32(s[0])), f32(uint32(s[0]>>32)), f32(uint32(s[1])), f32(uint32(s[1]>>32))
		s4, s5, s6, s7 := f32(uint32(s[2])), f32(uint32(s[2]>>32)), f32(uint32(s[3])), f32(uint32(s[3]>>32))
		for k := 0; k < depth && k < 16; k++ {
			x, y := f32(uint32(a[8*r+k>>1]>>(k&1*32))), &b[k]
			s0 += x * y[0]
			s1 += x * y[1]
			s2 += x * y[2]
			s3 += x * y[3]
			s4 += x * y[4]
			s5 += x * y[5]
			s6 += x * y[6]
			s7 += x * y[7]
		}
		s[0], s[1] = two(bits32(s0), bits32(s1)), two(bits32(s2), bits32(s3))
		s[2], s[3] = two(bits32(s4), bits32(s5)), two(bits32(s6), bits32(s7))
	}
}

func two(lo, hi uint32) uint64 { return uint64(hi)<<32 | uint64(lo) }

// powers are 2^(j/32) for j from 0 to 31.
var powers = func() (p [32]float64) {
	for j := range p {
		p[j] = math.Exp2(float64(j) / 32)
	}
	return p
}()

// exp2Lanes is ex2.approx, 2^x for every thread. It splits x into n + j/32 + r and multiplies 2^(n + j/32), from
// the table, by the Taylor series of 2^r up to r^3. With |r| ≤ 1/64 the omitted terms are below 2^-30.
func exp2Lanes(d, a *lanes32) {
	const c1, c2, c3 = math.Ln2, math.Ln2 * math.Ln2 / 2, math.Ln2 * math.Ln2 * math.Ln2 / 6
	for i := range d {
		x := float64(f32(a[i]))
		if !(x > -150 && x < 128) {
			d[i] = bits32(float32(math.Exp2(x)))
			continue
		}
		n := int64(x*32+(1<<15+0.5)) - 1<<15 // floor
		r := x - float64(n)*(1./32)
		p := 1 + r*(c1+r*(c2+r*c3))
		scale := math.Float64frombits(uint64(n>>5+1023) << 52)
		d[i] = bits32(float32(p * powers[n&31] * scale))
	}
}
