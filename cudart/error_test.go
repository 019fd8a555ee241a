package cudart

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorIs(t *testing.T) {
	all := []error{ErrOutOfMemory, ErrNoDevice, ErrDriverTooOld, ErrContextLost, ErrNotSupported, ErrNotReady, ErrAlreadyRegistered,
		ErrNotRegistered, ErrNotFound, ErrInvalidValue, ErrMissing}
	for _, test := range []struct {
		lib  Library
		code int
		is   error
	}{
		{Runtime, 1, ErrInvalidValue}, {Runtime, 2, ErrOutOfMemory}, {Driver, 2, ErrOutOfMemory}, {Runtime, 34, ErrNoDevice},
		{Runtime, 35, ErrDriverTooOld}, {Runtime, 100, ErrNoDevice}, {Driver, 100, ErrNoDevice}, {Driver, 209, ErrNotSupported},
		{Driver, 214, ErrContextLost}, {Driver, 222, ErrDriverTooOld}, {Driver, 500, ErrNotFound}, {Runtime, 600, ErrNotReady},
		{Runtime, 700, ErrContextLost}, {Runtime, 702, ErrContextLost}, {Runtime, 710, ErrContextLost}, {Runtime, 712, ErrAlreadyRegistered},
		{Runtime, 713, ErrNotRegistered}, {Runtime, 714, ErrContextLost}, {Runtime, 715, ErrContextLost}, {Runtime, 716, ErrContextLost},
		{Runtime, 717, ErrContextLost}, {Runtime, 718, ErrContextLost}, {Driver, 719, ErrContextLost}, {Runtime, 801, ErrNotSupported},
		{Runtime, 803, ErrDriverTooOld}, {Runtime, 804, ErrDriverTooOld}, {Runtime, 220, ErrContextLost}, {Runtime, 709, ErrContextLost}, {Runtime, 226, ErrContextLost}, {Runtime, 999, ErrContextLost}, {Runtime, 3, nil},
		{BlasLt, 1, nil}, {BlasLt, 2, nil}, {BlasLt, 3, ErrOutOfMemory}, {BlasLt, 7, ErrInvalidValue}, {BlasLt, 8, ErrNotSupported}, {BlasLt, 15, ErrNotSupported},
		{ML, 2, ErrInvalidValue}, {ML, 3, ErrNotSupported}, {ML, 6, ErrNotFound}, {ML, 9, ErrNoDevice}, {ML, 15, ErrContextLost}, {ML, 20, ErrOutOfMemory},
		{Runtime, codeMissing, ErrMissing},
	} {
		err := fmt.Errorf("load layer 3: %w", &Error{Library: test.lib, Code: test.code})
		for _, target := range all {
			if got, want := errors.Is(err, target), target == test.is; got != want {
				t.Errorf("lib%s code %d is %q: %v, want %v", test.lib, test.code, target, got, want)
			}
		}
	}
}

// TestHints: the error text of a code that the user can do something about says what to do.
func TestHints(t *testing.T) {
	for code, want := range map[int]string{46: "nvidia-smi -c 0", 802: "nvidia-fabricmanager", 700: "mt doctor --selftest", 715: "dmesg", 719: "dmesg", 999: "nvidia_uvm"} {
		for _, lib := range []Library{Runtime, Driver} {
			if got := (&Error{Library: lib, Op: "f", Code: code, Text: "bad"}).Error(); !strings.Contains(got, want) {
				t.Errorf("lib%s: %s, want %q", lib, got, want)
			}
		}
		if got := (&Error{Library: ML, Op: "f", Code: code, Text: "bad"}).Error(); strings.Contains(got, ";") {
			t.Errorf("NVML has other codes: %s", got)
		}
	}
}

func TestErrorText(t *testing.T) {
	f, c := newFake(t)
	f.says("cudaGetErrorString", map[int]string{2: "out of memory"})
	f.says("cudaGetErrorName", map[int]string{2: "cudaErrorMemoryAllocation", 46: "cudaErrorDevicesUnavailable"})
	f.on("cuGetErrorString", func(a *[maxArguments]uintptr) uintptr {
		if a[0] != 719 {
			return 1
		}
		*memory[uintptr](a[1]) = cText("unspecified launch failure")
		return 0
	})
	f.on("cuGetErrorName", func(a *[maxArguments]uintptr) uintptr { *memory[uintptr](a[1]) = cText("CUDA_ERROR_X"); return 0 })
	f.says("cublasLtGetStatusString", map[int]string{15: "CUBLAS_STATUS_NOT_SUPPORTED"})
	f.says("nvmlErrorString", map[int]string{3: "Not Supported", 4: "\x00behind an empty text"})
	for _, test := range []struct {
		function string
		code     int
		call     func() error
		want     string
	}{
		{"cudaMalloc", 2, func() error { _, err := c.Malloc(90, 1); return err }, "cudaMalloc: out of memory (code 2)"},
		{"cudaMalloc", 46, func() error { _, err := c.Malloc(90, 1); return err }, "cudaMalloc: cudaErrorDevicesUnavailable (code 46); " + hints[46]},
		{"cudaMalloc", 12345, func() error { _, err := c.Malloc(90, 1); return err }, "cudaMalloc: code 12345"},
		{"cuModuleUnload", 719, func() error { return c.ModuleUnload(1, 2) }, "cuModuleUnload: unspecified launch failure (code 719); " + hints[719]},
		{"cuModuleUnload", 5, func() error { return c.ModuleUnload(1, 2) }, "cuModuleUnload: CUDA_ERROR_X (code 5)"},
		{"cublasLtDestroy", 15, func() error { return c.BlasLt().Destroy(77, 1) }, "cublasLtDestroy: CUBLAS_STATUS_NOT_SUPPORTED (code 15)"},
		{"nvmlShutdown", 3, func() error { return c.NVML().Shutdown() }, "nvmlShutdown: Not Supported (code 3)"},
		{"nvmlShutdown", 4, func() error { return c.NVML().Shutdown() }, "nvmlShutdown: code 4"},
	} {
		f.fails(test.function, test.code)
		if err := test.call(); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	if got := (&Error{Op: "f", Code: 1, Text: "bad", Detail: "why"}).Error(); got != "f: bad (code 1): why" {
		t.Error(got)
	}
}
