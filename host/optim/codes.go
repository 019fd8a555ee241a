package optim

import (
	"encoding/binary"
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
	// from[c] is the smallest number with code c; from[0] does not count, and where there is no code c
	// it is NaN, which no number reaches.
	from [257]float32
	// least is a code by the upper bits of a number (see bucket): that of the smallest number
	// with those bits. None of these numbers has a code above the next.
	least [buckets]uint8
	_     [3]uint8 // kernels read least in words of 4 bytes
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

// room is memory that an update takes for moments that are kept in codes.
type room struct {
	moments [2][stripCoded]float32
	codes   [256]byte // of a block, a byte each
	lanes   [16]uint32
}

// decode sets out to the numbers that codes and the scales of their blocks stand for.
func (s *scheme) decode(b *codebook, out []float32, codes []byte, scales []float32, r *room) {
	n := int(s.block)
	for i := range scales {
		at := codes[s.codes.Bytes(int64(i)*s.block):][:s.codes.Bytes(s.block)]
		if s.codes == U4 {
			spread(r.codes[:n], at)
			at = r.codes[:n]
		}
		active.codes.decode(&b.values[0], &at[0], &out[i*n], n, &scales[i])
	}
}

// leastScale is the scale of a block of zeros.
const leastScale = 1e-12

// greatestScale is that of a block in which a moment has overflowed: the square of a gradient above
// 1.8e19 may. With an infinite scale all moments of the block would be NaN at the next update.
const greatestScale = math.MaxFloat32

// encode sets codes and scales to what stands for x.
func (s *scheme) encode(b *codebook, x []float32, codes []byte, scales []float32, r *room) {
	n := int(s.block)
	for i := range scales {
		x := x[i*n:][:n]
		scales[i] = min(max(r.greatest(x), leastScale), greatestScale)
		to := codes[s.codes.Bytes(int64(i)*s.block):][:s.codes.Bytes(s.block)]
		at := to
		if s.codes == U4 {
			at = r.codes[:n]
		}
		active.codes.encode(&b.least[0], &b.from[1], &x[0], &at[0], n, &scales[i])
		if s.codes == U4 {
			join4(to, at)
		}
	}
}

// greatest is the greatest magnitude in x, of 128 numbers or a multiple; NaN where one is.
func (r *room) greatest(x []float32) float32 {
	clear(r.lanes[:])
	active.codes.greatest(&x[0], len(x), &r.lanes)
	return math.Float32frombits(slices.Max(r.lanes[:]))
}

// spread makes each half of a byte of codes a byte, the lower one first; eight at a time.
func spread(to, codes []byte) {
	for i := 0; i < len(codes); i += 4 {
		x := uint64(binary.LittleEndian.Uint32(codes[i:]))
		x = (x | x<<16) & 0x0000ffff0000ffff
		x = (x | x<<8) & 0x00ff00ff00ff00ff
		x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
		binary.LittleEndian.PutUint64(to[2*i:], x)
	}
}

// join4 is the inverse of spread.
func join4(codes, from []byte) {
	for i := 0; i < len(codes); i += 4 {
		x := binary.LittleEndian.Uint64(from[2*i:])
		x = (x | x>>4) & 0x00ff00ff00ff00ff
		x = (x | x>>8) & 0x0000ffff0000ffff
		binary.LittleEndian.PutUint32(codes[i:], uint32(x|x>>16))
	}
}

// decodeGeneric, encodeGeneric and greatestGeneric are the codeKernels in plain Go.
func decodeGeneric(values *float32, codes *byte, out *float32, n int, scale *float32) {
	table, to, by := unsafe.Slice(values, 256), unsafe.Slice(out, n), *scale
	for i, c := range unsafe.Slice(codes, n) {
		to[i] = float32(table[c] * by)
	}
}

func encodeGeneric(least *byte, next, x *float32, codes *byte, n int, scale *float32) {
	first, from, to, by := unsafe.Slice(least, buckets), unsafe.Slice(next, 256), unsafe.Slice(codes, n), *scale
	for i, e := range unsafe.Slice(x, n) {
		e /= by
		c := first[bucket(math.Float32bits(e))]
		if e >= from[c] {
			c++
		}
		to[i] = c
	}
}

func greatestGeneric(x *float32, n int, lanes *[16]uint32) {
	for _, e := range unsafe.Slice(x, n) {
		lanes[0] = max(lanes[0], math.Float32bits(e)&0x7fffffff)
	}
}
