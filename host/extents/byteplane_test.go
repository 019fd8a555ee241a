package extents

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// fill makes n bytes of each kind of data that runs write to disk, such as fp32 moments or 8-bit
// codes, and of extreme kinds such as zeros.
var fill = map[string]func(r *rand.Rand, n int) []byte{
	"fp32": func(r *rand.Rand, n int) (b []byte) {
		for len(b) < n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64()/100)))
		}
		return b[:n]
	},
	"bf16": func(r *rand.Rand, n int) (b []byte) {
		for len(b) < n {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(r.NormFloat64()/100))>>16))
		}
		return b[:n]
	},
	"codes": func(r *rand.Rand, n int) (b []byte) {
		for len(b) < n {
			b = append(b, byte(128+20*r.NormFloat64()))
		}
		return b
	},
	"noise": func(r *rand.Rand, n int) (b []byte) {
		for len(b) < n {
			b = append(b, byte(r.Uint32()))
		}
		return b
	},
	"zeros": func(_ *rand.Rand, n int) []byte { return make([]byte, n) },
	"zeros before noise": func(r *rand.Rand, n int) []byte { // which sampling may not see
		b := make([]byte, n)
		for i := n / 2; i < n; i++ {
			b[i] = byte(r.Uint32())
		}
		return b
	},
}

// bounds has, for each kind of data in fill, the smallest and largest factor by which the coder
// must compress it. Normally distributed fp32 and bf16 have exponents with 2.5 bits of entropy and
// a sign. Codes with a standard deviation of 20 have log2(20·√(2πe)) = 6.4 bits.
var bounds = map[string][2]float64{
	"fp32": {1.17, 1.22}, "bf16": {1.42, 1.52}, "codes": {1.20, 1.26}, "noise": {0.999, 1}, "zeros": {5000, 8192}, "zeros before noise": {1, 2.1},
}

// TestComesBack: data of every kind and size decodes to the same bytes, and is compressed as far as
// bounds demands.
func TestComesBack(t *testing.T) {
	var c coder
	for kind, of := range fill {
		for _, n := range []int{0, 1, 4, 6, 64, 4096, blockBytes, blockBytes + 4, 3*blockBytes - 12, 8 * blockBytes} {
			src := of(rand.New(rand.NewPCG(1, uint64(n))), n)
			packed, back := make([]byte, n+headBytes*(2+n/blockBytes)), make([]byte, n)
			took, ok := c.encode(packed, src)
			if !ok {
				t.Fatalf("%s: %d bytes have no room in %d", kind, n, len(packed))
			}
			if kind == "noise" && n >= blockBytes && binary.LittleEndian.Uint32(packed) != whole {
				t.Errorf("%d bytes of noise are coded, want a copy", n)
			}
			if err := c.decode(back, packed[:took]); err != nil || !bytes.Equal(back, src) {
				t.Errorf("%s: %d bytes come back otherwise: %v", kind, n, err)
			}
			if ratio := float64(n) / float64(took); n >= 8*blockBytes && (ratio < bounds[kind][0] || ratio > bounds[kind][1]) {
				t.Errorf("%s: %.3f times as small, want %v", kind, ratio, bounds[kind])
			}
			for _, room := range []int{took - 1, took / 2, headBytes, headBytes - 1} {
				if room < 0 || room >= took {
					continue
				}
				guard := slices.Repeat([]byte{0xA5}, took)
				if _, ok := c.encode(guard[:room:room], src); ok {
					t.Errorf("%s: %d bytes of %d are taken for all", kind, room, took)
				}
				if !bytes.Equal(guard[room:], slices.Repeat([]byte{0xA5}, took-room)) {
					t.Errorf("%s: what is behind the room is written", kind)
				}
			}
		}
	}
}

// TestPlanesArePutApart: merge is the inverse of split, and split writes byte k of each word to
// plane k.
func TestPlanesArePutApart(t *testing.T) {
	for _, n := range []int{4, 28, 32, 36, 1024, blockBytes} {
		src := fill["noise"](rand.New(rand.NewPCG(2, 2)), n)
		var c coder
		split(&c.apart, src)
		var from [planes][]byte
		for k := range from {
			from[k] = c.apart[k][:n/planes]
			for i, x := range from[k] {
				if x != src[planes*i+k] {
					t.Fatalf("%d bytes: plane %d has %d at %d, want %d", n, k, x, i, src[planes*i+k])
				}
			}
		}
		back := make([]byte, n)
		if merge(back, &from); !bytes.Equal(back, src) {
			t.Errorf("%d bytes come back otherwise", n)
		}
	}
}

// TestDamage: decoding changed or cut input gives an error or other bytes, and never panics.
func TestDamage(t *testing.T) {
	var c coder
	for kind, of := range fill {
		size := blockBytes
		if kind != "noise" { // which is copied whole in blocks of this size, and not in small ones
			size += 64
		}
		src := of(rand.New(rand.NewPCG(3, 3)), size)
		packed, back := make([]byte, 2*len(src)), make([]byte, len(src))
		n, _ := c.encode(packed, src)
		packed = packed[:n]
		for _, cut := range []int{0, 1, headBytes - 1, headBytes, n / 2, n - 1} {
			if cut < n && c.decode(back, packed[:cut]) == nil {
				t.Errorf("%s: %d of %d bytes are taken for all", kind, cut, n)
			}
		}
		r := rand.New(rand.NewPCG(4, 4))
		for range 200 {
			bad := bytes.Clone(packed)
			for range 1 + r.IntN(3) {
				bad[min(r.IntN(n), r.IntN(n), r.IntN(n))] ^= byte(1 << r.IntN(8)) // heads and tables more often
			}
			_ = c.decode(back, bad) // and does not panic
		}
	}
	if err := c.decode(make([]byte, blockBytes), make([]byte, blockBytes)); err == nil {
		t.Error("zeros are taken for a block")
	}
}
