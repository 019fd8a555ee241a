package gemm

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
)

// anyBF16 draws bf16 patterns whose products and sums often are close to leastNormal, overflow, cancel, or are NaN.
func anyBF16(r *rand.Rand) func() uint16 {
	return func() uint16 {
		sign, mantissa := uint16(r.IntN(2))<<15, uint16(r.IntN(128))
		if r.IntN(2) == 0 {
			mantissa = 0
		}
		switch r.IntN(8) {
		case 0:
			return uint16(r.Uint32())
		case 1:
			return sign | mantissa // below leastNormal
		case 2, 3:
			return sign | uint16(1+r.IntN(30))<<7 | mantissa
		default:
			return sign | uint16(118+r.IntN(16))<<7 | mantissa
		}
	}
}

// sameNumber says whether a and b have the same bits, or are both NaN.
func sameNumber(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// exactSum returns the correct result of addFlushed: the exact sum, rounded to 24 bits however small it is. A result
// below leastNormal becomes a zero of its sign.
func exactSum(acc, a, b float32) float32 {
	x := new(big.Float).SetPrec(600).SetFloat64(float64(flush(acc)))
	y := new(big.Float).SetPrec(600).SetFloat64(float64(flush(a)))
	x.Add(x, y.Mul(y, new(big.Float).SetFloat64(float64(flush(b)))))
	rounded := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(x)
	v, _ := rounded.Float64()
	if math.Abs(v) < leastNormal {
		return float32(math.Copysign(0, v))
	}
	return float32(v)
}

func TestAddFlushedRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	draw := anyBF16(r)
	widen := func() (uint32, float32) {
		bits := uint32(draw()) << 16
		return bits, math.Float32frombits(bits)
	}
	for _, tiny := range []float64{0x1p-149, 0x1p-150, 0x1p-151, 0x1p-152, 0x1.8p-151, 0x1.8p-152} { // around the limit of flushing
		for _, sign := range []float32{1, -1} {
			a, b := -sign*0x1p-60, float32(tiny*0x1p60)
			if got, want := addFlushed(sign*leastNormal, math.Float32bits(a), math.Float32bits(b)), exactSum(sign*leastNormal, a, b); !sameNumber(got, want) {
				t.Errorf("%g − %g is %g, want %g", sign*leastNormal, float64(sign)*tiny, got, want)
			}
		}
	}
	for range 40_000 {
		x, a := widen()
		y, b := widen()
		acc := math.Float32frombits(uint32(draw())<<16 | uint32(r.IntN(4)*r.IntN(1<<16)))
		finite := func(v float32) bool { return v-v == 0 }
		if !finite(a) || !finite(b) || !finite(acc) {
			continue
		}
		got, want := addFlushed(acc, x, y), exactSum(acc, a, b)
		if got == 0 && want == 0 { // big.Float has other signs for sums that are 0
			continue
		}
		if !sameNumber(got, want) {
			t.Fatalf("%g + %g · %g is %g (%#x), want %g (%#x)", acc, a, b, got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
}

// kernelOfPairs returns a kernel for one row in plain Go that adds each pair of products by the
// function add.
func kernelOfPairs(columns int, add func(acc float32, x, y uint32) float32) kernelFunc {
	return func(k int, a *float32, _ int, b, c *float32, _ int, d *float32, _ int, mask uint32, _, _, _, _ uintptr) {
		left, right := unsafe.Slice((*uint32)(unsafe.Pointer(a)), k), unsafe.Slice((*uint32)(unsafe.Pointer(b)), k*columns)
		for j := range columns {
			if mask>>j&1 == 0 {
				continue
			}
			var sum float32
			for i, x := range left {
				sum = add(sum, x, right[i*columns+j])
			}
			if c != nil {
				sum += *at(c, j)
			}
			*at(d, j) = sum
		}
	}
}

// TestAddsInOrder: addsInOrder accepts a kernel that adds like addPair, and rejects kernels that
// add in another order, round otherwise or do not flush small numbers to 0.
func TestAddsInOrder(t *testing.T) {
	if got := addPair(0x1p24, pair(1, -0x1p24), pair(1, 1)); got != 0 {
		t.Errorf("2^24, rounded after 1 is added, less 2^24 is %g, want 0", got)
	}
	value := math.Float32frombits
	products := func(x, y uint32) (float64, float64) {
		return float64(value(x&0xffff0000)) * float64(value(y&0xffff0000)), float64(value(x<<16)) * float64(value(y<<16))
	}
	for name, add := range map[string]func(acc float32, x, y uint32) float32{
		"the lower half first": func(acc float32, x, y uint32) float32 {
			return addPair(acc, x<<16|x>>16, y<<16|y>>16)
		},
		"rounded once": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			return float32(float64(acc) + u + l)
		},
		"both products first": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			return acc + float32(u+l)
		},
		"nothing flushed": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			return float32(float64(float32(float64(acc)+u)) + l)
		},
		"operands not flushed": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			return flush(float32(float64(flush(float32(float64(acc)+u))) + l))
		},
		"flushed before it is rounded": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			for _, p := range []float64{u, l} {
				if s := float64(acc) + p; math.Abs(s) < leastNormal {
					acc = float32(math.Copysign(0, s))
				} else {
					acc = float32(s)
				}
			}
			return acc
		},
		"towards zero": func(acc float32, x, y uint32) float32 {
			u, l := products(x, y)
			for _, p := range []float64{u, l} {
				s := float64(acc) + p
				if acc = float32(s); math.Abs(float64(acc)) > math.Abs(s) {
					acc = math.Nextafter32(acc, 0)
				}
			}
			return acc
		},
		"one column apart": func(acc float32, x, y uint32) float32 { return addPair(acc, x, y^1) },
	} {
		if addsInOrder(kernelOfPairs(32, add)) {
			t.Errorf("%s: not found out", name)
		}
	}
	if !addsInOrder(kernelOfPairs(32, addPair)) {
		t.Error("addPair itself does not pass")
	}
}

// withPairs runs f for the kernels that multiply pairs of bf16, even if this machine would choose
// others.
func withPairs(t *testing.T, f func(l *level)) {
	l := pairsLevel()
	if l == nil {
		t.Skip("this processor has no AVX512_BF16")
	}
	f(l)
}

// TestPairsAreTheTwins: the assembly kernels of all heights give the same bits as addPair in plain
// Go, whatever the operands are.
func TestPairsAreTheTwins(t *testing.T) {
	withPairs(t, func(l *level) {
		r := rand.New(rand.NewPCG(7, 7))
		draw := anyBF16(r)
		twin := kernelOfPairs(l.nr, addPair)
		const most, ld = 40, 43
		a, b := make([]float32, l.mr*ld), make([]float32, most*l.nr)
		d := make([]float32, l.mr*l.nr)
		for h := 1; h <= l.mr; h++ {
			for k := 1; k <= most; k++ {
				for _, x := range [][]float32{a, b} {
					for i := range x {
						x[i] = math.Float32frombits(uint32(draw())<<16 | uint32(draw()))
					}
				}
				l.pairs.kernels[h](k, &a[0], ld, &b[0], nil, 0, &d[0], l.nr, uint32(1<<l.nr-1), 0, 0, 0, 0)
				for row := range h {
					want := make([]float32, l.nr)
					twin(k, &a[row*ld], 0, &b[0], nil, 0, &want[0], 0, uint32(1<<l.nr-1), 0, 0, 0, 0)
					for j, w := range want {
						if got := d[row*l.nr+j]; !sameNumber(got, w) {
							t.Fatalf("height %d, %d pairs, (%d, %d): %g (%#x), the twin %g (%#x)",
								h, k, row, j, got, math.Float32bits(got), w, math.Float32bits(w))
						}
					}
				}
			}
		}
	})
}

// TestPairsKeepTheBits: products with the instruction for pairs of bf16 have the same bits as
// products widened to fp32, in all transpositions.
func TestPairsKeepTheBits(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	withPairs(t, func(l *level) {
		widened := *l
		widened.pairs = nil
		all := append(shapes[:len(shapes):len(shapes)], []struct{ m, n, k int }{{33, 40, 1025}, {70, 31, 2049}, {15, 70, 513}, {9, 40, 1}, {9, 40, 2}, {9, 40, 3}}...)
		for i, s := range all {
			for variant := range 4 {
				p := problem{m: s.m, n: s.n, k: s.k, aBF16: true, bBF16: true, dBF16: (variant+i)%3 == 0,
					transA: variant&1 != 0, transB: variant&2 != 0, cMode: i % 3, withBias: i%2 == 0}
				seed := uint64(4*i + variant)
				got := p.fill(normals(seed)).runOn(t, pool, &Workspace{level: l})
				want := p.fill(normals(seed)).runOn(t, pool, &Workspace{level: &widened})
				for j := range got {
					if math.Float32bits(got[j]) != math.Float32bits(want[j]) {
						t.Fatalf("%v: element (%d, %d) is %g, widened %g", p, j/p.n, j%p.n, got[j], want[j])
					}
				}
			}
		}
	})
}

// TestPairsAreFilledWithZeros: for odd K the last pair is filled with a zero, so an infinity in the
// last element of K stays one and does not become NaN.
func TestPairsAreFilledWithZeros(t *testing.T) {
	pool := parallel.New(1)
	defer pool.Close()
	withPairs(t, func(l *level) {
		for variant := range 8 {
			p := problem{m: 9, n: 40, k: 3, aBF16: true, bBF16: true, transA: variant&1 != 0, transB: variant&2 != 0}
			x := p.fill(func() float64 { return 1 })
			inf := bf16.Round(float32(math.Inf(1)))
			of, size, rowsOfK := x.a, p.m, !p.transA
			if variant&4 != 0 {
				of, size, rowsOfK = x.b, p.n, p.transB
			}
			for i := range size { // the last of K
				if rowsOfK {
					of.u16[guard+i*p.k+p.k-1] = inf
				} else {
					of.u16[guard+(p.k-1)*size+i] = inf
				}
			}
			for i, v := range x.runOn(t, pool, &Workspace{level: l}) {
				if !math.IsInf(float64(v), 1) {
					t.Fatalf("%v, infinities in B: %t: element %d is %g", p, variant&4 != 0, i, v)
				}
			}
		}
	})
}

// TestPairsTakeOnlyBF16: if only one operand is bf16, the fp32 operand is not rounded to bf16 for
// the pair instruction.
func TestPairsTakeOnlyBF16(t *testing.T) {
	pool := parallel.New(1)
	defer pool.Close()
	withPairs(t, func(l *level) {
		for _, p := range []problem{{m: 20, n: 33, k: 50, aBF16: true}, {m: 20, n: 33, k: 50, bBF16: true}} {
			t.Run(fmt.Sprint(p), func(t *testing.T) {
				x := p.fill(normals(5))
				want, size := x.oracle()
				for i, v := range x.runOn(t, pool, &Workspace{level: l}) {
					if math.Abs(float64(v)-want[i]) > 60*0x1p-24*size[i] {
						t.Fatalf("element %d is %g, want %g", i, v, want[i])
					}
				}
			})
		}
	})
}
