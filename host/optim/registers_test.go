package optim

import (
	"bytes"
	"math"
	"os"
	"slices"
	"testing"

	"mt/internal/long"
)

// TestCodesWithoutTables: every instruction set finds the codes that plain Go finds by its table: of the numbers around every
// value and border, every power of two and of ten, with every exponent, of NaNs, and of some others.
func TestCodesWithoutTables(t *testing.T) {
	var near []uint32
	around := func(x float32) {
		for bits := math.Float32bits(x) - 3; bits != math.Float32bits(x)+4; bits++ {
			near = append(near, bits, bits^1<<31)
		}
	}
	for size, s := range schemes {
		for _, b := range []*codebook{s.signed, s.other} {
			for c := range 1<<size - 1 {
				around(halfway(b.values[c], b.values[c+1]))
				around(b.values[c])
			}
		}
	}
	for e := range 256 {
		around(math.Float32frombits(uint32(e) << 23))
		around(math.Float32frombits(uint32(e)<<23 | 1<<22))
		around(math.Float32frombits(uint32(e)<<23 | 1<<21))
	}
	for ten := float32(1e-8); ten < 2; ten *= 10 {
		around(ten)
	}
	for bits := uint64(0); bits < 1<<32; bits += 99_991 {
		near = append(near, uint32(bits))
	}
	for len(near)%128 != 0 {
		near = append(near, 0)
	}
	sameCodes(t, near)
}

// TestCodesOfAllNumbers does so with all numbers there are. Every instruction set is compared in one run.
func TestCodesOfAllNumbers(t *testing.T) {
	long.Only(t)
	if os.Getenv("MT_CPU") != "" || len(available()) == 1 {
		t.Skip("a run without MT_CPU and with assembly compares all instruction sets")
	}
	some := make([]uint32, 1<<20)
	for first := uint64(0); first < 1<<32; first += uint64(len(some)) {
		for i := range some {
			some[i] = uint32(first) + uint32(i)
		}
		sameCodes(t, some)
	}
}

// sameCodes compares the codes of numbers, given by their bits, a multiple of 128, with those in plain Go.
func sameCodes(t *testing.T, bits []uint32) {
	t.Helper()
	var one float32 = 1
	n := len(bits)
	x, want, got := make([]float32, n), make([]byte, n), make([]byte, n)
	for i, b := range bits {
		x[i] = math.Float32frombits(b)
	}
	for size, s := range schemes {
		for _, signed := range []bool{true, false} {
			encode := func(k *kernels, codes []byte) {
				if size == 8 {
					k.codes.encode(s.book(signed), &x[0], &codes[0], n, &one)
				} else {
					k.codes.encode16(s.book(signed), &x[0], &codes[0], n, &one)
				}
			}
			encode(&generic, want)
			for _, k := range available() {
				if k == &generic {
					continue
				}
				encode(k, got)
				if !bytes.Equal(got, want) {
					i := 0
					for got[i] == want[i] {
						i++
					}
					at := i * 8 / size
					t.Fatalf("%s, %d bits, signed %t: byte %d, of %v (%#x) on, is %#x, want %#x", k.name, size, signed, i, x[at], bits[at], got[i], want[i])
				}
			}
		}
	}
}

// TestNumbersOfAllCodes: every instruction set reads the same numbers from all codes, with any scale.
func TestNumbersOfAllCodes(t *testing.T) {
	codes, got, want := make([]byte, 256), make([]float32, 512), make([]float32, 512)
	for i := range codes {
		codes[i] = byte(i * 167) // in another order than theirs
	}
	for size, s := range schemes {
		for _, b := range []*codebook{s.signed, s.other} {
			for _, scale := range []float32{0, leastScale, 1. / 3, greatestScale} {
				decode := func(k *kernels, out []float32) []float32 {
					if size == 8 {
						k.codes.decode(b, &codes[0], &out[0], 256, &scale)
						return out[:256]
					}
					k.codes.decode16(b, &codes[0], &out[0], 512, &scale)
					return out
				}
				decode(&generic, want)
				for _, k := range available() {
					if got := decode(k, got); !slices.Equal(got, want[:len(got)]) {
						t.Errorf("%s, %d bits, scale %v: other numbers than in plain Go", k.name, size, scale)
					}
				}
			}
		}
	}
}

// TestCodesOfQuotients: the code is that of the quotient rounded to fp32, for any scale: of numbers near each border times the scale.
func TestCodesOfQuotients(t *testing.T) {
	for size, s := range schemes {
		for _, signed := range []bool{true, false} {
			b := s.book(signed)
			for _, scale := range []float32{leastScale, 1e-7 / 3, 0.7, 1.9999999, 1e20 / 3, greatestScale} {
				var x []float32
				for c := range 1<<size - 1 {
					mid := halfway(b.values[c], b.values[c+1]) * scale
					for i := -2; i <= 2; i++ {
						x = append(x, math.Float32frombits(math.Float32bits(mid)+uint32(i)))
					}
				}
				for len(x)%128 != 0 {
					x = append(x, 0)
				}
				var codes [][]byte
				for _, k := range available() {
					c := make([]byte, len(x))
					if size == 8 {
						k.codes.encode(b, &x[0], &c[0], len(x), &scale)
					} else {
						k.codes.encode16(b, &x[0], &c[0], len(x), &scale)
					}
					codes = append(codes, c)
				}
				for i, c := range codes {
					if !bytes.Equal(c, codes[len(codes)-1]) {
						t.Errorf("%s, %d bits, signed %t, scale %v: other codes than in plain Go", available()[i].name, size, signed, scale)
					}
				}
			}
		}
	}
}
