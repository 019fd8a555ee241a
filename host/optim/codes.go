package optim

import (
	"math"
	"slices"
	"unsafe"
)

// This file encodes moments in 8 or 4 bits. A number is represented as a value of the codebook times the scale of its
// block, which is the largest magnitude in the block. Its code is the index of the nearest value. Sources:
// arXiv:2110.02861 (dynamic trees), arXiv:2309.01507 (4 bits). The values and the rounding of ties are those of torchao
// and bitsandbytes.

// codebook has the values that codes stand for, and tables for finding the code of a number.
type codebook struct {
	values [256]float32 // rising; 4-bit codebooks use the first 16
	// table finds the code of a number with one lookup. Numbers with equal upper bits form a bucket
	// (see place), and table has a word code + 256·limit for each bucket. A number in the bucket
	// has this code if its lower bits are below limit. Otherwise it has the neighbouring code: the
	// next higher one for positive numbers, the next lower one for negative numbers. No bucket
	// needs a third code.
	table [places]uint32
	registers
}

// A number's bucket follows from its upper bits: sign, exponent and 7 bits of mantissa, for
// magnitudes from 2⁻²³ to 1. Smaller magnitudes count as 2⁻²³, which has the code of 0; larger
// magnitudes count as 1.
const (
	lowerBits = 16
	leastMag  = 0x34000000
	mostMag   = 0x3f800000
	ofASign   = mostMag>>lowerBits - leastMag>>lowerBits + 1
	places    = 2 * ofASign
)

// place finds the bucket of the number with these fp32 bits. It returns the bucket's index in codebook.table, and the
// number's lower bits within the bucket.
func place(bits uint32) (at, lower uint32) {
	mag := min(max(bits&0x7fffffff, leastMag), mostMag)
	return (mag-leastMag)>>lowerBits + bits>>31*ofASign, mag & (1<<lowerBits - 1)
}

// newCodebook makes a codebook. values are in rising order; a code is an index in values.
func newCodebook(values []float32) *codebook {
	b := &codebook{}
	copy(b.values[:], values)
	var from []float32 // from[c] is the smallest number with code c+1
	for c := range len(values) - 1 {
		from = append(from, halfway(values[c], values[c+1]))
	}
	for i := range b.table {
		b.table[i] = wordOf(from, leastMag+uint32(i%ofASign)<<lowerBits, i >= ofASign, lowerBits)
	}
	b.registers = newRegisters(values, from)
	return b
}

// wordOf returns the table entry of one bucket: a code and a limit (see codebook.table). The numbers in the bucket have
// one sign and the same upper bits. Their magnitudes begin with mag and differ in the lowest lowerBits bits. from[c] is
// the smallest number with code c+1.
func wordOf(from []float32, mag uint32, negative bool, lowerBits int) uint32 {
	never := uint32(1) << lowerBits
	c, next := 0, never
	if !negative {
		for c < len(from) && math.Float32frombits(mag) >= from[c] {
			c++
		}
		if c < len(from) {
			next = math.Float32bits(from[c]) - mag
		}
	} else { // a negative number: the code of the number nearest to 0 in the bucket; lower codes have larger magnitudes
		for c < len(from) && -math.Float32frombits(mag) >= from[c] {
			c++
		}
		if c > 0 {
			next = math.Float32bits(-from[c-1]) - mag + 1
		}
	}
	return uint32(c) | min(next, never)<<8
}

// halfway returns the smallest fp32 number that is at least as near to high as to low, with distances rounded to fp32.
// From this number on, a number gets the code of high.
func halfway(low, high float32) float32 {
	half := float32(float32(high-low) * 0.5)
	below, at := low, high
	for {
		x := below + float32(float32(at-below)*0.5)
		if x <= below || x >= at {
			return at
		}
		if float32(x-low) >= half {
			at = x
		} else {
			below = x
		}
	}
}

// dynamicTree returns the values of a dynamic tree in rising order. A dynamic tree is a number
// format for quantised moments: a power of ten as exponent, and more fraction bits the larger the
// number is. The tree has exps exponents. Signed trees have negative values too; unsigned trees
// have twice as many magnitudes instead.
func dynamicTree(signed bool, exps int) []float32 {
	values := []float32{0, 1}
	for i := range exps {
		n := 1 << i
		if !signed {
			n *= 2
		}
		ten := float32(math.Pow10(i - exps + 1))
		for k := range n {
			mean := ten * float32(float32(tenthToOne(k, n)+tenthToOne(k+1, n))/2)
			values = append(values, mean)
			if signed {
				values = append(values, -mean)
			}
		}
	}
	slices.Sort(values)
	return values
}

// tenthToOne returns number k (from 0) of n+1 equidistant numbers from 0.1 to 1. It rounds as torch.linspace does.
func tenthToOne(k, n int) float32 {
	step := float32(float32(1-float32(0.1)) / float32(n))
	if k < (n+1)/2 {
		return float32(float64(float32(0.1)) + float64(step)*float64(k))
	}
	return float32(1 - float64(step)*float64(n-k))
}

// linear returns the values of a 4-bit codebook for moments that are never negative: 16 equidistant numbers from 1/16
// to 1, without 0.
func linear() (values []float32) {
	for c := range 16 {
		values = append(values, float32(c+1)/16)
	}
	return values
}

// scheme says how moments are quantized with one number of bits: the type of the codes, the elements in a block that
// share a scale, and the codebooks.
type scheme struct {
	codes  DType
	block  int64
	signed *codebook
	other  *codebook // for moments that are never negative
}

// schemes has the scheme for each number of bits of a code.
var schemes = map[int]*scheme{
	8: {U8, 256, newCodebook(dynamicTree(true, 7)), newCodebook(dynamicTree(false, 7))},
	4: {U4, 128, newCodebook(dynamicTree(true, 3)), newCodebook(linear())},
}

// book returns the codebook for moments that can be negative (signed), or the codebook for all
// others.
func (s *scheme) book(signed bool) *codebook {
	if signed {
		return s.signed
	}
	return s.other
}

// room is scratch memory for an update with quantised moments: the decoded values of both moments,
// for one strip of elements.
type room struct {
	moments [2][stripCoded]float32
}

// decode computes the numbers that codes and the scales of their blocks represent, and writes them to out.
func (s *scheme) decode(b *codebook, out []float32, codes []byte, scales []float32) {
	decode := active.codes.decode
	if s.codes == U4 {
		decode = active.codes.decode16
	}
	for i := range scales {
		at := int64(i) * s.block
		decode(b, &codes[s.codes.Bytes(at)], &out[at:][:s.block][0], int(s.block), &scales[i])
	}
}

// leastScale is the scale of a block whose moments are all zero, so that no division by zero occurs.
const leastScale = 1e-12

// greatestScale is the scale of a block with an overflowed moment: the square of a gradient above 1.8e19 may overflow.
// With an infinite scale all moments of the block would be NaN in the next update.
const greatestScale = math.MaxFloat32

// encode computes codes, and the scales of their blocks, that represent the numbers x as well as possible.
func (s *scheme) encode(b *codebook, x []float32, codes []byte, scales []float32) {
	encode := active.codes.encode
	if s.codes == U4 {
		encode = active.codes.encode16
	}
	for i := range scales { // compute all scales first, so that a processor overlaps several searches for the largest magnitude
		x := x[int64(i)*s.block:][:s.block]
		active.codes.greatest(&x[0], len(x), &scales[i])
	}
	for i := range scales {
		scales[i] = min(max(scales[i], leastScale), greatestScale)
		at := int64(i) * s.block
		encode(b, &x[at:][:s.block][0], &codes[s.codes.Bytes(at)], int(s.block), &scales[i])
	}
}

// The codeKernels in plain Go follow, for machines without a faster instruction set.

func decodeGeneric(b *codebook, codes *byte, out *float32, n int, scale *float32) {
	to, by := unsafe.Slice(out, n), *scale
	for i, c := range unsafe.Slice(codes, n) {
		to[i] = float32(b.values[c] * by)
	}
}

func decode16Generic(b *codebook, codes *byte, out *float32, n int, scale *float32) {
	to, by := unsafe.Slice(out, n), *scale
	for i, c := range unsafe.Slice(codes, n/2) {
		to[2*i], to[2*i+1] = float32(b.values[c&15]*by), float32(b.values[c>>4]*by)
	}
}

func encodeGeneric(b *codebook, x *float32, codes *byte, n int, scale *float32) {
	to := unsafe.Slice(codes, n)
	for i, e := range unsafe.Slice(x, n) {
		to[i] = b.codeOf(e / *scale)
	}
}

func encode16Generic(b *codebook, x *float32, codes *byte, n int, scale *float32) {
	from := unsafe.Slice(x, n)
	for i := range unsafe.Slice(codes, n/2) {
		unsafe.Slice(codes, n/2)[i] = b.codeOf(from[2*i] / *scale) | b.codeOf(from[2*i+1] / *scale)<<4
	}
}

// codeOf returns the code whose value is nearest to x, a number already divided by its block's scale.
func (b *codebook) codeOf(x float32) uint8 {
	bits := math.Float32bits(x)
	at, lower := place(bits)
	word := b.table[at]
	if lower < word>>8 {
		return uint8(word)
	}
	return uint8(word) + 1 - uint8(bits>>31)*2
}

func greatestGeneric(x *float32, n int, most *float32) {
	var bits uint32
	for _, e := range unsafe.Slice(x, n) {
		bits = max(bits, math.Float32bits(e)&0x7fffffff)
	}
	*most = math.Float32frombits(bits)
}
