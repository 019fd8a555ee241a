package bf16

import (
	"math"
	"testing"
)

// TestRound: every bf16 value is rounded to itself. A number between two neighbours goes to the
// nearer one, and the midpoint to the even one. The neighbour of the largest number is an infinity,
// which counts as 2^128 in this comparison.
func TestRound(t *testing.T) {
	value := func(b uint16) float64 {
		if v := Widen(b); !math.IsInf(float64(v), 0) {
			return float64(v)
		}
		return math.Copysign(0x1p128, float64(Widen(b)))
	}
	for i := range 1 << 16 {
		b := uint16(i)
		x := Widen(b)
		if x != x {
			if got := Round(x); got != b|0x40 {
				t.Fatalf("NaN %04x becomes %04x", b, got)
			}
			continue
		}
		if got := Round(x); got != b {
			t.Fatalf("%04x is %g, which becomes %04x", b, x, got)
		}
		if math.IsInf(float64(x), 0) {
			continue
		}
		for _, low := range []uint32{1, 0x4000, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff} {
			x := math.Float32frombits(uint32(b)<<16 | low)
			down, up := math.Abs(float64(x)-value(b)), math.Abs(value(b+1)-float64(x))
			want := b
			if up < down || up == down && b&1 == 1 {
				want++
			}
			if got := Round(x); got != want {
				t.Fatalf("%g lies %g above %04x and %g below the next: it becomes %04x", x, down, b, up, got)
			}
		}
	}
}

// TestRoundNaN: a NaN whose payload is only in the lower 16 bits stays a NaN; cutting off these
// bits would make it an infinity.
func TestRoundNaN(t *testing.T) {
	for bits, want := range map[uint32]uint16{0x7f800001: 0x7fc0, 0xff80ffff: 0xffc0, 0xffffffff: 0xffff, 0x7fa12345: 0x7fe1} {
		if got := Round(math.Float32frombits(bits)); got != want {
			t.Errorf("%08x becomes %04x, want %04x", bits, got, want)
		}
	}
}
