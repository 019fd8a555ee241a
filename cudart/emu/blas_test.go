package emu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"mt/base/bf16"
	"mt/cudart"
	"mt/cudart/emu"
)

// product is one matrix product for cuBLASLt to compute. Matrices are column-major, as in the
// library.
type product struct {
	m, n, k        int
	transA, transB bool
	in, out        cudart.DataType
	pad            int // elements between columns
	alpha, beta    float32
	inPlace        bool // C is D
	bias           bool
}

func size(t cudart.DataType) int {
	if t == cudart.BFloat16 {
		return 2
	}
	return 4
}

func get(b []byte, t cudart.DataType, i int) float64 {
	if t == cudart.BFloat16 {
		return float64(bf16.Widen(binary.LittleEndian.Uint16(b[2*i:])))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
}

// fill returns n random elements. They are small multiples of 1/8, which bf16 represents exactly.
func fill(rng *rand.Rand, t cudart.DataType, n int) []byte {
	b := make([]byte, n*size(t))
	for i := range n {
		bits := math.Float32bits(float32(rng.IntN(33)-16) / 8)
		if t == cudart.BFloat16 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(bits>>16))
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], bits)
		}
	}
	return b
}

// blasRig is an emulated driver with a cuBLASLt handle and the descriptors of one product.
type blasRig struct {
	*rig
	s     cudart.Stream
	h     cudart.BlasHandle
	shape cudart.MatmulShape
	prefs cudart.MatmulPreference
}

func stored(rows, cols int, trans bool) (int, int) {
	if trans {
		return cols, rows
	}
	return rows, cols
}

func openBlas(t *testing.T, o emu.Options, p *product) *blasRig {
	r := &blasRig{rig: open(t, o)}
	lt := r.BlasLt()
	var err error
	r.ctx, err = r.PrimaryContext(0)
	r.must(err)
	r.s = r.stream()
	r.h, err = lt.Create(r.ctx)
	r.must(err)
	r.shape.Desc, err = lt.DescCreate(cudart.ComputeFloat32, cudart.Float32)
	r.must(err)
	if p.transA {
		r.must(lt.DescSet(r.shape.Desc, cudart.DescTransA, int32(cudart.Transposed)))
	}
	if p.transB {
		r.must(lt.DescSet(r.shape.Desc, cudart.DescTransB, int32(cudart.Transposed)))
	}
	layout := func(t cudart.DataType, rows, cols int) cudart.MatrixLayout {
		l, err := lt.LayoutCreate(t, int64(rows), int64(cols), int64(rows+p.pad))
		r.must(err)
		return l
	}
	rows, cols := stored(p.m, p.k, p.transA)
	r.shape.A = layout(p.in, rows, cols)
	rows, cols = stored(p.k, p.n, p.transB)
	r.shape.B = layout(p.in, rows, cols)
	r.shape.C, r.shape.D = layout(p.out, p.m, p.n), layout(p.out, p.m, p.n)
	r.prefs, err = lt.PreferenceCreate()
	r.must(err)
	r.must(lt.PreferenceSet(r.prefs, cudart.PreferMaxWorkspaceBytes, 1<<20))
	return r
}

func (r *blasRig) release() {
	lt := r.BlasLt()
	r.must(errors.Join(lt.DescDestroy(r.shape.Desc), lt.LayoutDestroy(r.shape.A), lt.LayoutDestroy(r.shape.B), lt.LayoutDestroy(r.shape.C),
		lt.LayoutDestroy(r.shape.D), lt.PreferenceDestroy(r.prefs), lt.Destroy(r.ctx, r.h), r.StreamDestroy(r.s), r.ReleasePrimaryContext(0)))
	r.close()
}

// upload returns device memory with the given bytes.
func (r *blasRig) upload(b []byte) cudart.DevicePtr {
	p := r.malloc(int64(len(b)))
	r.h2d(p, b, r.s)
	return p
}

func TestProducts(t *testing.T) {
	f32, bf16 := cudart.Float32, cudart.BFloat16
	for i, p := range []product{
		{m: 1, n: 1, k: 1, in: f32, out: f32, alpha: 1},
		{m: 5, n: 7, k: 3, in: f32, out: f32, alpha: 2, beta: 1},
		{m: 67, n: 130, k: 33, in: f32, out: f32, transA: true, alpha: 1, beta: 0.5, inPlace: true},
		{m: 8, n: 9, k: 10, in: bf16, out: bf16, transB: true, alpha: 1, bias: true},
		{m: 70, n: 6, k: 129, in: bf16, out: f32, transA: true, transB: true, alpha: 1, beta: 1, inPlace: true, bias: true},
		{m: 12, n: 11, k: 10, in: bf16, out: bf16, pad: 5, alpha: 1, beta: 1},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) { check(t, &p) })
	}
}

// check runs the product p and compares the result with sums in float64.
func check(t *testing.T, p *product) {
	r := openBlas(t, emu.Options{Mode: emu.Random, Threads: 2}, p)
	rng := rand.New(rand.NewPCG(1, 2))
	rowsA, colsA := stored(p.m, p.k, p.transA)
	rowsB, colsB := stored(p.k, p.n, p.transB)
	ld := func(rows int) int { return rows + p.pad }
	a, b := fill(rng, p.in, ld(rowsA)*colsA), fill(rng, p.in, ld(rowsB)*colsB)
	c, d, bias := fill(rng, p.out, ld(p.m)*p.n), fill(rng, p.out, ld(p.m)*p.n), fill(rng, p.out, p.m)
	if p.inPlace {
		d = c
	}
	x := cudart.MatmulArgs{Alpha: p.alpha, Beta: p.beta, A: r.upload(a), B: r.upload(b), D: r.upload(d), Workspace: r.malloc(1 << 20), WorkspaceBytes: 1 << 20}
	frees := []cudart.DevicePtr{x.A, x.B, x.D, x.Workspace}
	if p.inPlace {
		x.C = x.D
	} else if p.beta != 0 {
		x.C = r.upload(c)
		frees = append(frees, x.C)
	}
	if p.bias {
		at := r.upload(bias)
		frees = append(frees, at)
		r.must(r.BlasLt().DescSet(r.shape.Desc, cudart.DescEpilogue, int32(cudart.EpilogueBias)))
		r.must(r.BlasLt().DescSetPointer(r.shape.Desc, cudart.DescBiasPointer, at))
	}
	found, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 1)
	r.must(err)
	x.Algorithm = &found[0].Algorithm
	r.must(r.BlasLt().Matmul(r.ctx, r.h, &r.shape, &x, r.s))
	got := make([]byte, len(d))
	r.d2h(got, x.D, r.s)
	at := func(b []byte, i, j, rows int, trans bool) float64 {
		if trans {
			i, j = j, i
		}
		return get(b, p.in, i+j*ld(rows))
	}
	for i := range ld(p.m) * p.n {
		want, bound := get(d, p.out, i), 0.0 // nothing is written between columns
		if row, col := i%ld(p.m), i/ld(p.m); row < p.m {
			sum, magnitude := 0.0, 0.0
			for k := range p.k {
				term := at(a, row, k, rowsA, p.transA) * at(b, k, col, rowsB, p.transB)
				sum, magnitude = sum+term, magnitude+math.Abs(term)
			}
			want = float64(p.alpha)*sum + float64(p.beta)*get(c, p.out, i)
			if p.bias {
				want += get(bias, p.out, row)
			}
			// Every term is a multiple of 1/64, and sums stay below 2^24/64, so fp32 adds them
			// exactly. Rounding to bf16, which has 8 significant bits, costs at most 2^-8 relative.
			if p.out == cudart.BFloat16 {
				bound = math.Abs(want) / 256
			}
			_ = magnitude
		}
		if diff := math.Abs(get(got, p.out, i) - want); !(diff <= bound) {
			t.Fatalf("element %d is %v, want %v", i, get(got, p.out, i), want)
		}
	}
	for _, f := range frees {
		r.must(r.Free(f))
	}
	r.release()
}

func TestProductsThatAreRefused(t *testing.T) {
	f32, bf16 := cudart.Float32, cudart.BFloat16
	for _, c := range []struct {
		name    string
		p       product
		prepare func(r *blasRig) error
	}{
		{"fp32 in, bf16 out", product{m: 4, n: 4, k: 4, in: f32, out: bf16}, nil},
		{"fp32 bias for bf16", product{m: 4, n: 4, k: 4, in: bf16, out: bf16}, func(r *blasRig) error {
			return errors.Join(r.BlasLt().DescSet(r.shape.Desc, cudart.DescEpilogue, int32(cudart.EpilogueBias)),
				r.BlasLt().DescSet(r.shape.Desc, cudart.DescBiasDataType, int32(f32)))
		}},
		{"shapes", product{m: 4, n: 4, k: 4, in: f32, out: f32}, func(r *blasRig) error {
			return r.BlasLt().DescSet(r.shape.Desc, cudart.DescTransA, 7)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openBlas(t, emu.Options{}, &c.p)
			if c.prepare != nil {
				r.must(c.prepare(r))
			}
			if _, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 1); err == nil {
				t.Error("an algorithm was found")
			}
			r.release()
		})
	}
	r := openBlas(t, emu.Options{}, &product{m: 4, n: 4, k: 4, in: f32, out: f32})
	if err := r.BlasLt().DescSet(r.shape.Desc, 99, 1); err == nil {
		t.Error("an attribute that is none was set")
	}
	found, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 1)
	r.must(err)
	a := r.malloc(1 << 16)
	x := cudart.MatmulArgs{Alpha: 1, A: a + 4, B: a, D: a + 256, Algorithm: &found[0].Algorithm, Workspace: a, WorkspaceBytes: 1 << 16}
	if err := r.BlasLt().Matmul(r.ctx, r.h, &r.shape, &x, r.s); err == nil {
		t.Error("an operand that is not aligned was taken")
	}
	r.expect(emu.Argument, "A at", "not aligned to 256 bytes")
}

// TestAlgorithmsOfOtherProducts: the emulator rejects an algorithm for a product other than the one
// it was proposed for. The exception is an extent that is a power of two: the algorithm also fits
// every smaller extent above half of it. An algorithm for a smaller extent does not fit the power
// of two.
func TestAlgorithmsOfOtherProducts(t *testing.T) {
	f32 := cudart.Float32
	for _, c := range []struct {
		found, n int // columns
		in       cudart.DataType
		ok       bool
	}{{64, 64, f32, true}, {64, 33, f32, true}, {64, 32, f32, false}, {64, 65, f32, false}, {48, 47, f32, false}, {1, 1, f32, true},
		{64, 64, cudart.BFloat16, false}} {
		r := openBlas(t, emu.Options{}, &product{m: 4, n: c.found, k: 4, in: f32, out: f32})
		found, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 1)
		r.must(err)
		shape := r.shape
		shape.B, err = r.BlasLt().LayoutCreate(c.in, 4, int64(c.n), 4)
		r.must(err)
		shape.A, err = r.BlasLt().LayoutCreate(c.in, 4, 4, 4)
		r.must(err)
		shape.D, err = r.BlasLt().LayoutCreate(f32, 4, int64(c.n), 4)
		r.must(err)
		shape.C = shape.D
		in, w := r.malloc(4096), r.malloc(1<<16)
		r.must(r.MemsetAsync(in, 0, 4096, r.s))
		x := cudart.MatmulArgs{Alpha: 1, A: in, B: in, D: r.malloc(4096), Algorithm: &found[0].Algorithm, Workspace: w, WorkspaceBytes: 1 << 16}
		if err := r.BlasLt().Matmul(r.ctx, r.h, &shape, &x, r.s); (err == nil) != c.ok {
			t.Errorf("%+v: error %v", c, err)
		}
		if !c.ok {
			r.expect(emu.Argument, "with an algorithm for another problem")
		}
		r.sync(r.s)
	}
}

// TestSharedWorkspace: the emulator reports a mistake if two products use the same workspace
// without an order between them.
func TestSharedWorkspace(t *testing.T) {
	r := openBlas(t, emu.Options{}, &product{m: 4, n: 4, k: 4, in: cudart.Float32, out: cudart.Float32})
	found, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 1)
	r.must(err)
	in, w := r.malloc(64), r.malloc(1<<20)
	r.must(r.MemsetAsync(in, 0, 64, r.s))
	r.sync(r.s)
	s2 := r.stream()
	for _, s := range []cudart.Stream{r.s, s2} {
		x := cudart.MatmulArgs{Alpha: 1, A: in, B: in, D: r.malloc(64), Algorithm: &found[0].Algorithm, Workspace: w, WorkspaceBytes: 1 << 20}
		r.must(r.BlasLt().Matmul(r.ctx, r.h, &r.shape, &x, s))
	}
	r.sync(r.s)
	r.sync(s2)
	r.expect(emu.Order, "matrix product 4×4×4 on stream #1", "matrix product 4×4×4 on stream #2", "device memory #2 (1048576 bytes)")
}

// TestProductNeedsAContext: a cublasLt call on a thread without a context is a fault, because the kernels that the
// library launches through libcuda would fail.
func TestProductNeedsAContext(t *testing.T) {
	r := openBlas(t, emu.Options{}, &product{m: 4, n: 4, k: 4, in: cudart.Float32, out: cudart.Float32})
	p := r.malloc(64)
	if err := r.BlasLt().Matmul(0, r.h, &r.shape, &cudart.MatmulArgs{Alpha: 1, A: p, B: p, D: r.malloc(64)}, r.s); err == nil {
		t.Error("no error")
	}
	r.expect(emu.Context, "cublasLtMatmul", "without a current context")
}

func BenchmarkProduct(b *testing.B) {
	for _, t := range []cudart.DataType{cudart.Float32, cudart.BFloat16} {
		b.Run(fmt.Sprint("type", t), func(b *testing.B) {
			const n = 256
			d := emu.New(emu.Options{Threads: 1})
			defer d.Close()
			c, err := cudart.New(d)
			if err != nil {
				b.Fatal(err)
			}
			lt := c.BlasLt()
			ctx, _ := c.PrimaryContext(0)
			h, _ := lt.Create(ctx)
			var s cudart.MatmulShape
			s.Desc, _ = lt.DescCreate(cudart.ComputeFloat32, cudart.Float32)
			s.A, _ = lt.LayoutCreate(t, n, n, n)
			s.B, s.C, s.D = s.A, s.A, s.A
			p, _ := c.Malloc(ctx, n*n*4)
			q, _ := c.Malloc(ctx, n*n*4)
			c.MemsetAsync(ctx, p, 0, n*n*4, 0)
			b.ResetTimer()
			for range b.N {
				if err := lt.Matmul(ctx, h, &s, &cudart.MatmulArgs{Alpha: 1, A: p, B: p, D: q}, 0); err != nil {
					b.Fatal(err)
				}
				c.StreamSynchronize(ctx, 0)
			}
			b.ReportMetric(2*n*n*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func TestML(t *testing.T) {
	r := open(t, emu.Options{Name: "Test GPU", DeviceMemory: 1 << 20})
	n := r.NVML()
	if _, err := n.ByPCI("00000000:01:00.0"); err == nil {
		t.Error("a handle before Init")
	}
	r.must(n.Init())
	g, err := n.ByPCI("00000000:01:00.0")
	r.must(err)
	if name, err := n.Name(g); err != nil || name != "Test GPU" {
		t.Errorf("named %q, %v", name, err)
	}
	p := r.malloc(512)
	if total, free, used, err := n.Memory(g); err != nil || total != 1<<20 || used != 512 || free != total-used {
		t.Errorf("memory %d %d %d, %v", total, free, used, err)
	}
	if gen, lanes, err := n.PCIe(g); err != nil || gen != 5 || lanes != 16 {
		t.Errorf("PCIe %d x%d, %v", gen, lanes, err)
	}
	if w, err := n.PowerMilliwatts(g); err != nil || w <= 0 {
		t.Errorf("power %d, %v", w, err)
	}
	if c, err := n.Celsius(g); err != nil || c <= 0 {
		t.Errorf("temperature %d, %v", c, err)
	}
	if th, err := n.Throttled(g); err != nil || th != 0 {
		t.Errorf("throttled %v, %v", th, err)
	}
	if v, err := n.DriverVersion(); err != nil || v == "" {
		t.Errorf("version %q, %v", v, err)
	}
	if mhz, err := n.ClockMHz(g, 1); err != nil || mhz <= 0 {
		t.Errorf("clock %d, %v", mhz, err)
	}
	r.must(r.Free(p))
	r.must(n.Shutdown())
	r.close()
}

// TestSumsInPlace: if the preference allows in-place reduction, the first proposed algorithm uses
// it, and a second run gives other bits. If the preference rules it out, no such algorithm is
// proposed.
func TestSumsInPlace(t *testing.T) {
	r := openBlas(t, emu.Options{}, &product{m: 1, n: 1, k: 3, in: cudart.Float32, out: cudart.Float32})
	row, ones := make([]byte, 12), make([]byte, 12)
	for i, v := range []float32{1, 1 << 25, -1 << 25} { // 0 if summed forward, 1 if summed backward
		binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(v))
		binary.LittleEndian.PutUint32(ones[4*i:], math.Float32bits(1))
	}
	a, b, w, d := r.upload(row), r.upload(ones), r.malloc(1<<16), r.malloc(4)
	bits := func(algorithm cudart.Algorithm) (out [2]string) {
		for i := range out {
			x := cudart.MatmulArgs{Alpha: 1, A: a, B: b, C: d, D: d, Algorithm: &algorithm, Workspace: w, WorkspaceBytes: 1 << 16}
			r.must(r.BlasLt().Matmul(r.ctx, r.h, &r.shape, &x, r.s))
			sum := make([]byte, 4)
			r.d2h(sum, d, r.s)
			out[i] = fmt.Sprintf("%x", sum)
		}
		return out
	}
	for _, mask := range []uint64{7, cudart.ReductionFloat32} {
		r.must(r.BlasLt().PreferenceSet(r.prefs, cudart.PreferReductions, mask))
		found, err := r.BlasLt().AlgoGetHeuristic(r.ctx, r.h, &r.shape, r.prefs, 8)
		r.must(err)
		for i, f := range found {
			if got := bits(f.Algorithm); (got[0] != got[1]) != (mask == 7 && i == 0) {
				t.Errorf("reductions %d: proposal %d of %d gives %v", mask, i+1, len(found), got)
			}
		}
		if want := 3 + int(mask&1); len(found) != want {
			t.Errorf("reductions %d: %d proposals, want %d", mask, len(found), want)
		}
	}
	for _, p := range []cudart.DevicePtr{a, b, w, d} {
		r.must(r.Free(p))
	}
	r.release()
}
