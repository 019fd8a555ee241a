package bf16

import "math"

// Round is the pattern of the bfloat16 nearest to x, of two as near the even one. A
// number that is too large becomes an infinity. A NaN becomes a quiet NaN with the
// same sign and the upper bits of its payload.
func Round(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Widen is the value of a bfloat16 pattern; it is exact.
func Widen(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
