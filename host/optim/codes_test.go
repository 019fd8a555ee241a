package optim

import (
	"bytes"
	"math"
	"os"
	"slices"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// torchCode is torchao's quantize_8bit_with_qmap and quantize_4bit_with_qmap for one number.
func torchCode(values []float32, x float32) uint8 {
	c := 0
	for half := len(values) / 2; half > 0; half /= 2 {
		if x >= values[c+half] {
			c += half
		}
	}
	up := min(c+1, len(values)-1)
	if float32(x-values[c]) >= float32(float32(values[up]-values[c])*0.5) {
		c = up
	}
	return uint8(c)
}

// code returns the code of x in 4 or 8 bits, found by the kernels in use. The magnitude of x is at
// most 1.
func (b *codebook) code(x float32, bits int) uint8 {
	var c [128]byte
	var one float32 = 1
	xs := make([]float32, 128)
	xs[77] = x
	if bits == 4 {
		active.codes.encode16(b, &xs[0], &c[0], 128, &one)
		return c[77/2] >> 4
	}
	active.codes.encode(b, &xs[0], &c[0], 128, &one)
	return c[77]
}

// TestCodesAreTheNearest: every number gets the code that torchao gives it. The test tries the
// codebook's values, the midpoints between them, their fp32 neighbours, and numbers of all
// magnitudes.
func TestCodesAreTheNearest(t *testing.T) {
	every := uint32(testkit.Every(t, 3))
	if testing.Short() {
		every = 51
	}
	for bits, s := range schemes {
		for _, signed := range []bool{true, false} {
			b := s.book(signed)
			values := b.values[:1<<bits]
			var try []float32
			var want []uint8
			for _, x := range aroundCodes(values, every) {
				if x <= 1 && x >= -1 && (signed || x >= 0) {
					try, want = append(try, x), append(want, torchCode(values, x))
				}
			}
			for c, v := range values {
				try, want = append(try, v), append(want, uint8(c))
			}
			for _, k := range available() {
				useKernels(t, k)
				for i, x := range try {
					if got := b.code(x, bits); got != want[i] {
						t.Fatalf("%d bits, signed %t: %v (%#x) has code %d (%v), want %d (%v)", bits, signed, x, math.Float32bits(x), got, values[got], want[i], values[want[i]])
					}
				}
			}
		}
	}
}

// aroundCodes returns the values, the midpoints between neighbouring values, and one in `every`
// numbers of all magnitudes. Each comes with its fp32 neighbours and with both signs.
func aroundCodes(values []float32, every uint32) (try []float32) {
	around := func(x float32) {
		up, down := float32(2), float32(-2)
		for _, x := range []float32{x, math.Nextafter32(x, up), math.Nextafter32(x, down), math.Nextafter32(math.Nextafter32(x, down), down)} {
			try = append(try, x, -x)
		}
	}
	for i, v := range values {
		around(v)
		around(halfway(v, values[min(i+1, len(values)-1)]))
		around((v + values[max(0, i-1)]) / 2)
	}
	for bits := uint32(0); bits <= 0x3f800000; bits += every * 0x3fff { // crosses the borders of buckets
		around(math.Float32frombits(bits))
	}
	return try
}

// TestBlocksOfZeros: memory that is all zero decodes to moments of zero. Encoding a block of zeros
// gives torchao's smallest scale instead of 0, so that the next decoding is finite.
func TestBlocksOfZeros(t *testing.T) {
	for bits, s := range schemes {
		for _, signed := range []bool{true, false} {
			x, codes, scales := make([]float32, s.block), make([]byte, s.codes.Bytes(s.block)), make([]float32, 1)
			x[0] = 1
			s.decode(s.book(signed), x, codes, scales)
			if slices.Max(x) != 0 || slices.Min(x) != 0 {
				t.Errorf("%d bits, signed %t: zeros stand for %v", bits, signed, x[:3])
			}
			s.encode(s.book(signed), x, codes, scales)
			s.decode(s.book(signed), x, codes, scales)
			if scales[0] != 1e-12 || !(slices.Max(x) <= 1e-13) || slices.Min(x) < 0 {
				t.Errorf("%d bits, signed %t: zeros have the scale %v and become %v", bits, signed, scales[0], x[:3])
			}
		}
	}
}

// TestGradientsWithHugeSquares: if the square of a finite gradient overflows, its block of
// quantised moments stays usable. Weights and scales stay finite, and the other elements are
// updated again when the huge moment has decayed.
func TestGradientsWithHugeSquares(t *testing.T) {
	testkit.NotShort(t)
	for _, k := range available() {
		useKernels(t, k)
		for _, bits := range []int{8, 4} {
			o := Quantised{AdamW{Beta1: 0.5, Beta2: 0.5, Eps: 1e-8}, bits}
			l := matrix(4096, false)
			w, states := held(&l, o.Planes)
			g := make([]float32, 4096)
			for step := 1; step <= 300; step++ {
				for i := range g {
					g[i] = 1
				}
				if step == 1 {
					g[5] = 1e25
				}
				before := w.get(4096)[6]
				update(o, Rate{LR: 0.1, Step: int64(step), Clip: 1}, w, states, gradFrom(g, false))
				for i, x := range w.get(4096) {
					if x-x != 0 {
						t.Fatalf("%s, %d bits: after step %d weight %d is %v", k.name, bits, step, i, x)
					}
				}
				for _, s := range states {
					if s.DType == F32 && slices.Max(View[float32](s.Data)) > math.MaxFloat32 {
						t.Fatalf("%s, %d bits: after step %d a scale is infinite", k.name, bits, step)
					}
				}
				if after := w.get(4096)[6]; step == 300 && !(after < before-0.05) {
					t.Errorf("%s, %d bits: step %d moves a weight of the block from %v to %v", k.name, bits, step, before, after)
				}
			}
		}
	}
}

// TestSmallPieces: tensors (pieces) of fewer than 4,096 elements, or with a partial block, keep
// fp32 moments.
func TestSmallPieces(t *testing.T) {
	for n, want := range map[int][2]bool{4096: {true, true}, 4096 - 256: {}, 4096 + 128: {false, true}, 4096 + 64: {}, 1 << 20: {true, true}} {
		p := Pieces(model.Param{Role: model.RoleO, Rows: n, Cols: 1, Dims: 2})[0]
		for i, bits := range []int{8, 4} {
			q := Quantised{AdamW{}, bits}
			planes := []Plane{firstMoment, secondMoment}
			if want[i] {
				planes = []Plane{q.codesOf(adamMoments[0]), q.scalesOf(adamMoments[0]), q.codesOf(adamMoments[1]), q.scalesOf(adamMoments[1])}
			}
			if got := q.Planes(p); !slices.Equal(got, planes) {
				t.Errorf("%d elements, %d bits: %v, want %v", n, bits, got, planes)
			}
		}
	}
}

// TestMomentsEndAtZero: a moment that gets no more gradients becomes 0, and does not stay a
// subnormal number. From then on its weights do not change.
func TestMomentsEndAtZero(t *testing.T) {
	for _, o := range []Optimizer{Lion{Beta1: 0.5, Beta2: 0.5}, SGD{Momentum: 0.5}} {
		l := matrix(64, false)
		w, states := held(&l, o.Planes)
		m := View[float32](states[0].Data)
		m[0] = 1e-30
		for range 40 {
			update(o, Rate{LR: 0.1, Step: 1, Clip: 1}, w, states, gradFrom(make([]float32, 64), false))
			if m[0] != 0 && m[0] < 0x1p-126 {
				t.Fatalf("%T: the moment is %v", o, m[0])
			}
		}
		before := w.get(64)
		update(o, Rate{LR: 0.1, Step: 1, Clip: 1}, w, states, gradFrom(make([]float32, 64), false))
		if m[0] != 0 || !slices.Equal(w.get(64), before) || before[1] != 0 {
			t.Errorf("%T: the moment is %v, weights %v of %v", o, m[0], w.get(2), before[:2])
		}
	}
}

// TestGreatestWhereverItIs: with every instruction set, the kernel greatest finds the largest
// magnitude at each position of a block, with both signs, and also a NaN.
func TestGreatestWhereverItIs(t *testing.T) {
	for _, k := range available() {
		x := make([]float32, 256)
		for i := range x {
			for _, most := range []float32{3, -3, float32(math.Inf(-1)), float32(math.NaN())} {
				for j := range x {
					x[j] = float32(j%5) / 2 * float32(1-j%2*2)
				}
				x[i] = most
				var got float32
				k.codes.greatest(&x[0], len(x), &got)
				if math.Float32bits(got) != math.Float32bits(most)&0x7fffffff {
					t.Fatalf("%s: with %g at %d the greatest magnitude is %g", k.name, most, i, got)
				}
			}
		}
	}
}

// TestCodesWithoutTables: every instruction set finds the codes that plain Go finds in its table. The numbers are
// around every value and border, powers of two and of ten, every exponent, NaNs, and some others.
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

// TestCodesOfAllNumbers makes the comparison of TestCodesWithoutTables with every fourth 2²⁰ of the 2³² fp32 numbers, and
// with all of them with MT_LONG=all. One run compares every instruction set.
func TestCodesOfAllNumbers(t *testing.T) {
	testkit.LongOnly(t)
	if os.Getenv("MT_CPU") != "" || len(available()) == 1 {
		t.Skip("a run without MT_CPU and with assembly compares all instruction sets")
	}
	some := make([]uint32, 1<<20)
	step := uint64(len(some) * 4096 / testkit.Count(t, 4096, 256))
	for first := uint64(0); first < 1<<32; first += step {
		for i := range some {
			some[i] = uint32(first) + uint32(i)
		}
		sameCodes(t, some)
	}
}

// sameCodes compares the codes that each instruction set's kernels find with those of plain Go.
// bits has the fp32 bits of the numbers; its length is a multiple of 128.
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

// TestNumbersOfAllCodes: with every instruction set, every code decodes to the same number, with
// any scale.
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

// TestCodesOfQuotients: a number gets the code of its quotient by the scale, rounded to fp32. A
// kernel that multiplies by the reciprocal would fail. The numbers lie near each border between two
// codes, times the scale.
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
