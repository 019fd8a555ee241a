package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"mt/base/bf16"
	"mt/internal/testkit"
)

func getF32(b []byte, i int) float32    { return f32(binary.LittleEndian.Uint32(b[4*i:])) }
func putF32(b []byte, i int, x float32) { binary.LittleEndian.PutUint32(b[4*i:], bits32(x)) }
func getBF16(b []byte, i int) float32 {
	return bf16.Widen(binary.LittleEndian.Uint16(b[2*i:]))
}

func dim(v ...uint32) [3]uint32 {
	d := [3]uint32{1, 1, 1}
	copy(d[:], v)
	return d
}

func TestRoundBF16(t *testing.T) {
	k := file(t, "element.ptx").Kernel("round_bf16")
	const n = 256*4*3 + 5
	var h heap
	in, out := h.add("src", make([]byte, 4*n)), h.add("dst", make([]byte, 2*n))
	for i := range n {
		putF32(in.Data, i, float32(i)*1.0001-300)
	}
	l := Launch{Kernel: k, Grid: dim(4), Block: dim(256), Params: params(out.Base, in.Base, int64(n)), Memory: h}
	touched := testkit.Must(l.Run())(t)
	for i := range n {
		if got, want := binary.LittleEndian.Uint16(out.Data[2*i:]), bf16.Round(getF32(in.Data, i)); got != want {
			t.Fatalf("element %d is %#x, want %#x", i, got, want)
		}
	}
	if len(touched) != 2 {
		t.Fatalf("touched %v", touched)
	}
	for _, a := range touched {
		want := Access{Buffer: in, ReadTo: 4 * n}
		if a.Buffer == out {
			want = Access{Buffer: out, WriteTo: 2 * n}
		}
		if a != want {
			t.Errorf("touched %+v, want %+v", a, want)
		}
	}
}

func TestSwish(t *testing.T) {
	k := file(t, "element.ptx").Kernel("swish")
	const n = 4 * 1000
	var h heap
	g, x := h.add("g", make([]byte, 4*n)), h.add("x", make([]byte, 4*n))
	for i := range n {
		putF32(g.Data, i, float32(i%17))
		putF32(x.Data, i, float32(i%41)-20)
	}
	l := Launch{Kernel: k, Grid: dim(2), Block: dim(256), Params: params(g.Base, x.Base, int64(n)), Memory: h, CheckGlobal: true}
	testkit.Must(l.Run())(t)
	for i := range n {
		v := float64(i%41) - 20
		want := float64(i%17) * v / (1 + math.Exp2(-v))
		// The kernel makes at most five fp32 roundings, each with a relative error of up to 2^-24.
		if got := float64(getF32(g.Data, i)); math.Abs(got-want) > 5*math.Abs(want)*0x1p-24 {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

func TestRowSum(t *testing.T) {
	k := file(t, "element.ptx").Kernel("row_sum")
	const rows, n = 7, 300
	var h heap
	y, x := h.add("y", make([]byte, 4*rows)), h.add("x", make([]byte, 4*rows*n))
	for i := range rows * n {
		putF32(x.Data, i, float32(i%13))
	}
	for seed := range uint64(5) {
		l := Launch{Kernel: k, Grid: dim(rows), Block: dim(128), Params: params(y.Base, x.Base, int32(n)), Memory: h, Seed: seed}
		testkit.Must(l.Run())(t)
		for r := range rows {
			want := 0
			for i := range n {
				want += (r*n + i) % 13
			}
			if got := getF32(y.Data, r); got != float32(want) {
				t.Fatalf("row %d has sum %v, want %d", r, got, want)
			}
		}
	}
}

func TestControlFlow(t *testing.T) {
	m := file(t, "element.ptx")
	const n = 777
	var h heap
	x, y := h.add("x", make([]byte, 4*n)), h.add("y", make([]byte, 8*n))
	rng := rand.New(rand.NewPCG(1, 2))
	in, old := make([]uint32, n), make([]uint32, n)
	for i := range in {
		in[i], old[i] = rng.Uint32N(3000), rng.Uint32()
		copy(x.Data[4*i:], words32(in[i]))
		copy(y.Data[4*i:], words32(old[i]))
	}
	run := func(name string, block uint32) {
		t.Helper()
		l := Launch{Kernel: m.Kernel(name), Grid: dim((n + block - 1) / block), Block: dim(block), Params: params(y.Base, x.Base, int32(n)), Memory: h}
		testkit.Must(l.Run())(t)
	}
	run("pick", 64)
	for i := range in {
		v := int32(in[i])
		f := []int32{v * 3, v / 5, v % 7, v ^ 0x55, v - int32(old[i]), v, -v, -v}
		if got := int32(binary.LittleEndian.Uint32(y.Data[4*i:])); got != f[v&7] {
			t.Fatalf("pick of %d is %d, want %d", v, got, f[v&7])
		}
	}
	run("collatz", 256)
	for i := range in {
		v, steps := uint64(in[i]), int32(0)
		for v > 1 {
			if v > 1000000 {
				steps = -1
				break
			}
			if v&1 != 0 {
				v = 3*v + 1
			} else {
				v /= 2
			}
			steps++
		}
		if got := int32(binary.LittleEndian.Uint32(y.Data[4*i:])); got != steps {
			t.Fatalf("collatz of %d is %d, want %d", in[i], got, steps)
		}
	}
}

// gemmRun prepares a launch of the matrix product in testdata, on random operands. edit may change
// the kernel's text. The function that it returns checks the result.
func gemmRun(t testing.TB, m, n, k int, seed uint64, edit ...string) (Launch, func() error) {
	var h heap
	c, a, b := h.add("c", make([]byte, 4*m*n)), h.add("a", make([]byte, 2*m*k)), h.add("b", make([]byte, 2*k*n))
	rng := rand.New(rand.NewPCG(3, 4))
	for _, buf := range []*Buffer{a, b} {
		for i := range len(buf.Data) / 2 {
			binary.LittleEndian.PutUint16(buf.Data[2*i:], uint16(bits32(float32(rng.IntN(17)-8))>>16))
		}
	}
	l := Launch{Kernel: file(t, "gemm.ptx", edit...).Kernel("gemm"), Grid: dim(uint32(n/64), uint32(m/64)), Block: dim(128),
		Shared: 2 * (64*40 + 32*72) * 2, Params: params(c.Base, a.Base, b.Base, int32(m), int32(n), int32(k)), Memory: h, Seed: seed}
	return l, func() error {
		for i := range m {
			for j := range n {
				want := float32(0)
				for p := range k {
					want += getBF16(a.Data, i*k+p) * getBF16(b.Data, p*n+j)
				}
				if got := getF32(c.Data, i*n+j); got != want { // small integers: the sum is exact
					return fmt.Errorf("element %d,%d is %v, want %v", i, j, got, want)
				}
			}
		}
		return nil
	}
}

func TestGEMM(t *testing.T) {
	for seed := range uint64(3) {
		l, check := gemmRun(t, 128, 192, 96, seed)
		l.CheckGlobal = seed == 0
		testkit.Must(l.Run())(t)
		testkit.NoError(t, check())
	}
}

func TestCatchesInGEMM(t *testing.T) {
	const m, n, k = 64, 64, 128
	for _, c := range []struct{ name, old, new, want string }{
		{"no barrier", "bar.sync \t0;", "", "shared memory"},
		{"no wait", "cp.async.wait_group 1;", "", "cp.async"},
		{"no last wait", "cp.async.wait_group 0;", "", "cp.async"},
		{"wait for too little", "cp.async.wait_group 1;", "cp.async.wait_group 2;", "cp.async"},
		{"no commit", "cp.async.commit_group;", "", "cp.async"},
	} {
		l, _ := gemmRun(t, m, n, k, 1, c.old, c.new)
		_, err := l.Run()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	l, _ := gemmRun(t, m, n, k, 1)
	l.Shared -= 256 // the last rows have 16 bytes of unused padding
	if _, err := l.Run(); err == nil || !strings.Contains(err.Error(), "shared memory") {
		t.Errorf("too little shared memory: error %v", err)
	}
}

// laneRate reports how many thread instructions the benchmark has interpreted in a second.
func laneRate(b *testing.B, l *Launch) {
	b.ReportMetric(32*float64(l.steps)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlanes/s")
}

func BenchmarkGEMM(b *testing.B) {
	l, _ := gemmRun(b, 256, 256, 512, 1)
	l.Threads = 1
	for b.Loop() {
		if _, err := l.Run(); err != nil {
			b.Fatal(err)
		}
	}
	laneRate(b, &l)
	b.ReportMetric(256*256*512*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkSwish(b *testing.B) {
	k := file(b, "element.ptx").Kernel("swish")
	const n = 1 << 18
	var h heap
	g, x := h.add("g", make([]byte, 4*n)), h.add("x", make([]byte, 4*n))
	l := Launch{Kernel: k, Grid: dim(16), Block: dim(256), Params: params(g.Base, x.Base, int64(n)), Memory: h, Threads: 1}
	for b.Loop() {
		if _, err := l.Run(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melements/s")
	laneRate(b, &l)
}

func BenchmarkTiny(b *testing.B) {
	k := file(b, "element.ptx").Kernel("round_bf16")
	var h heap
	in, out := h.add("src", make([]byte, 400)), h.add("dst", make([]byte, 200))
	l := Launch{Kernel: k, Grid: dim(1), Block: dim(256), Params: params(out.Base, in.Base, int64(100)), Memory: h}
	for b.Loop() {
		if _, err := l.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
