package gguf

import (
	"encoding/binary"
	"math"

	"mt/base/bf16"
)

// Encode converts src to type t and stores it in dst, which has t.Bytes(len(src)) bytes. It rounds to nearest: F16
// and BF16 with ties to even, Q8_0 with ties away from zero. The scale of a Q8_0 block is its largest magnitude
// over 127. Source: ggml, quantize_row_q8_0_ref.
func Encode(dst []byte, t Type, src []float32) {
	switch t {
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], half(v))
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], bf16.Round(v))
		}
	case Q8_0:
		for i := 0; i < len(src); i += BlockLen {
			encodeBlock(dst[i/BlockLen*blockBytes:], src[i:i+BlockLen])
		}
	default:
		panic("gguf: elements of " + t.String() + " are not written")
	}
}

// encodeBlock stores BlockLen elements of src as one block of Q8_0 in dst.
func encodeBlock(dst []byte, src []float32) {
	var most float32
	for _, v := range src {
		most = max(most, float32(math.Abs(float64(v))))
	}
	scale := most / 127
	var inverse float32
	if scale != 0 {
		inverse = 1 / scale
	}
	binary.LittleEndian.PutUint16(dst, half(scale))
	for i, v := range src {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse))))
	}
}

// half rounds v to IEEE half precision, ties to even. Numbers that are too large become infinite.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, bits := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case bits > 0x7f800000:
		return sign | 0x7e00 | uint16(bits>>13&0x3ff)
	case bits >= 0x47800000: // 65536
		return sign | 0x7c00
	case bits >= 0x38800000: // 2^-14: a normal half
		bits -= 112 << 23
		return sign | uint16((bits+0xfff+bits>>13&1)>>13)
	}
	// A number below 2^-14 becomes a subnormal half, a multiple of 2^-24. The product with 2^24 is
	// exact, so the result is rounded only once.
	return sign | uint16(math.RoundToEven(float64(math.Float32frombits(bits))*(1<<24)))
}
