package optim

import "math"

// Split cuts the bits of an fp32 value in two: hi is its bf16 image, rounded
// half up in magnitude, lo the signed rest. Every pattern comes back from Join,
// although hi is an infinity for the finite values above bf16's greatest, and
// not a NaN for the NaNs nearest to infinity and to the next sign.
func Split(bits uint32) (hi, lo uint16) {
	return uint16((bits + 1<<15) >> 16), uint16(bits)
}

// Join is the inverse of Split.
func Join(hi, lo uint16) uint32 {
	return uint32(hi)<<16 + uint32(int32(int16(lo)))
}

// SplitRow is Split over a run of elements.
func SplitRow(hi, lo []uint16, src []float32) {
	hi, lo = hi[:len(src)], lo[:len(src)]
	for i, x := range src {
		hi[i], lo[i] = Split(math.Float32bits(x))
	}
}

// JoinRow is Join over a run of elements.
func JoinRow(dst []float32, hi, lo []uint16) {
	hi, lo = hi[:len(dst)], lo[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(Join(hi[i], lo[i]))
	}
}
