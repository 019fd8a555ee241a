package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// eachLevel runs f with every set of kernels that this machine can run.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	was := chosen
	defer func() { chosen = was }()
	for _, k := range available() {
		chosen = k
		t.Run(k.level, f)
	}
}

var lengths = []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 129, 257}

func TestChoose(t *testing.T) {
	all := []*kernels{{level: AVX512}, {level: AVX2}, &generic}
	cases := []struct {
		limit, want string
		bad         bool
	}{{"", AVX512, false}, {AVX512, AVX512, false}, {AVX2, AVX2, false}, {Generic, Generic, false}, {"sse", Generic, true}}
	for _, c := range cases {
		k, err := choose(c.limit, all)
		if k.level != c.want || (err != nil) != c.bad {
			t.Errorf("choose(%q) = %s, %v", c.limit, k.level, err)
		}
	}
	if k, err := choose(NEON, []*kernels{{level: NEON}, &generic}); k.level != NEON || err != nil {
		t.Errorf("choose(%q) on arm64 = %s, %v", NEON, k.level, err)
	}
}

// row is n values with a sentinel after them that shows whether a kernel writes too far.
type row struct{ all []float32 }

const sentinel = float32(-12345.5)

func newRow(r *rand.Rand, n int) row {
	x := make([]float32, n+1)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	x[n] = sentinel
	return row{x}
}

func (r row) v() []float32     { return r.all[: len(r.all)-1 : len(r.all)-1] }
func (r row) copy() row        { return row{append([]float32(nil), r.all...)} }
func (r row) at(i int) float64 { return float64(r.all[i]) }

func (r row) check(t *testing.T, what string, want func(i int) float64) {
	t.Helper()
	if r.all[len(r.all)-1] != sentinel {
		t.Fatalf("%s: n = %d: the element after the result was written", what, len(r.all)-1)
	}
	for i, got := range r.v() {
		w := want(i)
		// A result has a few fp32 roundings (6e-8 each) of terms that are at most 16, so its error
		// is below 4e-6.
		if math.Abs(float64(got)-w) > 4e-6*(1+math.Abs(w)) {
			t.Fatalf("%s: n = %d: element %d is %v, want %v", what, len(r.all)-1, i, got, w)
		}
	}
}

func TestRows(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range lengths {
			x, y, w, u, z := newRow(rng, n), newRow(rng, n), newRow(rng, n), newRow(rng, n), newRow(rng, n)
			out := y.copy()
			Add(out.v(), x.v())
			out.check(t, "Add", func(i int) float64 { return y.at(i) + x.at(i) })
			Scale(out.v(), x.v(), -1.5)
			out.check(t, "Scale", func(i int) float64 { return -1.5 * x.at(i) })
			Shift(out.v(), x.v(), 3)
			out.check(t, "Shift", func(i int) float64 { return 3 + x.at(i) })
			ScaleMul(out.v(), x.v(), w.v(), 3)
			out.check(t, "ScaleMul", func(i int) float64 { return 3 * x.at(i) * w.at(i) })
			for _, add := range []bool{false, true} {
				dx, dw := z.copy(), u.copy()
				NormGrad(dx.v(), dw.v(), y.v(), x.v(), w.v(), 0.5, 0.3, add)
				dw.check(t, "NormGrad dw", func(i int) float64 { return u.at(i) + 0.5*y.at(i)*x.at(i) })
				dx.check(t, "NormGrad dx", func(i int) float64 {
					d := 0.5*y.at(i)*w.at(i) - 0.3*x.at(i)
					if add {
						d += z.at(i)
					}
					return d
				})
			}
		}
	})
}

func TestReductions(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, n := range lengths {
			x, y, w := newRow(rng, n), newRow(rng, n), newRow(rng, n)
			var dot, dot3, sum, plain, length, size float64
			most := math.Inf(-1)
			for i := range n {
				dot += x.at(i) * y.at(i)
				plain += x.at(i)
				length += math.Abs(x.at(i))
				dot3 += x.at(i) * y.at(i) * w.at(i)
				sum += math.Exp(2*x.at(i) - 1)
				size += math.Abs(x.at(i) * y.at(i) * (1 + math.Abs(w.at(i))))
				most = max(most, x.at(i))
			}
			near := func(what string, got float32, want, size float64) {
				t.Helper()
				// A sum has at most n + 4 fp32 roundings, 6e-8 each, of partial sums that are at
				// most size.
				if math.Abs(float64(got)-want) > float64(n+4)*6e-8*size {
					t.Errorf("%s: n = %d: %v, want %v", what, n, got, want)
				}
			}
			near("Dot", Dot(x.v(), y.v()), dot, size)
			near("Sum", Sum(x.v()), plain, length)
			near("Dot3", Dot3(x.v(), y.v(), w.v()), dot3, size)
			near("SumExp", SumExp(x.v(), 2, 1), sum, 4*sum)
			out := y.copy()
			near("ExpSum", ExpSum(out.v(), x.v(), 2, 1), sum, 4*sum)
			out.check(t, "ExpSum", func(i int) float64 { return math.Exp(2*x.at(i) - 1) })
			if got := Max(x.v()); float64(got) != most {
				t.Errorf("Max: n = %d: %v, want %v", n, got, most)
			}
		}
	})
}

func TestExp(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachLevel(t, func(t *testing.T) {
		var x []float32
		for v := float32(-87.3); v < 88.72; v += 0.0137 {
			x = append(x, v)
		}
		y := make([]float32, len(x))
		ExpSum(y, x, 1, 0)
		for i, got := range y {
			if want := math.Exp(float64(x[i])); math.Abs(float64(got)-want) > 2e-7*want {
				t.Fatalf("exp(%v) = %v, want %v", x[i], got, want)
			}
		}
		cases := []struct{ x, want float32 }{{0, 1}, {-inf, 0}, {inf, inf}, {-1e30, 0}, {-104, 0}, {88.8, inf}, {1e30, inf},
			{-100, float32(math.Exp(-100))}}
		for _, c := range cases {
			got := []float32{1, 1, 1}
			ExpSum(got, []float32{c.x, 0, c.x}, 1, 0)
			if got[0] != c.want || got[2] != c.want {
				t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
			}
		}
		for n := 1; n < 40; n++ { // a NaN is noticed at every place
			x := make([]float32, n)
			x[n-1] = nan
			if s := SumExp(x, 1, 0); s == s {
				t.Errorf("SumExp of %d numbers, the last NaN, is %v", n, s)
			}
		}
	})
}

// TestExp2: GradStrip computes powers of 2 to their documented precision. SoftmaxStrip has the same powers.
func TestExp2(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachLevel(t, func(t *testing.T) {
		x, special := []float32{0, -inf, inf, -1e30, 1e30, -151, 128, 100, -100}, []float32{1, 0, inf, 0, inf, 0, inf, 0x1p100, 0x1p-100}
		for v := float32(-125.9); v < 127.5; v += 0.0137 {
			x = append(x, v)
		}
		n := len(x)
		x = append(x, nan)
		row := Strip{Rows: 1, N: n + 1, Most: n + 1, Width: n + 1, Scale: 1 / math.Log2E}
		y, top, sum := append(slices.Clone(x), make([]float32, 15)...), []float32{0}, []float32{0}
		GradStrip(y, make([]float32, len(y)), row, []float32{0}, []float32{0})
		for i, got := range y[:n] {
			want := math.Exp2(float64(row.factor()) * float64(x[i]))
			switch {
			case i < len(special) && got != special[i]:
				t.Errorf("2^%v = %v", x[i], got)
			case i >= len(special) && math.Abs(float64(got)-want) > 2e-7*want:
				t.Fatalf("2^%v = %v, want %v", x[i], got, want)
			}
		}
		if y[n] == y[n] {
			t.Errorf("2^NaN = %v", y[n])
		}
		below := []int{3, 5, 8, 100, 1000} // numbers of x that are not above 0
		z := make([]float32, 16)
		for i, at := range below {
			z[i] = x[at]
		}
		row.N, row.Most, row.Width = len(below), len(below), len(below)
		SoftmaxStrip(z, row, top, sum)
		for i, at := range below {
			if z[i] != y[at] {
				t.Errorf("2^%v = %v in SoftmaxStrip, %v in GradStrip", x[at], z[i], y[at])
			}
		}
	})
}

func TestBF16(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		all := make([]uint16, 1<<16)
		for i := range all {
			all[i] = uint16(i)
		}
		wide, back := make([]float32, len(all)), make([]uint16, len(all))
		Widen(wide, all)
		Narrow(back, wide)
		for i, w := range wide {
			want := math.Float32frombits(uint32(i) << 16)
			if math.Float32bits(w) != math.Float32bits(want) {
				t.Fatalf("Widen(%#x) = %#x", i, math.Float32bits(w))
			}
			if w != w {
				want := uint16(i) | 0x40
				if back[i] != want {
					t.Fatalf("Narrow(NaN %#x) = %#x, want %#x", i, back[i], want)
				}
			} else if back[i] != uint16(i) {
				t.Fatalf("Narrow(Widen(%#x)) = %#x", i, back[i])
			}
		}
		cases := []struct {
			bits uint32
			want uint16
		}{{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80}, {0x7f7fffff, 0x7f80}, {0x7f800001, 0x7fc0}}
		for _, c := range cases {
			for _, n := range []int{1, 8, 19} {
				x, y := make([]float32, n), make([]uint16, n+1)
				x[n-1], y[n] = math.Float32frombits(c.bits), 0xabcd
				Narrow(y[:n], x)
				if y[n-1] != c.want || y[n] != 0xabcd {
					t.Errorf("Narrow(%#x) = %#x, want %#x (and after it %#x)", c.bits, y[n-1], c.want, y[n])
				}
			}
		}
	})
}

func TestRotate(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for _, half := range []int{1, 3, 8, 16, 20, 32, 64} {
			const heads = 3
			stride := 2*half + 5
			angle := newRow(rng, half)
			cos, sin := make([]float32, half), make([]float32, half)
			for i := range half {
				cos[i], sin[i] = float32(math.Cos(angle.at(i))), float32(math.Sin(angle.at(i)))
			}
			x := newRow(rng, heads*stride)
			y := x.copy()
			Rotate(y.v(), cos, sin, heads, stride, false)
			y.check(t, "Rotate", func(i int) float64 {
				c := i % stride
				switch {
				case c < half:
					return x.at(i)*float64(cos[c]) - x.at(i+half)*float64(sin[c])
				case c < 2*half:
					return x.at(i)*float64(cos[c-half]) + x.at(i-half)*float64(sin[c-half])
				}
				return x.at(i)
			})
			Rotate(y.v(), cos, sin, heads, stride, true)
			y.check(t, "Rotate back", x.at)
			RotatePairs(y.v(), cos, sin, heads, stride, false)
			y.check(t, "RotatePairs", func(i int) float64 {
				c := i % stride
				switch {
				case c >= 2*half:
					return x.at(i)
				case c%2 == 0:
					return x.at(i)*float64(cos[c/2]) - x.at(i+1)*float64(sin[c/2])
				}
				return x.at(i)*float64(cos[c/2]) + x.at(i-1)*float64(sin[c/2])
			})
			RotatePairs(y.v(), cos, sin, heads, stride, true)
			y.check(t, "RotatePairs back", x.at)
		}
	})
}

func TestTile(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		for _, m := range []int{1, 2, 3, 4, 5, 6, 13, 14, 15, 29} {
			for _, k := range []int{0, 1, 3, 4, 33} {
				for _, cols := range []bool{false, true} {
					testTile(t, rng, m, k, 1+m%3, cols)
				}
			}
		}
	})
}

func testTile(t *testing.T, rng *rand.Rand, m, k, panels int, cols bool) {
	t.Helper()
	astride, bpanel, cstride := k+3, k*Panel+7, panels*Panel+2
	if cols {
		astride = m + 1
	}
	a, b, c := newRow(rng, max(m, k)*(m+k+3)), newRow(rng, panels*bpanel), newRow(rng, m*cstride)
	for _, acc := range []bool{false, true} {
		out := c.copy()
		Tile(m, k, a.v(), astride, cols, b.v(), bpanel, out.v(), cstride, panels, acc)
		out.check(t, fmt.Sprintf("Tile(%d, %d, cols %v, acc %v)", m, k, cols, acc), func(i int) float64 {
			r, j := i/cstride, i%cstride
			if j >= panels*Panel {
				return c.at(i)
			}
			var s float64
			if acc {
				s = c.at(i)
			}
			for x := range k {
				ai := r*astride + x
				if cols {
					ai = x*astride + r
				}
				s += a.at(ai) * b.at(j/Panel*bpanel+x*Panel+j%Panel)
			}
			return s
		})
	}
}

// saysOnPanic calls f and returns the value with which f panics; nil: f does not panic.
func saysOnPanic(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}

// TestTileStaysInside: operands of Tile may be exactly as long as the product needs, and shorter
// ones panic. An empty product needs no memory.
func TestTileStaysInside(t *testing.T) {
	const m, k, stride = 2, 5, 7
	for cols, n := range map[bool]int{false: (m-1)*stride + k, true: (k-1)*stride + m} {
		tile := func(n int) func() {
			return func() {
				Tile(m, k, make([]float32, n), stride, cols, make([]float32, k*Panel), k*Panel, make([]float32, m*Panel), Panel, 1, false)
			}
		}
		if said := saysOnPanic(tile(n)); said != nil {
			t.Errorf("cols %v, %d elements: %v", cols, n, said)
		}
		if saysOnPanic(tile(n-1)) == nil {
			t.Errorf("cols %v: %d elements are taken for %d", cols, n-1, n)
		}
	}
	for _, empty := range []struct{ m, panels int }{{0, 1}, {1, 0}, {0, 0}} {
		if said := saysOnPanic(func() { Tile(empty.m, k, nil, stride, false, nil, k*Panel, nil, Panel, empty.panels, false) }); said != nil {
			t.Errorf("%d rows and %d panels: %v", empty.m, empty.panels, said)
		}
	}
}

// TestLengthsMustAgree: operands of different lengths cause a panic, so kernels never access memory
// outside the shorter one.
func TestLengthsMustAgree(t *testing.T) {
	two, three := make([]float32, 2), make([]float32, 3)
	for name, f := range map[string]func(){
		"Widen":  func() { Widen(three, make([]uint16, 2)) },
		"Narrow": func() { Narrow(make([]uint16, 2), three) },
		"Add":    func() { Add(two, three) },
		"Dot":    func() { Dot(three, two) },
	} {
		if said := saysOnPanic(f); said != "vec: operands differ in length" {
			t.Errorf("%s says %v", name, said)
		}
	}
}

func TestTranspose(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		for _, n := range []int{1, 15, 16, 33, 48, 70} {
			for _, k := range []int{1, 7, 16, 33, 64} {
				stride := k + 2
				src, dst := newRow(rng, n*stride), newRow(rng, (n+Panel-1)/Panel*Panel*k)
				was := dst.copy()
				Transpose(dst.v(), src.v(), stride, n, k)
				dst.check(t, "Transpose", func(i int) float64 {
					r := i/(Panel*k)*Panel + i%Panel
					if r >= n {
						return was.at(i)
					}
					return src.at(r*stride + i%(Panel*k)/Panel)
				})
			}
		}
	})
}

// TestStrips: SoftmaxStrip and GradStrip agree with float64. They may overwrite elements after a
// row's width, so only the elements before are compared.
func TestStrips(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(11, 12))
		for _, s := range []Strip{{N: 1, Most: 1, Width: 1, Rows: 1}, {N: 5, Most: 20, Width: 20, Rows: 14}, {N: -3, Most: 9, Width: 33, Rows: 13},
			{N: 120, Most: 128, Width: 128, Rows: 14}, {N: 9, Most: 9, Width: 40, Rows: 3}} {
			s.Stride, s.Scale = (s.Width+15)&^15+3, 0.5
			x, dx := newRow(rng, s.Rows*s.Stride), newRow(rng, s.Rows*s.Stride)
			seen := func(i int) bool { return i%s.Stride < min(s.N+i/s.Stride, s.Most) }
			inside := func(f func(i int) float64, out row) func(i int) float64 {
				return func(i int) float64 {
					switch {
					case i%s.Stride >= s.Width:
						return out.at(i)
					case !seen(i):
						return 0
					}
					return f(i)
				}
			}
			top, sum := newRow(rng, s.Rows), newRow(rng, s.Rows)
			wantTop, wantSum := make([]float64, s.Rows), make([]float64, s.Rows)
			for r := range wantTop {
				wantTop[r] = top.at(r)
			}
			for i := range x.v() {
				if seen(i) {
					wantTop[i/s.Stride] = max(wantTop[i/s.Stride], s.at(x, i)*math.Log2E)
				}
			}
			exp := func(i int) float64 { return math.Exp2(s.at(x, i)*math.Log2E - wantTop[i/s.Stride]) }
			for i := range x.v() {
				if seen(i) {
					wantSum[i/s.Stride] += exp(i)
				}
			}
			out := x.copy()
			SoftmaxStrip(out.v(), s, top.v(), sum.v())
			top.check(t, "top", func(i int) float64 { return wantTop[i] })
			sum.check(t, "sum", func(i int) float64 { return wantSum[i] })
			out.check(t, "SoftmaxStrip", inside(exp, out))

			lse, delta, grad := newRow(rng, s.Rows), newRow(rng, s.Rows), dx.copy()
			out = x.copy()
			GradStrip(out.v(), grad.v(), s, lse.v(), delta.v())
			p := func(i int) float64 { return math.Exp2(s.at(x, i)*math.Log2E - lse.at(i/s.Stride)) }
			out.check(t, "GradStrip p", inside(p, out))
			grad.check(t, "GradStrip dx", inside(func(i int) float64 { return 0.5 * p(i) * (dx.at(i) - delta.at(i/s.Stride)) }, grad))
		}
	})
}

// TestPlaces: the result for an element has the same bits wherever it is in a row, and however long
// the row is.
func TestPlaces(t *testing.T) {
	minus := float32(math.Inf(-1))
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(13, 14))
		for n := 1; n < 40; n++ {
			x, y, u := newRow(rng, n), newRow(rng, n), newRow(rng, n)
			Scale(x.v(), x.v(), 20)         // so that the whole range of an exponential matters
			for i := n % 3; i < n; i += 3 { // and values beyond its range
				x.v()[i] = float32(math.Copysign(float64(90+77*i*i), x.at(i)))
			}
			for _, f := range []struct {
				what string
				of   func(from, to int) [][]float32
			}{
				{"ExpSum", func(from, to int) [][]float32 {
					out := make([]float32, to-from)
					ExpSum(out, x.v()[from:to], 0.9, 0.3)
					return [][]float32{out}
				}},
				{"GradStrip", func(from, to int) [][]float32 {
					p, dx := make([]float32, 64), make([]float32, 64)
					copy(p, x.v()[from:to])
					copy(dx, y.v()[from:to])
					GradStrip(p, dx, Strip{Stride: 64, Rows: 1, N: to - from, Most: to - from, Width: to - from, Scale: 0.9}, []float32{0.3}, []float32{0.2})
					return [][]float32{p[:to-from], dx[:to-from]}
				}},
				{"SwiGLU", func(from, to int) [][]float32 { return unitAt(SwiGLU, SwiGLUGrad, x, y, u, from, to) }},
				{"GeGLU", func(from, to int) [][]float32 { return unitAt(GeGLU, GeGLUGrad, x, y, u, from, to) }},
				{"ErfGLU", func(from, to int) [][]float32 { return unitAt(ErfGLU, ErfGLUGrad, x, y, u, from, to) }},
			} {
				whole := f.of(0, n)
				for i := range n {
					for k, alone := range f.of(i, i+1) {
						if math.Float32bits(alone[0]) != math.Float32bits(whole[k][i]) {
							t.Fatalf("%s: element %d of %d, result %d, is %v, and %v alone", f.what, i, n, k, whole[k][i], alone[0])
						}
					}
				}
			}
			for i := range n { // a sum with zeros is exact
				one, rest := make([]float32, 1), make([]float32, n)
				for k := range rest {
					rest[k] = minus
				}
				rest[i] = x.v()[i]
				ExpSum(one, rest[i:i+1], 0.9, 0.3)
				if sum, stored := SumExp(rest, 0.9, 0.3), ExpSum(make([]float32, n), rest, 0.9, 0.3); sum != one[0] || stored != one[0] {
					t.Fatalf("the sum of e^%v and zeros, %d of %d, is %v and %v, want %v", rest[i], i, n, sum, stored, one[0])
				}
			}
		}
	})
}

// unitAt returns the results and gradients of a gated unit for elements from … to−1 of the given
// rows.
func unitAt(forward func(y, gate, up []float32), grad func(dgate, dup, y, dy, gate, up []float32), x, y, u row, from, to int) [][]float32 {
	n, gate, dy, up := to-from, x.v()[from:to], y.v()[from:to], u.v()[from:to]
	out := [][]float32{make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)}
	forward(out[0], gate, up)
	grad(out[1], out[2], nil, dy, gate, up)
	grad(out[3], out[4], out[5], dy, gate, up)
	return out
}

// at returns element i of x times the strip's scale, in float64.
func (s Strip) at(x row, i int) float64 { return float64(s.Scale) * x.at(i) }

func TestLog2(t *testing.T) {
	for x := float32(1e-40); x < 3e38; x *= 1.00037 {
		want := math.Log2(float64(x))
		if got := float64(Log2(x)); math.Abs(got-want) > 6e-8*math.Abs(want)+2e-9 {
			t.Fatalf("log2(%v) = %v, want %v", x, got, want)
		}
	}
	inf := float32(math.Inf(1))
	if Log2(1) != 0 || Log2(0) != -inf || Log2(inf) != inf || Log2(-1) == Log2(-1) {
		t.Errorf("log2 of 1, 0, +Inf, -1: %v, %v, %v, %v", Log2(1), Log2(0), Log2(inf), Log2(-1))
	}
}
