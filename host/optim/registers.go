package optim

import (
	"math"
	"slices"
)

// This file has codebooks as kernels hold them in registers, where reading a table in memory for each number
// takes longer. What they find is the code that the table has.

// registers are a codebook for such kernels. Those of codes of 8 bits have all but sixteen, those of codes of 4 bits have that.
type registers struct {
	zero    uint64         // the code of 0
	values  [4][256]byte   // the bytes of values by code, the lowest byte first
	borders [4][256]byte   // those of the least magnitude with a code; a smaller one has the code beside it, on the side of 0
	lines   [3][32]float32 // see linesOf
	sixteen sixteen
}

// newRegisters makes them of values, and of the smallest numbers with each code but the first.
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
		case c < zero: // the number from[c] itself has the next code
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

// linesOf says which of these magnitudes of a dynamic tree a number is near: where the i-th is the nearest, base + slope·number
// rounds to i or to i + 1. Kernels round it and compare with one border.
//
// Between two powers of ten the magnitudes are at equal distances: the line is i where the i-th begins to be the nearest, and i + 1
// where it ends. Just above a power of ten the magnitude below it is still the nearest, until the next line is 0.2 past its
// integer; and 1 is the nearest from where its line is a quarter short of it. So a line may be off by a quarter, and fp32 is off by far less.
//
// The tables are by the lower five bits of the exponents of numbers from 2⁻³¹ to 1: the number from which on the line of the next
// exponent holds (infinite where this one does throughout); base; slope.
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
		first := below(ten / 10) // of those between a tenth of ten and ten
		slope := float64(below(ten)-first) / (0.9 * ten)
		lines[0][e], lines[1][e], lines[2][e] = float32(turn), float32(float64(first)-0.1*ten*slope), float32(slope)
	}
	return lines
}

// leastPower is that of the power of ten under which dynamic trees of codes of 8 bits have their least magnitudes.
const leastPower = -6

// sixteen is what finds codes of 4 bits: words as those of a table, for fewer and larger places. The place of a number is the
// bits of its magnitude plus offset, without the lower ones. Magnitudes are taken as if they were from least to almostOne.
type sixteen struct {
	words                    [2][32]uint32 // by the lower five bits of a place, of numbers above 0 and below
	least, offset, lowerBits uint32
}

// almostOne is the greatest number below 1, which has the code of 1.
const almostOne = mostMag - 1

// newSixteen makes it of the smallest numbers with each code but the first. The places are such that no two of these are in one.
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
