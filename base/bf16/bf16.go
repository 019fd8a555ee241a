package bf16

import "math"

// Round returns the bits of the bfloat16 nearest to x; ties go to even. A number above the bfloat16 range becomes an
// infinity. A NaN becomes a quiet NaN with the same sign and the upper bits of the payload.
func Round(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Widen returns the float32 value of the bfloat16 bits b, exactly.
func Widen(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
