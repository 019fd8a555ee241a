package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// header is the header of hand-written modules.
const header = ".version 8.0\n.target sm_80\n.address_size 64\n"

// oneKernel returns a kernel that executes body, PTX with operands a, b and c of 8 bytes each, read
// from three buffers. It writes two results: one without a guard predicate, and one with a guard,
// so that only odd threads execute body and the others keep a 7.
func oneKernel(body string) string {
	return header + `.visible .entry k(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)
{
	.reg .pred %odd, %p, %q;
	.reg .b16 %ha, %hb, %hc, %hd;
	.reg .b32 %i, %a, %b, %c, %d;
	.reg .f32 %fa, %fb, %fc, %fd;
	.reg .b64 %la, %lb, %lc, %ld, %at, %o;
	.reg .f64 %da, %db, %dc, %dd;
	mov.u32 %i, %tid.x;
	mov.u32 %a, %ctaid.x;
	mov.u32 %b, %ntid.x;
	mad.lo.s32 %i, %a, %b, %i;
	and.b32 %a, %i, 1;
	setp.ne.s32 %odd, %a, 0;
	mul.wide.u32 %o, %i, 8;
` + loads("a") + loads("b") + loads("c") + `
	ld.param.u64 %at, [pd];
	add.s64 %at, %at, %o;
	add.s64 %at, %at, %o;
	mov.b64 %ld, 7; mov.b32 %d, 7; mov.b16 %hd, 7; mov.b64 %dd, 7; mov.b32 %fd, 7;
	` + body + `
	st.global.$ [%at], $d;
	mov.b64 %ld, 7; mov.b32 %d, 7; mov.b16 %hd, 7; mov.b64 %dd, 7; mov.b32 %fd, 7;
	` + guarded(body) + `
	st.global.$ [%at+8], $d;
	ret;
}`
}

func loads(x string) string {
	return strings.ReplaceAll(`	ld.param.u64 %at, [p$];
	add.s64 %at, %at, %o;
	ld.global.b16 %h$, [%at];
	ld.global.b32 %$, [%at];
	ld.global.b32 %f$, [%at];
	ld.global.b64 %l$, [%at];
	ld.global.b64 %d$, [%at];
`, "$", x)
}

// guarded puts the guard predicate @%odd before every instruction of body.
func guarded(body string) string {
	var out []string
	for _, s := range strings.Split(strings.TrimSuffix(strings.TrimSpace(body), ";"), ";") {
		out = append(out, "@%odd "+strings.TrimSpace(s)+";")
	}
	return strings.Join(out, " ")
}

// execute runs body on all combinations of the operands as, bs and cs, and calls check with each
// result. result names the register of the result: %d, %fd, %ld, %dd or %hd.
func execute(t *testing.T, body, result string, as, bs, cs []uint64, check func(a, b, c, got uint64)) {
	t.Helper()
	store, width := "b32", 4
	switch result {
	case "%ld", "%dd":
		store, width = "b64", 8
	case "%hd":
		store, width = "b16", 2
	}
	src := strings.NewReplacer("st.global.$", "st.global."+store, "], $d", "], "+result).Replace(oneKernel(body))
	k := parse(t, src).Kernel("k")
	var a, b, c []uint64
	for _, x := range as {
		for _, y := range bs {
			for _, z := range cs {
				a, b, c = append(a, x), append(b, y), append(c, z)
			}
		}
	}
	n := len(a)
	pad := make([]uint64, (n+63)/64*64-n)
	var h heap
	d := h.add("d", make([]byte, 16*(n+len(pad))))
	pa, pb, pc := h.add("a", words64(append(a, pad...)...)), h.add("b", words64(append(b, pad...)...)), h.add("c", words64(append(c, pad...)...))
	l := Launch{Kernel: k, Grid: dim(uint32((n + 63) / 64)), Block: dim(64), Params: params(d.Base, pa.Base, pb.Base, pc.Base), Memory: h}
	if _, err := l.Run(); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	get := func(at int) uint64 {
		return binary.LittleEndian.Uint64(d.Data[at:]) << (64 - 8*width) >> (64 - 8*width)
	}
	for i := range a {
		plain, odd := get(16*i), get(16*i+8)
		check(a[i], b[i], c[i], plain)
		want := uint64(7)
		if i%2 == 1 {
			want = plain
		}
		if odd != want {
			t.Fatalf("%s: guarded, thread %d gives %#x, want %#x", body, i, odd, want)
		}
	}
}

var (
	ints  = []uint64{0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x12345678, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0xdeadbeef}
	longs = []uint64{0, 1, 2, 5, 63, 64, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 32, 0x123456789abcdef0, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(0), ^uint64(4)}
	none  = []uint64{0}
)

func s32(x uint64) int64 { return int64(int32(x)) }
func u32(x uint64) int64 { return int64(uint32(x)) }

// TestIntegers: integer instructions give the results that their definitions give, computed here in
// at least 64 bits.
func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		body string
		want func(a, b, c uint64) uint64
	}{
		{"add.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a + b }},
		{"sub.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a - b }},
		{"add.s32 %d, %a, -5;", func(a, b, _ uint64) uint64 { return a - 5 }},
		{"mul.lo.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a * b }},
		{"mul.hi.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(s32(a) * s32(b) >> 32) }},
		{"mul.hi.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(u32(a)) * uint64(u32(b)) >> 32 }},
		{"mad.lo.s32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return a*b + c }},
		{"min.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(min(s32(a), s32(b))) }},
		{"min.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(min(u32(a), u32(b))) }},
		{"max.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(max(s32(a), s32(b))) }},
		{"max.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(max(u32(a), u32(b))) }},
		{"abs.s32 %d, %a;", func(a, _, _ uint64) uint64 { return uint64(max(s32(a), -s32(a))) }},
		{"neg.s32 %d, %a;", func(a, _, _ uint64) uint64 { return -a }},
		{"and.b32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a & b }},
		{"or.b32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a | b }},
		{"xor.b32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a ^ b }},
		{"not.b32 %d, %a;", func(a, _, _ uint64) uint64 { return ^a }},
		{"shl.b32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return a << u32(b) }},
		{"shr.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(u32(a) >> u32(b)) }},
		{"shr.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(s32(a) >> u32(b)) }},
		{"shf.l.wrap.b32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return (b<<32 | a) << (c & 31) >> 32 }},
		{"shf.r.wrap.b32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return (b<<32 | a) >> (c & 31) }},
		{"shf.l.clamp.b32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return (b<<32 | a) << min(c, 32) >> 32 }},
		{"shf.r.clamp.b32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return (b<<32 | a) >> min(c, 32) }},
		{"popc.b32 %d, %a;", func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount32(uint32(a))) }},
		{"clz.b32 %d, %a;", func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) }},
		{"bfe.u32 %d, %a, 4, 8;", func(a, _, _ uint64) uint64 { return a >> 4 & 0xff }},
		{"bfe.u32 %d, %a, %b, %c;", func(a, b, c uint64) uint64 { return a >> (b & 255) & (1<<(c&255) - 1) }},
		{"bfe.s32 %d, %a, 4, 8;", func(a, _, _ uint64) uint64 { return uint64(int64(int8(a >> 4))) }},
		{"bfe.s32 %d, %a, 24, 30;", func(a, _, _ uint64) uint64 { return uint64(s32(a) >> 24) }},
		{"bfi.b32 %d, %a, %b, 5, 9;", func(a, b, _ uint64) uint64 { return b&^(0x1ff<<5) | a&0x1ff<<5 }},
		{"prmt.b32 %d, %a, %b, 0x7531;", func(a, b, _ uint64) uint64 {
			return a>>8&0xff | a>>24&0xff<<8 | b>>8&0xff<<16 | b>>24&0xff<<24
		}},
		{"selp.b32 %d, %a, %b, %odd; setp.lt.u32 %p, %a, %b; selp.b32 %d, %b, %a, %p;", func(a, b, _ uint64) uint64 { return max(a, b) }},
		{"setp.lt.s32 %p|%q, %a, %b; selp.u32 %d, 1, 0, %q;", func(a, b, _ uint64) uint64 { return uint64(b32(s32(a) >= s32(b))) }},
		{"setp.gt.u32 %p, %a, 5; setp.lt.and.s32 %q, %a, %b, !%p; selp.u32 %d, 1, 0, %q;", func(a, b, _ uint64) uint64 {
			return uint64(b32(u32(a) <= 5 && s32(a) < s32(b)))
		}},
		{"setp.gt.u32 %p, %a, 5; setp.ls.or.u32 %q, %a, %b, %p; and.pred %p, %p, %q; xor.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;", func(a, b, _ uint64) uint64 {
			return uint64(b32(u32(a) <= 5))
		}},
		{"div.u32 %d, %a, %b;", func(a, b, _ uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return a / b
		}},
		{"rem.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 {
			if b == 0 {
				return a
			}
			return uint64(s32(a) % s32(b))
		}},
		{"div.s32 %d, %a, %b;", func(a, b, _ uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return uint64(s32(a) / s32(b))
		}},
		{"cvt.s32.s8 %d, %a;", func(a, _, _ uint64) uint64 { return uint64(int64(int8(a))) }},
		{"cvt.u32.u16 %d, %ha;", func(a, _, _ uint64) uint64 { return a & 0xffff }},
		{"cvt.u16.u32 %hd, %a; shr.s16 %hd, %hd, 3; cvt.s32.s16 %d, %hd;", func(a, _, _ uint64) uint64 { return uint64(int64(int16(a) >> 3)) }},
		{"mul.wide.s16 %d, %ha, %hb;", func(a, b, _ uint64) uint64 { return uint64(int64(int16(a)) * int64(int16(b))) }},
		{"mul.wide.u16 %d, %ha, %hb;", func(a, b, _ uint64) uint64 { return a & 0xffff * (b & 0xffff) }},
		{"min.s16 %hd, %ha, %hb; cvt.u32.u16 %d, %hd;", func(a, b, _ uint64) uint64 { return uint64(uint16(min(int16(a), int16(b)))) }},
		{"setp.lt.s16 %p, %ha, %hb; selp.u32 %d, 1, 0, %p;", func(a, b, _ uint64) uint64 { return uint64(b32(int16(a) < int16(b))) }},
		{"mov.b32 {%ha, %hb}, %a; mov.b32 %d, {%hb, %ha};", func(a, _, _ uint64) uint64 { return a>>16&0xffff | a<<16 }},
	} {
		bs, cs := ints, none
		if strings.Contains(c.body, "%c;") || strings.Contains(c.body, "%c,") {
			cs = ints
		}
		if !strings.Contains(c.body, "%b") && !strings.Contains(c.body, "%hb") {
			bs = none
		}
		execute(t, c.body, "%d", ints, bs, cs, func(a, b, cc, got uint64) {
			if want := c.want(a, b, cc) & 0xffffffff; got != want {
				t.Errorf("%s of %#x, %#x, %#x gives %#x, want %#x", c.body, a, b, cc, got, want)
			}
		})
	}
}

func TestLongIntegers(t *testing.T) {
	for _, c := range []struct {
		body string
		want func(a, b, c uint64) uint64
	}{
		{"add.s64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 { return a + b }},
		{"mul.lo.s64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 { return a * b }},
		{"mad.lo.s64 %ld, %la, %lb, %lc;", func(a, b, c uint64) uint64 { return a*b + c }},
		{"mul.wide.s32 %ld, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(s32(a) * s32(b)) }},
		{"mul.wide.u32 %ld, %a, %b;", func(a, b, _ uint64) uint64 { return uint64(u32(a)) * uint64(u32(b)) }},
		{"shl.b64 %ld, %la, %b;", func(a, b, _ uint64) uint64 { return a << u32(b) }},
		{"shr.s64 %ld, %la, %b;", func(a, b, _ uint64) uint64 { return uint64(int64(a) >> u32(b)) }},
		{"shr.u64 %ld, %la, %b;", func(a, b, _ uint64) uint64 { return a >> u32(b) }},
		{"min.s64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) }},
		{"max.u64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 { return max(a, b) }},
		{"and.b64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 { return a & b }},
		{"cvt.s64.s32 %ld, %a;", func(a, _, _ uint64) uint64 { return uint64(s32(a)) }},
		{"cvt.u64.u32 %ld, %a;", func(a, _, _ uint64) uint64 { return uint64(u32(a)) }},
		{"cvt.u64.u16 %ld, %ha;", func(a, _, _ uint64) uint64 { return a & 0xffff }},
		{"cvt.s64.s8 %ld, %a;", func(a, _, _ uint64) uint64 { return uint64(int64(int8(a))) }},
		{"cvt.u32.u64 %d, %la; cvt.u64.u32 %ld, %d;", func(a, _, _ uint64) uint64 { return a & 0xffffffff }},
		{"mov.b64 {%a, %b}, %la; mov.b64 %ld, {%b, %a};", func(a, _, _ uint64) uint64 { return a>>32 | a<<32 }},
		{"setp.lt.s64 %p, %la, %lb; selp.b64 %ld, %la, %lb, %p;", func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) }},
		{"setp.hi.u64 %p, %la, %lb; selp.b64 %ld, %la, %lb, %p;", func(a, b, _ uint64) uint64 { return max(a, b) }},
		{"popc.b64 %d, %la; cvt.u64.u32 %ld, %d;", func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }},
		{"clz.b64 %d, %la; cvt.u64.u32 %ld, %d;", func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a)) }},
		{"div.s64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 {
			if b == 0 {
				return ^uint64(0)
			}
			return uint64(int64(a) / int64(b))
		}},
		{"rem.u64 %ld, %la, %lb;", func(a, b, _ uint64) uint64 {
			if b == 0 {
				return a
			}
			return a % b
		}},
	} {
		execute(t, c.body, "%ld", longs, longs, longs[:4], func(a, b, cc, got uint64) {
			if want := c.want(a, b, cc); got != want {
				t.Errorf("%s of %#x, %#x, %#x gives %#x, want %#x", c.body, a, b, cc, got, want)
			}
		})
	}
}

func TestUnknownInstructions(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"frobnicate.b32 %d, %a;", "frobnicate.b32"},
		{"add.rn.s32 %d, %a, %b;", "not supported"},
		{"add.s32 %d, %a;", "2 arguments where 3"},
		{"add.s32 %d, %a, %la;", "register %la has the wrong width"},
		{"add.s32 %d, %a, %zz;", "%zz"},
		{"bra NOWHERE;", "NOWHERE"},
		{"suld.b.1d.b32 %d, %a;", "not supported"},
		{"min.rz.f32 %d, %a, %b;", "not supported"},
	} {
		src := strings.NewReplacer("st.global.$", "st.global.b32", "], $d", "], %d").Replace(oneKernel(c.body))
		line := fmt.Sprintf("test.ptx:%d: ", 1+strings.Count(src[:strings.Index(src, c.body)], "\n"))
		_, err := Parse("test.ptx", src)
		if err == nil || !strings.HasPrefix(err.Error(), line) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one at %s with %q", c.body, err, line, c.want)
		}
	}
}

// floatCases returns the bits of floats of every kind (zeros, denormals, infinities, NaN and
// others), and some random ones.
func floatCases(random int) []uint64 {
	out := []uint64{0, 1 << 31, 1, 0x80000001, 0x7fffff, 0x800000, 0x807fffff, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x4b800001,
		0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x40490fdb, 0x4f000000, 0x5f000000}
	rng := rand.New(rand.NewPCG(5, 6))
	for range random {
		out = append(out, uint64(rng.Uint32()), uint64(bits32(rng.Float32()*4-2)))
	}
	return out
}

// sameF32 reports whether two floats have the same bits, or both are NaN.
func sameF32(a, b uint32) bool {
	return a == b || f32(a) != f32(a) && f32(b) != f32(b)
}

// exact returns the finite float with the bits x as a big.Float, which represents it exactly.
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

// TestFusedMultiplyAdd: fma.rn.f32 gives a·b + c, computed exactly and rounded once.
func TestFusedMultiplyAdd(t *testing.T) {
	xs := floatCases(12)
	execute(t, "fma.rn.f32 %fd, %fa, %fb, %fc;", "%fd", xs, xs, xs, func(a, b, c, got uint64) {
		want := bits32(float32(math.FMA(float64(f32(uint32(a))), float64(f32(uint32(b))), float64(f32(uint32(c))))))
		if finite(a, b, c) {
			p := new(big.Float).SetPrec(2000).Mul(exact(a), exact(b))
			p.Add(p, exact(c))
			if p.Sign() != 0 { // the sign of a zero follows float64, in which such sums are exact
				v, _ := p.Float32()
				want = bits32(v)
			}
		}
		if !sameF32(uint32(got), want) {
			t.Errorf("fma of %#x, %#x, %#x gives %#x, want %#x", a, b, c, got, want)
		}
	})
}

// TestFusedDoubleRounding: fma.rn.f32 rounds once even if the sum, rounded to 53 bits, lies
// half-way between two floats of 24 bits. Rounding the 53 bits again would lose which side the
// exact sum is on.
func TestFusedDoubleRounding(t *testing.T) {
	one := uint64(0x3f800000)
	// (1 + 2^-12)² = 1 + 2^-11 + 2^-24 lies half-way between two floats. Adding a little more or
	// less than 0 decides how it is rounded.
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

// TestApproximations: approximate instructions such as ex2.approx have a relative error of at most
// 2^-22, if the result is a normal float.
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

// nearestBF16 returns the bfloat16 nearest to the float x, found by distance in float64. Ties go to
// the even one.
func nearestBF16(x uint32) uint32 {
	v := float64(f32(x))
	if v != v {
		return 0x7fff
	}
	lo := x >> 16
	if x&0xffff == 0 {
		return lo
	}
	value := func(h uint32) float64 { // 2^128 follows the largest finite value
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
