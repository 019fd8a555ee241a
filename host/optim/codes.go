package optim

import (
	"math"
	"slices"
	"unsafe"
)

// This file has the codes of 8 and 4 bits in which moments are kept: a number is a value of a
// map times the scale of its block, which is the block's greatest magnitude. A code is that of the
// nearest value. Sources: arXiv:2110.02861 (dynamic trees), arXiv:2309.01507 (4 bits);
// the values, and what is done with a number halfway between two, are torchao's and bitsandbytes'.

// codebook is the values of a map and how numbers find theirs.
type codebook struct {
	values [256]float32 // rising; those that codes of 4 bits have are the first 16
	// table has a word for each place of a number (see place): a code, and 256 times the least lower bits from which on
	// a number has the code beside it, on the side of its sign. No number of a place has another code.
	table [places]uint32
	registers
}

// A place is given by the upper bits of a number: sign, exponent and 7 bits of mantissa, for magnitudes from 2⁻²³ to 1.
// Smaller ones are as if they were 2⁻²³, which has the code of 0, and greater ones as 1.
const (
	lowerBits = 16
	leastMag  = 0x34000000
	mostMag   = 0x3f800000
	ofASign   = mostMag>>lowerBits - leastMag>>lowerBits + 1
	places    = 2 * ofASign
)

// place is the place of the number with these bits, and its lower bits there.
func place(bits uint32) (at, lower uint32) {
	mag := min(max(bits&0x7fffffff, leastMag), mostMag)
	return (mag-leastMag)>>lowerBits + bits>>31*ofASign, mag & (1<<lowerBits - 1)
}

// newCodebook makes the codebook of rising values.
func newCodebook(values []float32) *codebook {
	b := &codebook{}
	copy(b.values[:], values)
	var from []float32 // the smallest number with a code, by the code before it
	for c := range len(values) - 1 {
		from = append(from, halfway(values[c], values[c+1]))
	}
	for i := range b.table {
		b.table[i] = wordOf(from, leastMag+uint32(i%ofASign)<<lowerBits, i >= ofASign, lowerBits)
	}
	b.registers = newRegisters(values, from)
	return b
}

// wordOf is the word of the place of so many lower bits that begins with a magnitude's bits, of numbers with a sign.
// from has the smallest number with a code, by the code before it.
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
	} else { // the code of the number nearest to 0; those before it have greater magnitudes
		for c < len(from) && -math.Float32frombits(mag) >= from[c] {
			c++
		}
		if c > 0 {
			next = math.Float32bits(-from[c-1]) - mag + 1
		}
	}
	return uint32(c) | min(next, never)<<8
}

// halfway is the smallest number that is not nearer to low than to high, in fp32 arithmetic.
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

// dynamicTree is the map of a sign and a magnitude, or of a magnitude with twice as many
// values, whose exponents are exps powers of ten.
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

// tenthToOne is the k-th of n+1 numbers at equal distances from 0.1 to 1, as torch.linspace has it,
// which rounds once.
func tenthToOne(k, n int) float32 {
	step := float32(float32(1-float32(0.1)) / float32(n))
	if k < (n+1)/2 {
		return float32(float64(float32(0.1)) + float64(step)*float64(k))
	}
	return float32(1 - float64(step)*float64(n-k))
}

// linear is the map of 16 magnitudes at equal distances, without 0.
func linear() (values []float32) {
	for c := range 16 {
		values = append(values, float32(c+1)/16)
	}
	return values
}

// scheme is how moments are kept in codes.
type scheme struct {
	codes  DType
	block  int64
	signed *codebook
	other  *codebook // of moments that are never negative
}

// schemes are those there are, by the bits of a code.
var schemes = map[int]*scheme{
	8: {U8, 256, newCodebook(dynamicTree(true, 7)), newCodebook(dynamicTree(false, 7))},
	4: {U4, 128, newCodebook(dynamicTree(true, 3)), newCodebook(linear())},
}

// book is the codebook for a moment.
func (s *scheme) book(signed bool) *codebook {
	if signed {
		return s.signed
	}
	return s.other
}

// room is memory that an update takes for moments that are kept in codes.
type room struct {
	moments [2][stripCoded]float32
}

// decode sets out to the numbers that codes and the scales of their blocks stand for.
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

// leastScale is the scale of a block of zeros.
const leastScale = 1e-12

// greatestScale is that of a block in which a moment has overflowed: the square of a gradient above
// 1.8e19 may. With an infinite scale all moments of the block would be NaN at the next update.
const greatestScale = math.MaxFloat32

// encode sets codes and scales to what stands for x.
func (s *scheme) encode(b *codebook, x []float32, codes []byte, scales []float32) {
	encode := active.codes.encode
	if s.codes == U4 {
		encode = active.codes.encode16
	}
	for i := range scales { // all before codes: a processor finds several at a time
		x := x[int64(i)*s.block:][:s.block]
		active.codes.greatest(&x[0], len(x), &scales[i])
	}
	for i := range scales {
		scales[i] = min(max(scales[i], leastScale), greatestScale)
		at := int64(i) * s.block
		encode(b, &x[at:][:s.block][0], &codes[s.codes.Bytes(at)], int(s.block), &scales[i])
	}
}

// What follows are the codeKernels in plain Go.

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

// codeOf is the code of x.
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
