package vec

import "math"

// Log2 returns the logarithm to base 2 of x, to fp32 precision: −Inf for 0, and NaN for negative numbers.
func Log2(x float32) float32 { return float32(log(x) * math.Log2E) }

// log returns the natural logarithm of x.
func log(x float32) float64 {
	bits := math.Float32bits(x)
	const smallest, infinity = 1 << 23, 255 << 23
	if bits < smallest || bits >= infinity { // not a positive normal number
		return math.Log(float64(x))
	}
	// Write x as m·2^e with m between √½ and √2.
	const half = 0x3f3504f3 // √½
	e := int32(bits-half) >> 23
	m := float64(math.Float32frombits(bits - uint32(e)<<23))
	// The series of log m is 2·artanh s = 2·(s + s³/3 + s⁵/5 + …). The first term left out is
	// 2·s¹¹/11 < 1e-9.
	s := (m - 1) / (m + 1)
	z := s * s
	return float64(e)*math.Ln2 + 2*s*(1+z*(1.0/3+z*(1.0/5+z*(1.0/7+z*(1.0/9)))))
}
