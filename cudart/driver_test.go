package cudart

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func TestPrimaryContext(t *testing.T) {
	f, c := newFake(t)
	f.on("cuDeviceGet", func(a *[maxArguments]uintptr) uintptr { *memory[int32](a[0]) = int32(a[1]) + 40; return 0 })
	f.on("cuDevicePrimaryCtxRetain", func(a *[maxArguments]uintptr) uintptr { *memory[uintptr](a[0]) = 1<<40 + a[1]; return 0 })
	ctx, err := c.PrimaryContext(2)
	if err != nil || ctx != 1<<40+42 {
		t.Errorf("context %#x, %v", ctx, err)
	}
	if err := c.ReleasePrimaryContext(2); err != nil || f.calls[len(f.calls)-1].args[0] != 42 {
		t.Errorf("%v, %v", err, f.calls[len(f.calls)-1])
	}
	want := []string{"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRelease_v2"}
	if got := f.names(); !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
	f.fails("cuInit", errorNoDevice)
	if _, err := c.PrimaryContext(0); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
}

func TestDeviceName(t *testing.T) {
	f, c := newFake(t)
	f.on("cuDeviceGetName", func(a *[maxArguments]uintptr) uintptr {
		if got := memory[[256]byte](a[0]); a[1] != 256 || *got != [256]byte{} {
			return 1
		}
		copy(memory[[256]byte](a[0])[:], "NVIDIA H200")
		return 0
	})
	for range 2 { // the second call reuses a frame
		if name, err := c.DeviceName(0); err != nil || name != "NVIDIA H200" {
			t.Errorf("%q, %v", name, err)
		}
	}
	f.fails("cuDeviceGetName", errorLaunchFailure)
	if _, err := c.DeviceName(0); !errors.Is(err, ErrContextLost) {
		t.Error(err)
	}
}

func TestModuleLoad(t *testing.T) {
	f, c := newFake(t)
	ptx := []byte(".version 8.0")
	code := uintptr(0)
	f.on("cuModuleLoadDataEx", func(a *[maxArguments]uintptr) uintptr {
		if textAt(a[1]) != string(ptx) || a[2] != 4 {
			return 1
		}
		keys, values := memory[[4]uint32](a[3]), memory[[4]uintptr](a[4])
		if *keys != [4]uint32{3, 4, 5, 6} || values[1] != jitLogBytes || values[3] != jitLogBytes {
			return 1
		}
		copy(memory[[jitLogBytes]byte](values[0])[:], "info: 12 registers\n\x00")
		copy(memory[[jitLogBytes]byte](values[2])[:], "ptxas x.ptx, line 3; error: no\n\x00")
		*memory[uintptr](a[0]) = 77
		return code
	})
	if m, err := c.ModuleLoad(90, ptx); err != nil || m != 77 {
		t.Fatalf("%d, %v", m, err)
	}
	code = 218
	_, err := c.ModuleLoad(90, ptx)
	var e *Error
	if !errors.As(err, &e) || e.Code != 218 || e.Detail != "ptxas x.ptx, line 3; error: no\ninfo: 12 registers" {
		t.Errorf("%#v", err)
	}
	code = errorUnsupportedPTXVersion
	if _, err := c.ModuleLoad(90, ptx); !errors.Is(err, ErrDriverTooOld) {
		t.Error(err)
	}
	f.fails("cuCtxSetCurrent", 201)
	if _, err := c.ModuleLoad(90, ptx); !errors.As(err, &e) || e.Op != "cuCtxSetCurrent" {
		t.Error(err)
	}
}

func TestModuleFunction(t *testing.T) {
	f, c := newFake(t)
	f.on("cuModuleGetFunction", func(a *[maxArguments]uintptr) uintptr {
		if textAt(a[2]) != "rmsnorm_f32" {
			return errorSymbolNotFound
		}
		*memory[uintptr](a[0]) = a[1] + 1
		return 0
	})
	if fn, err := c.ModuleFunction(90, 5, "rmsnorm_f32"); err != nil || fn != 6 {
		t.Errorf("%d, %v", fn, err)
	}
	if _, err := c.ModuleFunction(90, 5, "none"); !errors.Is(err, ErrNotFound) || !strings.HasSuffix(err.Error(), `: kernel "none"`) {
		t.Error(err)
	}
}

func TestLaunchKernel(t *testing.T) {
	f, c := newFake(t)
	var got []byte
	f.on("cuLaunchKernel", func(a *[maxArguments]uintptr) uintptr {
		got = nil
		if extra := a[10]; extra != 0 {
			e := memory[[5]uintptr](extra)
			if e[0] != 1 || e[2] != 2 || e[4] != 0 || e[1]%8 != 0 {
				return 1
			}
			got = bytesAt(e[1], int(*memory[uintptr](e[3])))
		}
		return 0
	})
	for _, n := range []int{0, 1, 8, 100, 4096, 32764} {
		params := bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, n/7+1)[:n]
		testkit.NoError(t, c.LaunchKernel(90, 9, [3]uint32{1 << 31, 2, 3}, [3]uint32{4, 5, 6}, 7, 8, params))
		if !bytes.Equal(got, params) {
			t.Errorf("%d bytes of parameters: got %d", n, len(got))
		}
	}
	want := [10]uintptr{9, 1 << 31, 2, 3, 4, 5, 6, 7, 8, 0}
	if a := f.calls[len(f.calls)-1].args; [10]uintptr(a[:10]) != want {
		t.Errorf("arguments %v, want %v", a[:10], want)
	}
	f.fails("cuLaunchKernel", errorLaunchFailure)
	if err := c.LaunchKernel(90, 9, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, 0, nil); !errors.Is(err, ErrContextLost) {
		t.Error(err)
	}
}

func TestTensorMap(t *testing.T) {
	f, c := newFake(t)
	if !c.HasTensorMaps() {
		t.Error("cuTensorMapEncodeTiled is there")
	}
	var sizes [2]uint64
	var stride uint64
	var box, each [2]uint32
	f.on("cuTensorMapEncodeTiled", func(a *[maxArguments]uintptr) uintptr {
		if a[0]%tensorMapAlign != 0 {
			return errorInvalidValue
		}
		m := memory[TensorMap](a[0])
		for i := range m {
			if m[i] != 0 {
				return errorInvalidValue
			}
			m[i] = byte(i)
		}
		sizes, stride = *memory[[2]uint64](a[4]), *memory[uint64](a[5])
		box, each = *memory[[2]uint32](a[6]), *memory[[2]uint32](a[7])
		return 0
	})
	m := testkit.Must(c.TensorMap(90, TensorRows{Addr: 1 << 40, Columns: 4096, Rows: 1 << 31, StrideBytes: 1 << 35, BoxColumns: 64, BoxRows: 128}))(t)
	for i, b := range m {
		if int(b) != i {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if sizes != [2]uint64{4096, 1 << 31} || stride != 1<<35 || box != [2]uint32{64, 128} || each != [2]uint32{1, 1} {
		t.Errorf("sizes %d, stride %d, box %d, every %d", sizes, stride, box, each)
	}
	a := f.calls[len(f.calls)-1].args
	if [3]uintptr(a[1:4]) != [3]uintptr{9, 2, 1 << 40} || [4]uintptr(a[8:12]) != [4]uintptr{0, 3, 3, 0} {
		t.Errorf("arguments %v", a)
	}
	f.fails("cuTensorMapEncodeTiled", errorInvalidValue)
	if _, err := c.TensorMap(90, TensorRows{}); err == nil {
		t.Error("no error")
	}
}
