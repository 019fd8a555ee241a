package optim

import (
	"math"
	"slices"
)

// This file prepares codebooks (the values that 4-bit and 8-bit codes stand for) for kernels that
// hold them in registers. Reading a table in memory for each number would be slower. The kernels
// find the same codes as the table.

// registers is a codebook in the form that such kernels need. For 4-bit codes only the field sixteen is set, for 8-bit
// codes only the other fields.
type registers struct {
	zero    uint64         // the code of 0
	values  [4][256]byte   // the bytes of the values, by byte position, then code; the lowest byte first
	borders [4][256]byte   // likewise, the smallest magnitude of each code; smaller magnitudes have the neighbouring code toward 0
	lines   [3][32]float32 // see linesOf
	sixteen sixteen
}

// newRegisters prepares the codebook with the given values for kernels that hold it in registers.
// from[c] is the smallest number with code c+1.
func newRegisters(values, from []float32) (r registers) {
	zero := max(slices.Index(values, 0), 0)
	if len(values) == 16 {
		r.sixteen = newSixteen(from)
		return r
	}
	r.zero = uint64(zero)
	for c, v := range values {
		border := float32(0)
		switch {
		case c > zero:
			border = from[c-1]
		case c < zero: // from[c] is negative and has itself the next code
			border = math.Nextafter32(-from[c], 1)
		}
		for i := range 4 {
			r.values[i][c] = byte(math.Float32bits(v) >> (8 * i))
			r.borders[i][c] = byte(math.Float32bits(border) >> (8 * i))
		}
	}
	r.lines = linesOf(values[zero:])
	return r
}

// linesOf makes tables by which a kernel finds the nearest magnitude of a dynamic tree without a search. They contain
// linear functions of a number: if the i-th magnitude is nearest to the number, base + slope·number rounds to i or to i
// + 1. The kernel rounds the result and then compares the number with one border.
//
// Between two powers of ten the magnitudes are equidistant, so one line (linear function) serves them all. The line is
// i where the i-th magnitude begins to be the nearest, and i + 1 where it ends. Just above a power of ten, the
// magnitude below it is still the nearest until the next line is 0.2 past its integer. 1 is already the nearest when
// its line is a quarter short. So a line may be off by a quarter, and fp32 rounding is far smaller.
//
// The tables are indexed by the lower five bits of the exponent, for numbers from 2⁻³¹ to 1. The first table has the
// number at which the line of the next power of ten begins; infinite if one line holds for the whole exponent. The
// second has the bases, the third the slopes.
func linesOf(magnitudes []float32) (lines [3][32]float32) {
	below := func(x float64) (n int) {
		for n < len(magnitudes) && float64(magnitudes[n]) < x {
			n++
		}
		return n
	}
	for e := range 32 {
		low, power := math.Ldexp(1, e-31), leastPower
		for power < 0 && math.Pow10(power) <= low {
			power++
		}
		turn, ten := math.Inf(1), math.Pow10(power)
		if power < 0 && ten < 2*low {
			turn = ten
		}
		first := below(ten / 10) // magnitudes between ten/10 and ten
		slope := float64(below(ten)-first) / (0.9 * ten)
		lines[0][e], lines[1][e], lines[2][e] = float32(turn), float32(float64(first)-0.1*ten*slope), float32(slope)
	}
	return lines
}

// leastPower: in the 8-bit dynamic trees (the codebooks of moments), the smallest magnitudes except
// 0 lie below 10^leastPower.
const leastPower = -6

// sixteen has the tables for 4-bit codes. They are like codebook.table, a word for each bucket of
// numbers, but with fewer and larger buckets. The bucket of a number is (magnitude bits + offset)
// >> lowerBits, after the magnitude is clamped to the range from least to almostOne.
type sixteen struct {
	words                    [2][32]uint32 // by the lower five bits of the bucket, for positive and negative numbers
	least, offset, lowerBits uint32
}

// almostOne has the bits of the largest fp32 number below 1. Numbers from it on have the code of 1.
const almostOne = mostMag - 1

// newSixteen makes the tables for 4-bit codes. from[c] is the smallest number with code c+1. The buckets are so small
// that none contains two of these numbers.
func newSixteen(from []float32) sixteen {
	s := sixteen{lowerBits: 20}
	if from[0] < 0 {
		s.offset, s.lowerBits = 1<<21, 22
	}
	last := (almostOne + s.offset) >> s.lowerBits
	s.least = (last-31)<<s.lowerBits - s.offset
	for place := last - 31; place <= last; place++ {
		for negative := range s.words {
			s.words[negative][place%32] = wordOf(from, place<<s.lowerBits-s.offset, negative == 1, int(s.lowerBits))
		}
	}
	return s
}
