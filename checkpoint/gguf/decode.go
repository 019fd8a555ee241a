package gguf

import (
	"encoding/binary"
	"math"

	"mt/base/bf16"
)

// blockLen is the number of elements in a Q8_0 block: a half-precision scale, then one signed byte per element.
const blockLen = 32

// known reports whether Decode supports the type.
func known(t Type) bool {
	return t == F32 || t == F16 || t == Q8_0 || t == BF16
}

// Decode reads len(dst) elements of type t from src. It is the inverse of Encode, apart from rounding.
func Decode(dst []float32, t Type, src []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = bf16.Widen(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Q8_0:
		for i := range dst {
			block := src[i/blockLen*(2+blockLen):]
			dst[i] = FromHalf(binary.LittleEndian.Uint16(block)) * float32(int8(block[2+i%blockLen]))
		}
	default:
		panic("gguf: elements of " + t.String() + " are not read")
	}
}

// FromHalf converts a number from IEEE half precision to float32. The conversion is exact.
func FromHalf(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h&0x3ff)
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	return math.Float32frombits(sign | math.Float32bits(float32(frac)*(1.0/(1<<24))))
}
