package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"mt/base/bf16"
	"mt/base/parallel"
	"mt/device/cpu/vec"
)

// guard is how many sentinel elements lie on either side of a result.
const guard = 64

// matrix is a test operand: its elements in the dtype that Run gets, and the same values as
// float64.
type matrix struct {
	f32  []float32
	u16  []uint16
	bf16 bool
	want []float64
}

func newMatrix(n int, rounded bool, value func() float64) *matrix {
	m := &matrix{bf16: rounded, want: make([]float64, n)}
	if rounded {
		m.u16 = make([]uint16, n+2*guard)
	} else {
		m.f32 = make([]float32, n+2*guard)
	}
	for i := range n + 2*guard {
		v := float32(value())
		if rounded {
			m.u16[i] = bf16.Round(v)
			v = bf16.Widen(m.u16[i])
		} else {
			m.f32[i] = v
		}
		if i >= guard && i < guard+n {
			m.want[i-guard] = float64(v)
		}
	}
	return m
}

func (m *matrix) pointer() unsafe.Pointer {
	if m.bf16 {
		return unsafe.Pointer(&m.u16[guard])
	}
	return unsafe.Pointer(&m.f32[guard])
}

// all returns every element as fp32, including the sentinels around the matrix.
func (m *matrix) all() []float32 {
	if !m.bf16 {
		return m.f32
	}
	out := make([]float32, len(m.u16))
	for i, v := range m.u16 {
		out[i] = bf16.Widen(v)
	}
	return out
}

// problem describes one product. cMode says what C is: 0: there is none; 1: another matrix than D;
// 2: D itself.
type problem struct {
	m, n, k             int
	transA, transB      bool
	aBF16, bBF16, dBF16 bool
	cMode               int
	withBias            bool
}

func (p problem) String() string {
	return fmt.Sprintf("%dx%dx%d/transA=%t/transB=%t/bf16=%t,%t,%t/c=%d/bias=%t",
		p.m, p.n, p.k, p.transA, p.transB, p.aBF16, p.bBF16, p.dBF16, p.cMode, p.withBias)
}

type data struct {
	problem
	a, b, c, d, bias *matrix
}

// fill makes the operands of a product, and the sentinels around D, from random values.
func (p problem) fill(value func() float64) *data {
	x := &data{problem: p}
	x.a = newMatrix(p.m*p.k, p.aBF16, value)
	x.b = newMatrix(p.k*p.n, p.bBF16, value)
	x.d = newMatrix(p.m*p.n, p.dBF16, value)
	x.bias = newMatrix(p.n, false, value)
	x.c = x.d
	if p.cMode == 1 {
		x.c = newMatrix(p.m*p.n, p.dBF16, value)
	}
	return x
}

func (x *data) args() Args {
	a := Args{
		M: x.m, N: x.n, K: x.k, TransA: x.transA, TransB: x.transB,
		A: x.a.pointer(), B: x.b.pointer(), D: x.d.pointer(),
		ABF16: x.aBF16, BBF16: x.bBF16, DBF16: x.dBF16,
	}
	if x.cMode > 0 {
		a.C = x.c.pointer()
	}
	if x.withBias {
		a.Bias = x.bias.pointer()
	}
	return a
}

// oracle returns the result in float64 and, for every element, the sum of the
// absolute values that were added.
func (x *data) oracle() (sum, size []float64) {
	sum, size = make([]float64, x.m*x.n), make([]float64, x.m*x.n)
	aRow, aStep, bRow, bStep := x.k, 1, x.n, 1
	if x.transA {
		aRow, aStep = 1, x.m
	}
	if x.transB {
		bRow, bStep = 1, x.k
	}
	for i := range x.m {
		out, mag := sum[i*x.n:(i+1)*x.n], size[i*x.n:(i+1)*x.n]
		for l := range x.k {
			left := x.a.want[i*aRow+l*aStep]
			for j := range out {
				v := left * x.b.want[l*bRow+j*bStep]
				out[j] += v
				mag[j] += math.Abs(v)
			}
		}
		for j := range out {
			if x.cMode > 0 {
				out[j] += x.c.want[i*x.n+j]
				mag[j] += math.Abs(x.c.want[i*x.n+j])
			}
			if x.withBias {
				out[j] += x.bias.want[j]
				mag[j] += math.Abs(x.bias.want[j])
			}
		}
	}
	return sum, size
}

// runOn computes x and returns D. It fails the test if a sentinel around D was overwritten.
func (x *data) runOn(t *testing.T, p *parallel.Pool, ws *Workspace) []float32 {
	t.Helper()
	before := append([]float32(nil), x.d.all()...)
	Run(p, ws, x.args())
	after := x.d.all()
	for i := range guard {
		for _, at := range []int{i, len(after) - 1 - i} {
			if after[at] != before[at] {
				t.Fatalf("element %d of D was overwritten (D has %d)", at-guard, x.m*x.n)
			}
		}
	}
	return after[guard : len(after)-guard]
}

// smallIntegers returns a source of random integers from −3 to 3. A sum of up to 2^20 products of
// them is exact in fp32.
func smallIntegers(seed uint64) func() float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() float64 { return float64(r.IntN(7) - 3) }
}

func normals(seed uint64) func() float64 {
	r := rand.New(rand.NewPCG(seed, 2))
	return r.NormFloat64
}

// eachLevel runs f once for every instruction set that this machine has kernels for.
func eachLevel(t *testing.T, f func(t *testing.T, l *level)) {
	for _, l := range levels() {
		t.Run(l.name, func(t *testing.T) { f(t, l) })
	}
}

var shapes = []struct{ m, n, k int }{
	{1, 1, 1}, {1, 7, 3}, {2, 33, 17}, {3, 4, 100}, {4, 65, 31}, {5, 1, 16}, {6, 15, 15}, {7, 16, 32},
	{8, 17, 33}, {9, 31, 1}, {10, 32, 2}, {11, 40, 47}, {12, 48, 48}, {13, 63, 64}, {14, 64, 65}, {15, 100, 5},
	{16, 96, 383}, {27, 33, 384}, {28, 34, 385}, {29, 70, 400}, {43, 66, 769}, {100, 3, 130}, {223, 36, 40},
	{225, 290, 18}, {300, 65, 36}, {29, 33, 1024}, {1, 300, 130}, {2, 130, 550}, {65, 600, 20},
}

// TestExactProducts: every bit of the result is right for small integers, whose sums are exact in
// any order. Only a bf16 D is rounded, once.
func TestExactProducts(t *testing.T) {
	pool := parallel.New(3)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		ws := &Workspace{level: l}
		seed := uint64(0)
		for _, s := range shapes {
			for trans := range 4 {
				seed++
				p := problem{m: s.m, n: s.n, k: s.k, transA: trans&1 != 0, transB: trans&2 != 0}
				p.options(seed)
				checkExact(t, pool, ws, p.fill(smallIntegers(seed)))
			}
		}
	})
}

// options sets the dtypes, the mode of C and the bias to the i-th of their 48 combinations. The
// order is such that each choice occurs early.
func (p *problem) options(i uint64) {
	i = i * 29 % 48
	p.aBF16, p.bBF16, p.dBF16 = i&1 != 0, i&2 != 0, i&4 != 0
	p.withBias = i&8 != 0
	p.cMode = int(i / 16)
}

func checkExact(t *testing.T, pool *parallel.Pool, ws *Workspace, x *data) {
	t.Helper()
	want, _ := x.oracle()
	got := x.runOn(t, pool, ws)
	for i, v := range got {
		w := float32(want[i])
		if x.dBF16 {
			w = bf16.Widen(bf16.Round(w))
		}
		if v != w {
			t.Fatalf("%v: element (%d, %d) is %v, want %v", x, i/x.n, i%x.n, v, w)
		}
	}
}

// TestErrorBound: results are within the rounding error that K products allow. K + 2 roundings have
// a relative size of at most u = 2^-24 each (products are fused or rounded, C and the bias are two
// more sums). So an element's error is at most (K+2)·u/(1−(K+2)·u) times the sum of absolute
// values, in any order of addition (Higham, Accuracy and Stability, section 3.1). A product rounded
// before its addition counts as one more rounding. A bf16 result has an additional error of 2^-8 of
// itself, which dominates.
func TestErrorBound(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		ws := &Workspace{level: l}
		for i, s := range shapes {
			for variant := range 4 {
				p := problem{
					m: s.m, n: s.n, k: s.k, transA: variant&1 != 0, transB: variant&2 != 0,
					dBF16: (variant^i)&1 != 0, cMode: i % 3, withBias: i%2 == 0,
				}
				x := p.fill(normals(uint64(8*i + variant)))
				want, size := x.oracle()
				ku := float64(p.k+3) * 0x1p-24
				bound := ku / (1 - ku)
				for i, v := range x.runOn(t, pool, ws) {
					limit := bound * size[i]
					if p.dBF16 {
						limit += 0x1.01p-8 * math.Abs(want[i])
					}
					if diff := math.Abs(float64(v) - want[i]); !(diff <= limit) {
						t.Fatalf("%v: element (%d, %d) is %v, want %v: off by %g, allowed %g",
							p, i/p.n, i%p.n, v, want[i], diff, limit)
					}
				}
			}
		}
	})
}

// TestThreadsDoNotChangeBits: the result has the same bits for every number of threads.
func TestThreadsDoNotChangeBits(t *testing.T) {
	pools := make([]*parallel.Pool, 0, 5)
	for _, threads := range []int{1, 2, 3, 5, 8} {
		p := parallel.New(threads)
		defer p.Close()
		pools = append(pools, p)
	}
	cases := []problem{
		{m: 1, n: 400, k: 700, transB: true},
		{m: 3, n: 301, k: 777, transB: true, bBF16: true},
		{m: 64, n: 64, k: 1000, transA: true, cMode: 2},
		{m: 130, n: 133, k: 800, transB: true, dBF16: true, cMode: 1, withBias: true},
		{m: 17, n: 1200, k: 33, transA: true, transB: true, dBF16: true},
		{m: 500, n: 40, k: 390, aBF16: true, bBF16: true},
	}
	eachLevel(t, func(t *testing.T, l *level) {
		for i, c := range cases {
			var want []float32
			for _, p := range pools {
				got := c.fill(normals(uint64(i))).runOn(t, p, &Workspace{level: l})
				if want == nil {
					want = got
				}
				for j := range got {
					if math.Float32bits(got[j]) != math.Float32bits(want[j]) {
						t.Fatalf("%v: element %d is %v with %d threads, %v with one",
							c, j, got[j], p.Threads(), want[j])
					}
				}
			}
		}
	})
}

// TestRowsDoNotDependOnM: if B is packed, a row of the result does not depend on the number of rows
// of A. So a batch that is cut into other micro-batches gives the same products.
func TestRowsDoNotDependOnM(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		whole := problem{m: 230, n: 70, k: 400, transB: true}
		x := whole.fill(normals(9))
		want := x.runOn(t, pool, &Workspace{level: l})
		for _, m := range []int{5, 18, 101} {
			part := problem{m: m, n: 70, k: 400, transB: true}
			y := part.fill(normals(9))
			y.a, y.b = x.a, x.b
			for i, v := range y.runOn(t, pool, &Workspace{level: l}) {
				if v != want[i] {
					t.Fatalf("element %d is %v with M = %d, %v with M = 230", i, v, m, want[i])
				}
			}
		}
	})
}

func TestEmptyShapes(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		ws := &Workspace{level: l}
		Run(pool, ws, Args{M: 0, N: 5, K: 5})
		Run(pool, ws, Args{M: 5, N: 0, K: 5})
		for cMode := range 3 {
			for flags := range 8 {
				p := problem{
					m: 6, n: 37, cMode: cMode, withBias: flags&1 != 0, dBF16: flags&2 != 0, transB: flags&4 != 0,
				}
				checkExact(t, pool, ws, p.fill(smallIntegers(3)))
			}
		}
	})
}

func TestNegativeExtentPanics(t *testing.T) {
	for _, a := range []Args{{M: -1, N: 1, K: 1}, {M: 1, N: -1, K: 1}, {M: 1, N: 1, K: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("M %d, N %d, K %d: no panic", a.M, a.N, a.K)
				}
			}()
			Run(nil, &Workspace{}, a)
		}()
	}
}

// TestNonFiniteValuesPropagate: a NaN or an infinity reaches every element whose sum it is in, and
// no other.
func TestNonFiniteValuesPropagate(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		ws := &Workspace{level: l}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for variant := range 8 {
				p := problem{
					m: 1 + 30*(variant&1), n: 45, k: 19, transB: true, transA: variant&2 != 0, dBF16: variant&4 != 0,
				}
				x := p.fill(smallIntegers(7))
				for i := range x.a.f32 {
					x.a.f32[i] = 1
				}
				x.b.f32[guard+40*p.k+18] = float32(bad) // row 40 of the stored B: column 40
				for i, v := range x.runOn(t, pool, ws) {
					want := i%p.n == 40
					same := math.IsNaN(bad) && v != v || float64(v) == bad
					if same != want {
						t.Fatalf("%v: B holds %v in column 40; D (%d, %d) is %v", p, bad, i/p.n, i%p.n, v)
					}
				}
			}
		}
	})
}

func TestNoGarbage(t *testing.T) {
	pool := parallel.New(2)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		ws := &Workspace{level: l}
		for _, p := range []problem{
			{m: 40, n: 70, k: 400, transA: true}, {m: 40, n: 70, k: 400, transB: true, dBF16: true},
			{m: 1, n: 70, k: 400, transB: true},
		} {
			a := p.fill(smallIntegers(1)).args()
			Run(pool, ws, a)
			if got := testing.AllocsPerRun(20, func() { Run(pool, ws, a) }); got >= 1 {
				t.Errorf("%v: %v allocations a call, want 0", p, got)
			}
		}
	})
}

// TestBlocksAreWholeTiles checks that blocks of rows are whole tiles but for the last, and high enough for a kernel call
// on each tile to prefetch the next panel between them.
func TestBlocksAreWholeTiles(t *testing.T) {
	for _, l := range levels() {
		if l.rows%l.mr != 0 || l.rows < 8*l.mr {
			t.Errorf("%s: blocks of %d rows for tiles of %d", l.name, l.rows, l.mr)
		}
		for _, m := range []int{1, 47, 256, 1000, 2048} {
			var p plan
			p.planTasks(m, 1000, l, 2, false)
			if p.rows > l.rows || p.mBlocks > 1 && p.rows%l.mr != 0 {
				t.Errorf("%s: %d rows in blocks of %d, not in tiles of %d up to %d", l.name, m, p.rows, l.mr, l.rows)
			}
			if p.mBlocks != ceil(m, p.rows) {
				t.Errorf("%s: %d blocks of %d rows for %d rows", l.name, p.mBlocks, p.rows, m)
			}
			p.planTasks(m, 5000, l, 2, true)
			if p.rows*(p.across-1)*l.nr > maxTile {
				t.Errorf("%s: %d rows of a bf16 result in blocks of %d rows and %d panels", l.name, m, p.rows, p.across)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	fastest := levels()[0].name
	widened := strings.TrimSuffix(fastest, "bf16") // of avx512bf16
	for _, c := range []struct{ limit, want string }{
		{"", fastest}, {"no such set", fastest}, {"avx512", widened}, {"generic", "generic"},
	} {
		if got := choose(c.limit).name; got != c.want {
			t.Errorf("choose(%q) is %s, want %s", c.limit, got, c.want)
		}
	}
	for _, l := range levels() {
		if got := choose(l.name).name; got != l.name {
			t.Errorf("choose(%q) is %s", l.name, got)
		}
	}
	if other, err := vec.Level(); err == nil && strings.TrimSuffix(Level(), "bf16") != other {
		t.Errorf("products use %s, all else %s", Level(), other)
	}
}

// TestPackedAHasRoom: a packed block of A fits the memory that is taken for it, whatever its height and length.
func TestPackedAHasRoom(t *testing.T) {
	pool := parallel.New(1)
	defer pool.Close()
	const guard, sentinel = 64, 12345
	eachLevel(t, func(t *testing.T, l *level) {
		for _, m := range []int{1, 5, 13, 16, 31, 48, 224} {
			for _, k := range []int{1, 16, 500, 1024} {
				for _, trans := range []bool{false, true} {
					ws := &Workspace{level: l}
					p := problem{m: m, n: 3, k: k, transA: trans, aBF16: true} // bf16 is always packed
					x := p.fill(smallIntegers(1))
					x.runOn(t, pool, ws)
					n := len(ws.lanes[0].a)
					mem := grown(nil, n+guard)
					for i := range mem {
						mem[i] = sentinel
					}
					ws.lanes[0].a = mem[:n:n]
					x.runOn(t, pool, ws)
					for i, v := range mem[n:] {
						if v != sentinel {
							t.Fatalf("%d × %d, transposed %t: float %d behind the %d floats is written", m, k, trans, i, n)
						}
					}
				}
			}
		}
	})
}

// TestTransposedAhead: the kernels prefetch every cache line of the transposed part of A that is packed next.
func TestTransposedAhead(t *testing.T) {
	pool := parallel.New(1)
	defer pool.Close()
	eachLevel(t, func(t *testing.T, l *level) {
		if l.packTiles == nil {
			t.Skip("kernels of rows do not prefetch a transposed A")
		}
		ws := &Workspace{level: l}
		p := problem{m: 100, n: 256, k: 1000, transA: true}
		x := p.fill(smallIntegers(1))
		x.runOn(t, pool, ws)
		ws.begin(pool, x.args())
		b := ws.blockOf(0)
		lines := map[uintptr]bool{}
		now := ws.plan.kc
		s := ws.sourceAfter(&b, 0, 100)
		for {
			block, n := s.take(2)
			if block == 0 {
				break
			}
			for i := range n {
				for j := range now / 8 {
					lines[(block+uintptr(i)*s.ld+uintptr(j)*s.down/2)/cacheLine] = true
				}
			}
		}
		k0, k := ws.plan.kRange(1, ws.K)
		for r := range k {
			from := uintptr(ws.left.at(k0+r, b.m0).p)
			for a := from; a < from+uintptr(4*b.m); a += cacheLine {
				if !lines[a/cacheLine] {
					t.Fatalf("byte %d of row %d is not prefetched", a-from, r)
				}
			}
		}
	})
}

// TestPeak: a call of Peak's function counts two FLOPs for each element of 12 registers, in each round of each piece.
func TestPeak(t *testing.T) {
	p := parallel.New(2)
	defer p.Close()
	lanes := map[string]float64{"avx512bf16": 16, "avx512": 16, "avx2": 8}[best.name]
	run, flops := Peak(p)
	if want := 2 * 16 * (1 << 17) * 12 * lanes * 2; flops != want || (run != nil) != (lanes > 0) {
		t.Errorf("%s: %g FLOPs, want %g", best.name, flops, want)
	}
}
