package optim

import (
	"math"
	"slices"
)

// This file has the codes of 8 and 4 bits in which moments are kept: a number is a value of a
// map times the scale of its block, which is the block's greatest magnitude. A code is that of the
// nearest value. Sources: arXiv:2110.02861 (dynamic trees), arXiv:2309.01507 (4 bits);
// the values, and what is done with a number halfway between two, are torchao's and bitsandbytes'.

// codebook is the values of a map and how numbers find theirs.
type codebook struct {
	values [256]float32 // rising; those that codes of 4 bits have are the first 16
	// from[c] is the smallest number with code c; from[0] does not count, and where there is no code c
	// it is NaN, which no number reaches.
	from [257]float32
	// least is a code by the upper bits of a number (see bucket): that of the smallest number
	// with those bits. None of these numbers has a code above the next.
	least [buckets]uint8
}

// The upper bits of a number: sign, exponent and 7 bits of mantissa, for magnitudes from 2⁻²³ to 1.
// Smaller ones are as if they were 0, greater ones as 1.
const (
	bucketShift = 16
	bucketLow   = 0x34000000 >> bucketShift
	bucketSpan  = 0x3f800000>>bucketShift - bucketLow + 1
	buckets     = 2 * bucketSpan
)

// bucket is the place in least of the number with these bits.
func bucket(bits uint32) uint32 {
	at := min(max(bits&0x7fffffff>>bucketShift, bucketLow), bucketLow+bucketSpan-1) - bucketLow
	return at + bits>>31*bucketSpan
}

// code is the code of x, whose magnitude is at most 1.
func (b *codebook) code(x float32) uint8 {
	c := b.least[bucket(math.Float32bits(x))]
	if x >= b.from[int(c)+1] {
		c++
	}
	return c
}

// newCodebook makes the codebook of rising values.
func newCodebook(values []float32) *codebook {
	b := &codebook{}
	copy(b.values[:], values)
	for c := range b.from {
		b.from[c] = float32(math.NaN())
		if c > 0 && c < len(values) {
			b.from[c] = halfway(values[c-1], values[c])
		}
	}
	for i := range b.least {
		bits := uint32(i%bucketSpan+bucketLow) << bucketShift
		x := math.Float32frombits(bits)
		switch {
		case i >= bucketSpan: // the smallest has the greatest magnitude
			x = -math.Float32frombits(bits + 1<<bucketShift - 1)
		case i == 0:
			x = 0
		}
		for c := 1; c < len(values) && x >= b.from[c]; c++ {
			b.least[i] = uint8(c)
		}
	}
	return b
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

// decode sets out to the numbers that codes and the scales of their blocks stand for.
func (s *scheme) decode(b *codebook, out []float32, codes []byte, scales []float32) {
	for i, scale := range scales {
		x := out[int64(i)*s.block:][:s.block]
		if s.codes == U8 {
			for k, c := range codes[int64(i)*s.block:][:s.block] {
				x[k] = float32(b.values[c] * scale)
			}
			continue
		}
		for k, c := range codes[int64(i)*s.block/2:][:s.block/2] {
			x[2*k], x[2*k+1] = float32(b.values[c&15]*scale), float32(b.values[c>>4]*scale)
		}
	}
}

// leastScale is the scale of a block of zeros.
const leastScale = 1e-12

// encode sets codes and scales to what stands for x.
func (s *scheme) encode(b *codebook, x []float32, codes []byte, scales []float32) {
	for i := range scales {
		x := x[int64(i)*s.block:][:s.block]
		scale := max(greatest(x), leastScale)
		scales[i] = scale
		if s.codes == U8 {
			codes := codes[int64(i)*s.block:][:s.block]
			for k, e := range x {
				codes[k] = b.code(e / scale)
			}
			continue
		}
		codes := codes[int64(i)*s.block/2:][:s.block/2]
		for k := range codes {
			codes[k] = b.code(x[2*k]/scale) | b.code(x[2*k+1]/scale)<<4
		}
	}
}

// greatest is the greatest magnitude in x; NaN where one is.
func greatest(x []float32) float32 {
	var most uint32
	for _, e := range x {
		most = max(most, math.Float32bits(e)&0x7fffffff)
	}
	return math.Float32frombits(most)
}
