package cudart

import (
	"errors"
	"os"
	"testing"

	"mt/internal/testkit"
)

// librariesVariable is an environment variable with a colon-separated list of folders with NVIDIA's libraries.
const librariesVariable = "MT_CUDA_LIBS_TEST"

// realLibraries loads the libraries in the folders of MT_CUDA_LIBS_TEST.
func realLibraries(t *testing.T) Found {
	t.Helper()
	folders := os.Getenv(librariesVariable)
	if folders == "" {
		t.Skip(librariesVariable + " names no folder with CUDA's libraries")
	}
	t.Setenv(Variable, folders)
	return Find(ThisMachine())
}

// TestRealSymbols: every C function that this package binds exists in the real libraries. The
// driver's own functions exist only on a machine with a driver.
func TestRealSymbols(t *testing.T) {
	found := realLibraries(t)
	for lib, names := range boundSymbols() {
		l := found.Library(lib)
		if l.Path == "" {
			if lib == Runtime || lib == BlasLt {
				t.Errorf("lib%s: %s", lib, l.problem())
			} else {
				t.Logf("lib%s is not on this machine", lib)
			}
			continue
		}
		missing := 0
		for _, name := range names {
			if found.Symbol(lib, name) == 0 {
				t.Errorf("%s has no %s", l.Path, name)
				missing++
			}
		}
		t.Logf("%s %s: %d of %d functions", l.Path, l.Version, len(names)-missing, len(names))
	}
}

// driverless is a Symbols with the functions of the real libraries. On a machine without a driver,
// libcuda's functions are those of the fake.
type driverless struct{ found Found }

func (d driverless) Symbol(lib Library, name string) uintptr {
	if lib == Driver && d.found.Library(Driver).Path == "" {
		return theFake().Symbol(lib, name)
	}
	return d.found.Symbol(lib, name)
}

// TestRealCalls: calls of the real libraries that work without a GPU give correct results, and
// others return the expected errors.
func TestRealCalls(t *testing.T) {
	newFake(t)
	found := realLibraries(t)
	c, err := New(driverless{found})
	testkit.NoError(t, err)
	// Without a driver, libcudart of CUDA 11 returns an error in place of its version.
	if v, err := c.RuntimeVersion(); !errors.Is(err, ErrDriverTooOld) && (err != nil || v < 11080) {
		t.Errorf("RuntimeVersion is %d, %v", v, err)
	}
	if v := c.BlasLt().Version(); v < 11_11_00 {
		t.Errorf("cublasLtGetVersion is %d", v)
	}
	testRealBlas(t, c)
	n, err := c.DeviceCount()
	if err == nil {
		t.Skipf("%d GPUs here: what a machine without one answers cannot be seen", n)
	}
	if !errors.Is(err, ErrNoDevice) && !errors.Is(err, ErrDriverTooOld) {
		t.Errorf("DeviceCount without a GPU: %v", err)
	}
	t.Log(err)
}

// testRealBlas creates the objects that cuBLASLt can create without a GPU, sets every attribute, and reads one back.
func testRealBlas(t *testing.T, c *CUDA) {
	blas := c.BlasLt()
	desc, err := blas.DescCreate(ComputeFloat32, Float32)
	layout, err2 := blas.LayoutCreate(BFloat16, 64, 32, 64)
	prefer, err3 := blas.PreferenceCreate()
	testkit.NoError(t, errors.Join(err, err2, err3))
	err = errors.Join(
		blas.DescSet(desc, DescTransA, int32(Transposed)),
		blas.DescSet(desc, DescTransB, int32(NoTranspose)),
		blas.DescSet(desc, DescEpilogue, int32(EpilogueBias)),
		blas.DescSetPointer(desc, DescBiasPointer, 0x1000),
		blas.DescSet(desc, DescBiasDataType, int32(BFloat16)),
		blas.PreferenceSet(prefer, PreferMaxWorkspaceBytes, 32<<20),
		blas.PreferenceSet(prefer, PreferReductions, ReductionFloat32),
	)
	for _, attr := range []PreferenceAttr{PreferMinAlignmentA, PreferMinAlignmentB, PreferMinAlignmentC, PreferMinAlignmentD} {
		err = errors.Join(err, blas.PreferenceSet(prefer, attr, 16))
	}
	err = errors.Join(err, blas.DescDestroy(desc), blas.LayoutDestroy(layout), blas.PreferenceDestroy(prefer))
	if err != nil {
		t.Error(err)
	}
	ctx, err := c.PrimaryContext(0)
	if err == nil {
		defer c.ReleasePrimaryContext(0) // the process ends soon after
	}
	var e *Error
	if h, err := blas.Create(ctx); err == nil {
		if err := blas.Destroy(ctx, h); err != nil {
			t.Error(err)
		}
	} else if !errors.As(err, &e) || e.Text == "" {
		t.Errorf("cublasLtCreate's error has no text: %v", err)
	}
}
