package optim

import (
	"fmt"
	"math"
	"testing"

	"mt/internal/long"
)

// TestCodesWithoutTables: every instruction set finds the codes that plain Go finds by its table, and reads the same numbers
// from all codes: of the numbers around every border, every power of two and of ten, of NaNs, and of 1 over every 1021st number.
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
	for bits := uint64(0); bits < 1<<32; bits += 1021 * 97 {
		near = append(near, uint32(bits))
	}
	sameCodes(t, func(yield func([]uint32) bool) { yield(near) })
}

// TestCodesOfAllNumbers does so with all numbers there are.
func TestCodesOfAllNumbers(t *testing.T) {
	long.Only(t)
	sameCodes(t, func(yield func([]uint32) bool) {
		some := make([]uint32, 1<<20)
		for first := uint64(0); first < 1<<32; first += uint64(len(some)) {
			for i := range some {
				some[i] = uint32(first) + uint32(i)
			}
			if !yield(some) {
				return
			}
		}
	})
}

// sameCodes compares codes of lists of numbers, given by their bits, with those in plain Go, and what codes are read as.
func sameCodes(t *testing.T, lists func(yield func([]uint32) bool)) {
	var one, third float32 = 1, 1. / 3
	for bits := range lists {
		for len(bits)%128 != 0 {
			bits = append(bits, 0)
		}
		x := make([]float32, len(bits))
		for i, b := range bits {
			x[i] = math.Float32frombits(b)
		}
		n := len(x)
		for size, s := range schemes {
			for _, signed := range []bool{true, false} {
				b := s.book(signed)
				want, got := make([]byte, n), make([]byte, n)
				wanted, numbers := make([]float32, n), make([]float32, n)
				run := func(k *kernels, codes []byte, out []float32) {
					if size == 8 {
						k.codes.encode(b, &x[0], &codes[0], n, &one)
						k.codes.decode(b, &codes[0], &out[0], n, &third)
					} else {
						k.codes.encode16(b, &x[0], &codes[0], n, &one)
						k.codes.decode16(b, &codes[0], &out[0], n, &third)
					}
				}
				run(&generic, want, wanted)
				for _, k := range available() {
					if k == &generic {
						continue
					}
					run(k, got, numbers)
					for i := range got {
						if got[i] != want[i] {
							at := i * 8 / size
							t.Fatalf("%s, %d bits, signed %t: byte %d, of %v (%#x) on, is %#x, want %#x", k.name, size, signed, i, x[at], bits[at], got[i], want[i])
						}
						if numbers[i] != wanted[i] {
							t.Fatalf("%s, %d bits, signed %t: number %d is %v, want %v", k.name, size, signed, i, numbers[i], wanted[i])
						}
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
					if fmt.Sprint(c) != fmt.Sprint(codes[len(codes)-1]) {
						t.Errorf("%s, %d bits, signed %t, scale %v: other codes than in plain Go", available()[i].name, size, signed, scale)
					}
				}
			}
		}
	}
}
