package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/conformance/oracle"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// parts is how many parts TestOps splits the conformance cases into. The parts run in parallel,
// each with a device of its own.
const parts = 4

// TestOps: the conformance cases of all operations pass, with matrix products by cuBLASLt, and the
// product cases again with mt's own kernels. By default it runs all products by cuBLASLt and one in
// seven of the other cases, whose kernels have tests of their own. Long tests run all cases.
func TestOps(t *testing.T) {
	some := conformance.OneIn(testkit.Every(t, 7))
	if testing.Short() {
		some = conformance.OneIn(0)
	}
	n := uint32(parts)
	if testkit.Race {
		n = 1 // slow, and the values are those of other runs
	}
	product := func(name string) bool { return strings.HasPrefix(name, "MatMul/") }
	for i := range n {
		mine := func(name string) bool {
			h := fnv.New32a()
			h.Write([]byte(name))
			return h.Sum32()%parts == i
		}
		t.Run(fmt.Sprintf("cuBLASLt/%d", i), func(t *testing.T) {
			t.Parallel()
			d, _ := newDevice(t, emu.Options{Mode: emu.Random, Seed: uint64(i), Threads: 1}, Options{})
			conformance.SomeOperations(t, d, func(name string) bool { return mine(name) && (some(name) || product(name) && !testing.Short()) })
		})
		t.Run(fmt.Sprintf("own/%d", i), func(t *testing.T) {
			t.Parallel()
			d, _ := newDevice(t, emu.Options{Mode: emu.Lazy, Threads: 1}, Options{OwnMatMul: true})
			conformance.SomeOperations(t, d, func(name string) bool { return mine(name) && product(name) && some(name) })
			if len(d.Algorithms()) > 0 {
				t.Error("cuBLASLt was used")
			}
		})
	}
}

// TestAlgorithms: cuBLASLt computes products with one algorithm for each shape. mt's own kernels
// compute the products that cuBLASLt refuses.
func TestAlgorithms(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<20)
	s.Zero(x)
	f := func(off int64) device.Tensor { return x.Tensor(device.BF16, off, 64*64) }
	product := op.MatMul{M: 64, N: 64, K: 64, A: f(0), B: f(1 << 14), D: f(1 << 15)}
	moved := product
	moved.A = f(1 << 17)
	accumulating := product
	accumulating.C = product.D
	unaligned := product
	unaligned.B = f(1<<14 + 2)
	for _, m := range []op.MatMul{product, moved, product, accumulating, unaligned} {
		op.Do(d, s, m)
	}
	testkit.NoError(t, s.Sync())
	got := d.Algorithms()
	var shapes []string
	for _, a := range got {
		shapes = append(shapes, a.Shape)
	}
	want := []string{"64x64x64 NN bf16->bf16 +C align [256 256 256 256 0]", "64x64x64 NN bf16->bf16 align [256 2 0 256 0]",
		"64x64x64 NN bf16->bf16 align [256 256 0 256 0]"}
	if fmt.Sprint(shapes) != fmt.Sprint(want) {
		t.Errorf("shapes\n%q, want\n%q", shapes, want)
	}
}

// TestRaggedProducts: an expert's number of tokens, which is M or K of its products, depends on the
// data. Such numbers are rounded up to powers of two in the keys, so that 70 numbers query cuBLASLt
// for only a few algorithms. The results are still those of the exact number.
func TestRaggedProducts(t *testing.T) {
	for _, refuse := range []int{0, 15} {
		for trans, want := range map[bool]string{
			false: "<=64x3x3 NN fp32->fp32 align [256 256 0 256 0]",
			true:  "3x3x<=64 TN fp32->fp32 align [256 256 0 256 0]",
		} {
			d, drv := newDevice(t, emu.Options{RefuseProducts: refuse}, Options{})
			shapes := raggedProducts(t, d, trans)
			got := d.Algorithms()
			asked := 0
			for i := 1; drv.CallName(i) != ""; i++ {
				if drv.CallName(i) == "cublasLtMatmulAlgoGetHeuristic" {
					asked++
				}
			}
			if len(got) != 8 || asked != 8 || len(shapes) != 8 {
				t.Errorf("transposed %v: %d algorithms, asked for %d times, for the shapes %v", trans, len(got), asked, shapes)
			}
			if !shapes[want] {
				t.Errorf("no shape %q: %v", want, shapes)
			}
			if (len(d.Notes()) == 0) != (refuse == 0) {
				t.Errorf("refused with %d: notes %q", refuse, d.Notes())
			}
		}
	}
}

// raggedProducts computes products whose number of rows is read from device memory: 1 to 70 rows
// (with trans, sums of 1 to 70 terms). It checks the results and returns the keys of the products.
func raggedProducts(t *testing.T, d *dev, trans bool) map[string]bool {
	t.Helper()
	const n = 3
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<16)
	up, down := make([]byte, 1<<12), make([]byte, 1<<12)
	for i := range len(up) / 4 {
		binary.LittleEndian.PutUint32(up[4*i:], math.Float32bits(float32(i%5)))
	}
	s.CopyH2D(x.Slice(0, 1<<12), up)
	shapes := map[string]bool{}
	for rows := 1; rows <= 70; rows++ {
		m := op.MatMul{M: rows, N: n, K: n, TransA: trans, Ragged: true}
		if trans {
			m.M, m.K = n, rows
		}
		f := func(off int64, len int) device.Tensor { return x.Tensor(device.F32, off, int64(len)) }
		m.A, m.B, m.D = f(0, m.M*m.K), f(1<<11, m.K*n), f(1<<13, m.M*n)
		op.Do(d, s, m)
		s.CopyD2H(down, x.Slice(1<<13, 1<<12))
		testkit.NoError(t, s.Sync())
		want := make([]float64, m.M*n)
		oracle.MatMul(want, floats(up), floats(up[1<<11:]), nil, nil, m.M, n, m.K, trans, false)
		if got := floats(down)[:len(want)]; !slices.Equal(got, want) { // small integers: exact
			t.Fatalf("transposed %v, %d rows: %v, want %v", trans, rows, got, want)
		}
		shapes[keyOf(&m).String()] = true
	}
	return shapes
}

func floats(b []byte) []float64 {
	v := make([]float64, len(b)/4)
	for i := range v {
		v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return v
}

// TestRefusedProducts: if cuBLASLt refuses an algorithm that it has proposed, mt's own kernel
// computes the product, and the user gets one note.
func TestRefusedProducts(t *testing.T) {
	for _, code := range []int{7, 15} { // invalid value, not supported
		d, _ := newDevice(t, emu.Options{RefuseProducts: code}, Options{})
		s := newStream(t, d, "s")
		x := alloc(t, d, 3*64)
		up, down := []byte{0, 0, 0x40, 0x40}, make([]byte, 4) // 3
		sum := make([]byte, 2)
		s.CopyH2D(x.Slice(0, 4), up)
		m := op.MatMul{M: 1, N: 1, K: 1, A: x.Tensor(device.F32, 0, 1), B: x.Tensor(device.F32, 0, 1), D: x.Tensor(device.F32, 64, 1)}
		for range 2 {
			op.Do(d, s, m)
		}
		biased := m // a bf16 result whose bias our kernel takes in fp32
		biased.A, biased.B = x.Tensor(device.BF16, 2, 1), x.Tensor(device.BF16, 2, 1)
		biased.Bias, biased.D = x.Tensor(device.F32, 0, 1), x.Tensor(device.BF16, 128, 1)
		op.Do(d, s, biased)
		s.CopyD2H(sum, x.Slice(128, 2))
		s.CopyD2H(down, x.Slice(64, 4))
		if err := s.Sync(); err != nil || down[2] != 0x10 || down[3] != 0x41 { // 9
			t.Errorf("code %d: %v, result %x", code, err, down)
		}
		if sum[0] != 0x40 || sum[1] != 0x41 { // 12
			t.Errorf("code %d: with a bias %x", code, sum)
		}
		if got := d.Algorithms(); len(got) != 2 || got[0].Words != [8]uint64{} {
			t.Errorf("code %d: algorithms %v", code, got)
		}
		if notes := d.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "1x1x1 NN fp32->fp32") || !strings.Contains(notes[0], "cublasLtMatmul") {
			t.Errorf("code %d: notes %q", code, notes)
		}
	}
}

// TestFallbacks: Fallbacks lists a refused product only if its addresses and rows are multiples of
// 16 bytes. cuBLASLt is known not to compute the others.
func TestFallbacks(t *testing.T) {
	d, _ := newDevice(t, emu.Options{RefuseProducts: 15}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<15)
	s.Zero(x)
	at := func(off int64) device.Tensor { return x.Tensor(device.BF16, off, 8*8) }
	for _, m := range []op.MatMul{
		{M: 8, N: 8, K: 8, A: at(0), B: at(0), D: at(512)},
		{M: 3, N: 8, K: 8, A: at(0), B: at(0), D: at(512)},               // a small number of aligned rows
		{M: 8, N: 4, K: 8, A: at(0), B: at(0), D: at(512)},               // rows of 8 bytes
		{M: 8, N: 8, K: 4, A: at(0), B: at(0), D: at(512)},               // in A
		{M: 4, N: 8, K: 8, A: at(0), B: at(0), D: at(512), TransA: true}, // in A, transposed
		{M: 8, N: 8, K: 8, A: at(0), B: at(0), D: at(520)},               // an address
		{M: 8, N: 8, K: 8, A: at(0), B: at(0), D: at(512)},               // the same again
	} {
		op.Do(d, s, m)
	}
	testkit.NoError(t, s.Sync())
	got := d.Fallbacks()
	if len(got) != 2 || !strings.HasPrefix(got[0], "8x8x8 ") || !strings.HasPrefix(got[1], "3x8x8 ") {
		t.Errorf("fallbacks %q", got)
	}
}

// TestUnalignedBias: a bias may begin at any address. cuBLASLt gets a copy at an aligned address.
func TestUnalignedBias(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 1024)
	s.Zero(x)
	up, down := []byte{0, 0, 0x40, 0x40}, make([]byte, 4) // 3
	s.CopyH2D(x.Slice(4, 4), up)
	f := func(off int64) device.Tensor { return x.Tensor(device.F32, off, 1) }
	op.Do(d, s, op.MatMul{M: 1, N: 1, K: 1, A: f(256), B: f(256), Bias: f(4), D: f(512)})
	s.CopyD2H(down, x.Slice(512, 4))
	if err := s.Sync(); err != nil || string(down) != string(up) {
		t.Errorf("%v, result %x", err, down)
	}
	if got := d.Algorithms(); len(got) != 1 || got[0].Words == [8]uint64{} {
		t.Errorf("cuBLASLt did not compute it: %v", got)
	}
}

// TestProductOnALostDevice: if the device is lost, the error of a cuBLASLt product also names the
// device's own error.
func TestProductOnALostDevice(t *testing.T) {
	calls := func(o emu.Options) (at int, err error) {
		drv := emu.New(o)
		defer func() { _ = drv.Close() }() // a lost device gives nothing back
		c, err := cudart.New(drv)
		testkit.NoError(t, err)
		d, err := New(Options{CUDA: c})
		testkit.NoError(t, err)
		s, x := newStream(t, d, "s"), alloc(t, d, 64).Tensor(device.F32, 0, 1)
		op.Do(d, s, op.MatMul{M: 1, N: 1, K: 1, A: x, B: x, D: x})
		err = s.Close()
		_ = d.Close() // fails as everything does
		for at = 1; drv.CallName(at) != "cublasLtMatmul"; at++ {
			if drv.CallName(at) == "" {
				t.Fatal("cuBLASLt was not called")
			}
		}
		return at, err
	}
	at, _ := calls(emu.Options{})
	_, err := calls(emu.Options{LoseDeviceAt: at, LostCode: 700})
	if !errors.Is(err, cudart.ErrContextLost) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"MatMul: cublasLtMatmul: ", "illegal memory access", "an earlier operation may be at fault"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// TestProductsAreForgotten: the device remembers at most mostProducts shapes of products. When it
// forgets shapes, it destroys their descriptors.
func TestProductsAreForgotten(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	s := newStream(t, d, "s")
	x := alloc(t, d, 4*(mostProducts+10)).Tensor(device.F32, 0, mostProducts+10)
	for n := 1; n < mostProducts+5; n++ {
		key := productKey{m: n, n: 1, k: 1, in: device.F32, out: device.F32}
		d.blas.products[key] = &product{refused: errRefused}
	}
	op.Do(d, s, op.MatMul{M: 1, N: 1, K: 1, A: x.Slice(0, 1), B: x.Slice(1, 1), D: x.Slice(2, 1)})
	testkit.NoError(t, s.Sync())
	if n := len(d.Algorithms()); n != 1 {
		t.Errorf("%d shapes are remembered", n)
	}
}

// TestWidestHeads: attention accepts heads of MaxHeadDim elements, and returns an error for larger
// ones.
func TestWidestHeads(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	m := alloc(t, d, 8192)
	f, bounds := m.Tensor(device.F32, 0, 1024), m.Tensor(device.I32, 4096, 2)
	shape := op.AttentionShape{CuQ: bounds, CuK: bounds, Seqs: 1, TQ: 1, TK: 1, MaxQ: 1, MaxK: 1, Heads: 1, KVHeads: 1, Dim: kernels.MaxHeadDim, Scale: 1}
	s := newStream(t, d, "s")
	s.Zero(m)
	s.CopyH2D(bounds.Mem(), []byte{0, 0, 0, 0, 1, 0, 0, 0})
	forward := op.Attention{AttentionShape: shape, O: f.Slice(512, 512), Q: f, K: f, V: f}
	op.Do(d, s, forward)
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	forward.Dim, forward.O = kernels.MaxHeadDim+1, f
	backward := op.AttentionBackward{AttentionShape: forward.AttentionShape, DQ: f, DK: f, DV: f, DO: f, O: f, LSE: f, Q: f, K: f, V: f, Delta: f}
	conformance.BadArguments(t, d, []conformance.BadCall{
		{Want: "Attention: heads of 513 elements: the kernels take at most 512", Call: func(s device.Stream) { op.Do(d, s, forward) }},
		{Want: "AttentionBackward: heads of 513 elements", Call: func(s device.Stream) { op.Do(d, s, backward) }},
	})
}

// TestAlignment: alignment returns the largest of device.Align, 16, 8, 4 and 2 that divides an
// address. Algorithms depend on it.
func TestAlignment(t *testing.T) {
	for addr, want := range map[uintptr]uint16{0: device.Align, 3 * device.Align: device.Align, device.Align + 16: 16, 48: 16, 24: 8, 20: 4, 6: 2} {
		if got := alignment(addr); got != want {
			t.Errorf("%d is aligned to %d, want %d", addr, got, want)
		}
	}
}
