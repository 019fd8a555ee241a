package checkpoint

import (
	"math"
	"testing"
)

// TestSplitJoin: every upper half with the lower halves around the ties.
func TestSplitJoin(t *testing.T) {
	c := config(t, nil)
	l := newLayers(c, true)[0]
	tensor := l.Layout.Tensors[0]
	buf := make([]byte, 4)
	for hi := range 1 << 16 {
		for _, lo := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			bits := uint32(hi)<<16 | lo
			l.setWeights(tensor, 3, []uint32{bits})
			got := l.encode(tensor, planeF32, 3, 1, buf)
			if g := uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24; g != bits {
				t.Fatalf("%08x came back as %08x", bits, g)
			}
		}
	}
}

func TestHiOf(t *testing.T) {
	for _, tc := range []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f81}, {0xbf808000, 0xbf81}, {0x3f818000, 0x3f82},
		{0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}, {0x7fffffff, 0x7fff}, {0xffffffff, 0xffff},
	} {
		if got := hiOf(tc.bits); got != tc.want {
			t.Errorf("%08x: got %04x, want %04x", tc.bits, got, tc.want)
		}
	}
}

// TestHalfBits compares every half with its value by the definition.
func TestHalfBits(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac := h>>10&31, float64(h&0x3ff)
		want := math.Ldexp(1024+frac, exp-25)
		switch {
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		case exp == 0:
			want = math.Ldexp(frac, -24)
		}
		if h>>15 == 1 {
			want = -want
		}
		got := float64(math.Float32frombits(halfBits(uint16(h))))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != math.Signbit(want) && !math.IsNaN(want) {
			t.Fatalf("%04x: got %g, want %g", h, got, want)
		}
	}
}
