package cuda

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/conformance"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestEveryOperation: the conformance tests have cases for exactly the operations that this device
// implements.
func TestEveryOperation(t *testing.T) {
	if got, want := table.Names(), conformance.OperationNames(); !slices.Equal(got, want) {
		t.Errorf("the device has %v, there are cases of %v", got, want)
	}
}

// unheard is an emulated driver that ignores launches and products: the C functions for them are
// replaced by one that does nothing. So tests measure only mt's own path up to the driver's call.
type unheard struct {
	*emu.Driver
	nothing uintptr
}

func (u unheard) Symbol(lib cudart.Library, name string) uintptr {
	switch name {
	case "cuLaunchKernel", "cuCtxSetCurrent", "cuTensorMapEncodeTiled", "cublasLtMatmul", "cublasLtMatmulDescSetAttribute",
		"cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy":
		return u.nothing
	}
	return u.Driver.Symbol(lib, name)
}

// newUnheard opens a device on an unheard driver. Because cuCtxSetCurrent does nothing there,
// newUnheard sets the context once for the OS thread of this goroutine, and keeps the goroutine on
// that thread.
func newUnheard(t *testing.T) *dev {
	t.Helper()
	if testkit.Race {
		t.Skip("with the race detector every operation has memory of its own")
	}
	nothing := emu.Nothing()
	if nothing == 0 {
		t.Skip("the C library here has no function that does nothing, to stand in for the driver's")
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	drv, c := bind(t, emu.Options{})
	ctx := testkit.Must(c.PrimaryContext(0))(t)
	t.Cleanup(func() {
		if err := c.ReleasePrimaryContext(0); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := c.MemGetInfo(ctx); err != nil {
		t.Fatal(err)
	}
	quiet := testkit.Must(cudart.New(unheard{drv, nothing}))(t)
	d := testkit.Must(New(Options{CUDA: quiet, OwnMatMul: true}))(t)
	testkit.Close(t, d)
	return d.(*dev)
}

// enqueues replaces *testing.T when conformance cases run. It runs up to 16 cases of each operation
// and type and fails if enqueueing allocates memory. It ignores results, because the emulated driver
// of type unheard computes nothing.
type enqueues struct {
	*testing.T
	name string
	seen map[string]int
}

func (e enqueues) Errorf(string, ...any) {}

func (e enqueues) Run(name string, f func(enqueues)) bool {
	of := strings.Join(strings.SplitN(name, "/", 3)[:2], "/")
	if e.seen[of]++; e.seen[of] <= 16 {
		f(enqueues{e.T, name, e.seen})
	}
	return true
}

// Enqueue measures the allocations of once, which enqueues one operation. It first waits until the
// stream's worker is idle, because a busy worker would enqueue in the caller's place.
func (e enqueues) Enqueue(s device.Stream, once func()) {
	if err := s.Sync(); err != nil {
		e.T.Fatalf("%s: %v", e.name, err)
	}
	if got := testing.AllocsPerRun(100, once); got != 0 {
		e.T.Errorf("%s: %v allocations", e.name, got)
	}
	if err := s.Err(); err != nil {
		e.T.Fatalf("%s: %v", e.name, err)
	}
}

// TestEnqueueingAllocatesNothing measures the whole path from op.Do to cuLaunchKernel. It disables
// garbage collection, which would empty the sync.Pools. AllocsPerRun rounds the average down, so
// less than one allocation for each operation passes: a pool does not find values that another core
// holds.
func TestEnqueueingAllocatesNothing(t *testing.T) {
	testkit.NotShort(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	e := enqueues{t, "", map[string]int{}}
	d := newUnheard(t)
	conformance.Operations(e, d)
	if n := len(d.functions); n < 80 {
		t.Errorf("%d kernels were launched", n)
	}
	if want := 2 * len(conformance.OperationNames()); len(e.seen) != want {
		t.Errorf("cases of %d operations and types, want %d", len(e.seen), want)
	}
}

// TestProductsAllocateNothing: enqueueing a cuBLASLt product whose algorithm is chosen allocates no
// memory. The products are plain, with a bias, and with a number of rows that depends on the data.
func TestProductsAllocateNothing(t *testing.T) {
	d := newUnheard(t)
	d.blas.lib = d.cuda.BlasLt()
	defer func() { d.blas.lib = nil }()
	s := newStream(t, d, "s")
	x := alloc(t, d, 1<<16)
	f := func(off int64) device.Tensor { return x.Tensor(device.BF16, off, 64*64) }
	m := op.MatMul{M: 64, N: 64, K: 64, A: f(0), B: f(1 << 13), D: f(1 << 14)}
	biased, ragged := m, m
	biased.Bias = x.Tensor(device.F32, 1<<15, 64)
	ragged.M, ragged.Ragged = 33, true
	for _, m := range []op.MatMul{m, biased, ragged} {
		key := keyOf(&m)
		key.bias, key.align[4] = !m.Bias.None(), 0
		if key.bias {
			key.align[4] = device.Align // of the copy
		}
		d.blas.products[key] = &product{}
		if got := testing.AllocsPerRun(100, func() { op.Do(d, s, m) }); got != 0 {
			t.Errorf("%v: %v allocations", key, got)
		}
		testkit.NoError(t, s.Err())
		if n := len(d.blas.products); n != 1 {
			t.Errorf("%v: %d products", key, n)
		}
		clear(d.blas.products)
	}
}
