package optim

import "math"

// Split cuts the bits of an fp32 value in two: hi is its bf16 image, rounded half
// up in magnitude, and lo the signed rest. Join gives every pattern of bits back.
// hi is an infinity for finite values above the greatest bf16. For some NaNs hi is
// no NaN: those whose patterns are next to that of an infinity, and those next to
// the patterns of the other sign.
func Split(bits uint32) (hi, lo uint16) {
	return uint16((bits + 1<<15) >> 16), uint16(bits)
}

// Join is the inverse of Split.
func Join(hi, lo uint16) uint32 {
	return uint32(hi)<<16 + uint32(int32(int16(lo)))
}

// SplitRow applies Split to a run of elements.
func SplitRow(hi, lo []uint16, src []float32) {
	hi, lo = hi[:len(src)], lo[:len(src)]
	for i, x := range src {
		hi[i], lo[i] = Split(math.Float32bits(x))
	}
}

// JoinRow applies Join to a run of elements.
func JoinRow(dst []float32, hi, lo []uint16) {
	hi, lo = hi[:len(dst)], lo[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(Join(hi[i], lo[i]))
	}
}
