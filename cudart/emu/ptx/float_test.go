package ptx

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// floatCases are the bits of floats of every kind, and as many random ones as asked
// for.
func floatCases(random int) []uint64 {
	out := []uint64{0, 1 << 31, 1, 0x80000001, 0x7fffff, 0x800000, 0x807fffff, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x4b800001,
		0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x40490fdb, 0x4f000000, 0x5f000000}
	rng := rand.New(rand.NewPCG(5, 6))
	for range random {
		out = append(out, uint64(rng.Uint32()), uint64(bits32(rng.Float32()*4-2)))
	}
	return out
}

// sameF32 compares results; any two NaNs are the same.
func sameF32(a, b uint32) bool {
	return a == b || f32(a) != f32(a) && f32(b) != f32(b)
}

// exact is a finite float, given by its bits, as a number without any rounding.
func exact(x uint64) *big.Float {
	return new(big.Float).SetPrec(2000).SetFloat64(float64(f32(uint32(x))))
}

func finite(xs ...uint64) bool {
	for _, x := range xs {
		if uint32(x)&0x7f800000 == 0x7f800000 {
			return false
		}
	}
	return true
}

// TestFusedMultiplyAdd compares fma.rn.f32 with exact arithmetic rounded once.
func TestFusedMultiplyAdd(t *testing.T) {
	xs := floatCases(12)
	execute(t, "fma.rn.f32 %fd, %fa, %fb, %fc;", "%fd", xs, xs, xs, func(a, b, c, got uint64) {
		want := bits32(float32(math.FMA(float64(f32(uint32(a))), float64(f32(uint32(b))), float64(f32(uint32(c))))))
		if finite(a, b, c) {
			p := new(big.Float).SetPrec(2000).Mul(exact(a), exact(b))
			p.Add(p, exact(c))
			if p.Sign() != 0 { // zeros have the sign that float64 gives them, where such sums are exact
				v, _ := p.Float32()
				want = bits32(v)
			}
		}
		if !sameF32(uint32(got), want) {
			t.Errorf("fma of %#x, %#x, %#x gives %#x, want %#x", a, b, c, got, want)
		}
	})
}

// TestFusedDoubleRounding has sums whose first 53 bits end half-way between two
// floats of 24 bits.
func TestFusedDoubleRounding(t *testing.T) {
	one := uint64(0x3f800000)
	// (1 + 2^-12)² = 1 + 2^-11 + 2^-24 is half-way; a little more or less decides
	// how it is rounded.
	for _, c := range []struct{ c, want float32 }{
		{0x1p-80, 1 + 0x1p-11 + 0x1p-23}, {-0x1p-80, 1 + 0x1p-11}, {0, 1 + 0x1p-11},
	} {
		x := uint64(bits32(1 + 0x1p-12))
		execute(t, "fma.rn.f32 %fd, %fa, %fb, %fc;", "%fd", []uint64{x, one}, []uint64{x}, []uint64{uint64(bits32(c.c))}, func(a, _, _, got uint64) {
			if a == x && f32(uint32(got)) != c.want {
				t.Errorf("(1 + 2^-12)² + %g gives %x, want %x", c.c, f32(uint32(got)), c.want)
			}
		})
	}
}

func TestFloats(t *testing.T) {
	xs := floatCases(20)
	flush := func(x uint64) float32 {
		if uint32(x)&0x7f800000 == 0 {
			x &= 1 << 31
		}
		return f32(uint32(x))
	}
	for _, c := range []struct {
		body string
		want func(a, b float32) float32
	}{
		{"add.f32 %fd, %fa, %fb;", func(a, b float32) float32 { return a + b }},
		{"sub.rn.f32 %fd, %fa, %fb;", func(a, b float32) float32 { return a - b }},
		{"mul.f32 %fd, %fa, %fb;", func(a, b float32) float32 { return a * b }},
		{"div.rn.f32 %fd, %fa, %fb;", func(a, b float32) float32 { return a / b }},
		{"add.f32 %fd, %fa, 0f3FC00000;", func(a, b float32) float32 { return a + 1.5 }},
		{"sqrt.rn.f32 %fd, %fa;", func(a, _ float32) float32 { return float32(math.Sqrt(float64(a))) }},
		{"rcp.rn.f32 %fd, %fa;", func(a, _ float32) float32 { return 1 / a }},
		{"neg.f32 %fd, %fa;", func(a, _ float32) float32 { return -a }},
		{"abs.f32 %fd, %fa;", func(a, _ float32) float32 { return float32(math.Abs(float64(a))) }},
		{"mul.ftz.f32 %fd, %fa, %fb;", func(a, b float32) float32 {
			return flush(uint64(bits32(flush(uint64(bits32(a))) * flush(uint64(bits32(b))))))
		}},
		{"min.f32 %fd, %fa, %fb;", func(a, b float32) float32 {
			if a != a {
				return b
			} else if b != b {
				return a
			}
			return min(a, b)
		}},
		{"max.NaN.f32 %fd, %fa, %fb;", func(a, b float32) float32 { return max(a, b) }},
		{"setp.lt.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(a < b, a, b) }},
		{"setp.geu.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(!(a < b), a, b) }},
		{"setp.neu.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(a != b, a, b) }},
		{"setp.ne.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(a < b || a > b, a, b) }},
		{"setp.equ.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(!(a < b || a > b), a, b) }},
		{"setp.gtu.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(!(a <= b), a, b) }},
		{"setp.nan.f32 %p, %fa, %fb; selp.f32 %fd, %fa, %fb, %p;", func(a, b float32) float32 { return sel(a != a || b != b, a, b) }},
		{"cvt.f64.f32 %dd, %fa; cvt.rn.f32.f64 %fd, %dd;", func(a, _ float32) float32 { return a }},
		{"cvt.rni.f32.f32 %fd, %fa;", func(a, _ float32) float32 { return float32(math.RoundToEven(float64(a))) }},
		{"cvt.rmi.f32.f32 %fd, %fa;", func(a, _ float32) float32 { return float32(math.Floor(float64(a))) }},
	} {
		execute(t, c.body, "%fd", xs, xs, none, func(a, b, _, got uint64) {
			if want := bits32(c.want(f32(uint32(a)), f32(uint32(b)))); !sameF32(uint32(got), want) {
				t.Errorf("%s of %#x, %#x gives %#x, want %#x", c.body, a, b, got, want)
			}
		})
	}
}

func sel(yes bool, a, b float32) float32 {
	if yes {
		return a
	}
	return b
}

// TestApproximations: results are within 2^-22 of the exact value, relatively,
// where that is a normal float.
func TestApproximations(t *testing.T) {
	xs := floatCases(200)
	for _, c := range []struct {
		body string
		want func(float64) float64
	}{
		{"ex2.approx.ftz.f32 %fd, %fa;", math.Exp2},
		{"ex2.approx.f32 %fd, %fa;", math.Exp2},
		{"lg2.approx.ftz.f32 %fd, %fa;", math.Log2},
		{"rsqrt.approx.ftz.f32 %fd, %fa;", func(x float64) float64 { return 1 / math.Sqrt(x) }},
		{"rcp.approx.ftz.f32 %fd, %fa;", func(x float64) float64 { return 1 / x }},
		{"sqrt.approx.f32 %fd, %fa;", math.Sqrt},
		{"div.approx.f32 %fd, %fa, 0f40400000;", func(x float64) float64 { return x / 3 }},
		{"div.full.f32 %fd, %fa, 0f40400000;", func(x float64) float64 { return x / 3 }},
	} {
		execute(t, c.body, "%fd", xs, none, none, func(a, _, _, got uint64) {
			if uint32(a)&0x7f800000 == 0 && uint32(a)<<1 != 0 {
				return // denormals may be treated as zeros
			}
			want, v := c.want(float64(f32(uint32(a)))), float64(f32(uint32(got)))
			if math.Abs(want) < 0x1p-126 {
				if math.Abs(v) > 0x1p-126 {
					t.Errorf("%s of %#x gives %g, want %g", c.body, a, v, want)
				}
				return
			}
			want = float64(float32(want))
			if v != want && !(math.Abs(v-want) <= 0x1p-22*math.Abs(want)) && !(v != v && want != want) {
				t.Errorf("%s of %#x gives %g, want %g", c.body, a, v, want)
			}
		})
	}
}

func TestFloatConversions(t *testing.T) {
	xs := append(floatCases(30), ints...)
	clamp := func(v, lo, hi float64) float64 {
		if v != v {
			return 0
		}
		return min(max(v, lo), hi)
	}
	for _, c := range []struct {
		body, result string
		want         func(a uint64, x float64) uint64
	}{
		{"cvt.rzi.s32.f32 %d, %fa;", "%d", func(_ uint64, x float64) uint64 {
			return uint64(uint32(int32(clamp(math.Trunc(x), math.MinInt32, math.MaxInt32))))
		}},
		{"cvt.rni.s32.f32 %d, %fa;", "%d", func(_ uint64, x float64) uint64 {
			return uint64(uint32(int32(clamp(math.RoundToEven(x), math.MinInt32, math.MaxInt32))))
		}},
		{"cvt.rmi.u32.f32 %d, %fa;", "%d", func(_ uint64, x float64) uint64 { return uint64(uint32(clamp(math.Floor(x), 0, math.MaxUint32))) }},
		{"cvt.rn.f32.s32 %fd, %a;", "%fd", func(a uint64, _ float64) uint64 { return uint64(bits32(float32(int32(a)))) }},
		{"cvt.rn.f32.u32 %fd, %a;", "%fd", func(a uint64, _ float64) uint64 { return uint64(bits32(float32(uint32(a)))) }},
		{"cvt.s64.s32 %ld, %a; cvt.rn.f32.s64 %fd, %ld;", "%fd", func(a uint64, _ float64) uint64 { return uint64(bits32(float32(int32(a)))) }},
		{"cvt.rn.f64.s32 %dd, %a; cvt.rzi.s32.f64 %d, %dd;", "%d", func(a uint64, _ float64) uint64 { return a & 0xffffffff }},
		{"cvt.rn.bf16.f32 %hd, %fa; cvt.u32.u16 %d, %hd;", "%d", func(a uint64, x float64) uint64 { return uint64(nearestBF16(uint32(a))) }},
		{"cvt.rn.bf16x2.f32 %d, %fa, 0f3F800000;", "%d", func(a uint64, x float64) uint64 { return uint64(nearestBF16(uint32(a)))<<16 | 0x3f80 }},
	} {
		execute(t, c.body, c.result, xs, none, none, func(a, _, _, got uint64) {
			if want := c.want(a, float64(f32(uint32(a)))); got != want {
				t.Errorf("%s of %#x gives %#x, want %#x", c.body, a, got, want)
			}
		})
	}
}

// nearestBF16 picks the nearer of the two bfloat16 around x by its distance in
// float64, and the even one where both are as near.
func nearestBF16(x uint32) uint32 {
	v := float64(f32(x))
	if v != v {
		return 0x7fff
	}
	lo := x >> 16
	if x&0xffff == 0 {
		return lo
	}
	value := func(h uint32) float64 { // after the largest finite one comes 2^128
		if h&0x7fff == 0x7f80 {
			return math.Copysign(0x1p128, v)
		}
		return float64(f32(h << 16))
	}
	d0, d1 := math.Abs(v-value(lo)), math.Abs(value(lo+1)-v)
	if d0 < d1 || d0 == d1 && lo&1 == 0 {
		return lo
	}
	return lo + 1
}

func TestDoubles(t *testing.T) {
	xs := []uint64{0, 1 << 63, bits64(1), bits64(-1.5), bits64(1e300), bits64(1e-310), bits64(math.Pi), bits64(math.Inf(1)), bits64(math.NaN())}
	for _, c := range []struct {
		body string
		want func(a, b, c float64) float64
	}{
		{"add.rn.f64 %dd, %da, %db;", func(a, b, _ float64) float64 { return a + b }},
		{"mul.f64 %dd, %da, %db;", func(a, b, _ float64) float64 { return a * b }},
		{"div.rn.f64 %dd, %da, %db;", func(a, b, _ float64) float64 { return a / b }},
		{"fma.rn.f64 %dd, %da, %db, %dc;", math.FMA},
		{"neg.f64 %dd, %da;", func(a, _, _ float64) float64 { return -a }},
	} {
		execute(t, c.body, "%dd", xs, xs, xs[:4], func(a, b, cc, got uint64) {
			want := c.want(f64(a), f64(b), f64(cc))
			if v := f64(got); v != want && (v == v || want == want) {
				t.Errorf("%s of %g, %g, %g gives %g, want %g", c.body, f64(a), f64(b), f64(cc), v, want)
			}
		})
	}
}
