package bfloat

import "math"

// Round is the pattern of the bfloat16 nearest to x, ties to even: what is too
// large becomes an infinity. A NaN stays one, quiet, with its sign and the upper
// bits of its payload.
func Round(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 1<<6
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Widen is the value of a bfloat16 pattern, exact.
func Widen(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
