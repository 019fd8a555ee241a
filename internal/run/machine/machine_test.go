package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/internal/testkit"
)

// emulate starts an emulated GPU for one test. Wrong calls of the test, or memory that is not freed, fail it.
func emulate(t *testing.T, o emu.Options) *emu.Driver {
	t.Helper()
	drv := emu.New(o)
	testkit.Close(t, drv)
	return drv
}

// TestGPUState: figures from NVML are shown, and missing figures are no error.
func TestGPUState(t *testing.T) {
	c, err := cudart.New(emulate(t, emu.Options{}))
	testkit.NoError(t, err)
	s := gpuState(c, First)
	if s == nil || s.Driver == "" || s.MaxMHz == 0 || s.BestPCIe[1] == 0 || !strings.Contains(s.String(), "driver "+s.Driver) {
		t.Errorf("%+v", s)
	}
	text, err := json.Marshal(s)
	if err != nil || s.PCIe != [2]int{5, 16} || s.ClockMHz != 1755 || s.MaxMHz != 1980 || !strings.Contains(s.String(), ", 1755 of 1980 MHz, ") ||
		!strings.Contains(string(text), `"max_pcie_generation_lanes":[5,16]`) {
		t.Errorf("%s, %s, %v", s, text, err)
	}
	if c, err = cudart.New(emulate(t, emu.Options{WithoutML: true})); err != nil || gpuState(c, First) != nil {
		t.Errorf("without NVML: %v, %+v", err, gpuState(c, First))
	}
}

// TestEmulatorEndsWithItsDevice: in a build with the tag emu, closing the device ends the emulator
// and returns the wrong calls that it found. An Open that fails does the same.
func TestEmulatorEndsWithItsDevice(t *testing.T) {
	wrong := errors.New("a call was wrong")
	before := emulator
	t.Cleanup(func() { emulator = before })
	for _, none := range []bool{false, true} {
		ended := 0
		emulator = func() (cudart.Symbols, func() error, error) {
			return emulate(t, emu.Options{NoDevice: none}), func() error { ended++; return wrong }, nil
		}
		dev, err := Open(Options{Device: "cuda"})
		if !none {
			if err != nil || ended != 0 || !Emulated() {
				t.Fatalf("Open: %v, ended %d times, emulated %v", err, ended, Emulated())
			}
			if _, ok := dev.(gpuDevice); !ok {
				t.Error("it does not tell what a GPU tells")
			}
			err = dev.Close()
		}
		if !errors.Is(err, wrong) || errors.Is(err, cudart.ErrNoDevice) != none || ended != 1 {
			t.Errorf("no GPU %v: %v, ended %d times", none, err, ended)
		}
	}
}

// TestOrdinal: the ordinal selects the GPU, and FindCUDA looks at the first.
func TestOrdinal(t *testing.T) {
	before := emulator
	t.Cleanup(func() { emulator = before })
	drv := emulate(t, emu.Options{Devices: 2})
	emulator = func() (cudart.Symbols, func() error, error) { return drv, func() error { return nil }, nil }
	dev := testkit.Must(Open(Options{Device: "cuda", Ordinal: 1}))(t)
	if got := drv.Contexts(); !slices.Equal(got, []int{1}) {
		t.Errorf("contexts on devices %v, want 1 alone", got)
	}
	c := testkit.Must(cudart.New(drv))(t)
	if gpuState(c, 1) == nil || gpuState(c, 2) != nil {
		t.Errorf("state of device 1 %v, of device 2 %v", gpuState(c, 1), gpuState(c, 2))
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if found := FindCUDA(); found.Device == "" || found.State == nil {
		t.Errorf("%+v", found)
	}
}

// TestOpenAll: OpenAll opens all GPUs, or as many as requested. If one of them does not open, the
// emulator ends only after no device on it is open.
func TestOpenAll(t *testing.T) {
	before := emulator
	t.Cleanup(func() { emulator = before })
	drv, ended := emulate(t, emu.Options{Devices: 2}), 0
	emulator = func() (cudart.Symbols, func() error, error) { return drv, func() error { ended++; return nil }, nil }
	for n, want := range []int{2, 1, 2, 0} {
		devs, err := OpenAll(Options{Device: "cuda"}, n)
		if len(devs) != want || (err != nil) != (n == 3) || err != nil && !strings.Contains(err.Error(), "3 GPUs are asked for, and there are 2; CUDA_VISIBLE_DEVICES") {
			t.Errorf("%d of %d devices, %v", len(devs), n, err)
		}
		if err := CloseAll(devs); err != nil {
			t.Error(err)
		}
	}
	g := FindGPU(nil)
	ended = 0
	dev := testkit.Must(g.Open(First, 0))(t)
	if _, err := g.Open(7, 0); err == nil || ended != 0 {
		t.Errorf("%v, ended %d times while a device is open", err, ended)
	}
	if err := dev.Close(); err != nil || ended != 1 {
		t.Errorf("%v, ended %d times", err, ended)
	}
	for n, want := range []int{1, 1, 2} {
		devs, err := OpenAll(Options{Device: "cpu", MemoryLimit: 1 << 20}, n)
		if err != nil || len(devs) != want {
			t.Errorf("%d devices of the CPU of %d, %v", len(devs), n, err)
		}
		if err := CloseAll(devs); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutCUDA: without CUDA's libraries the error lists the names searched for, and there is no driver.
func TestWithoutCUDA(t *testing.T) {
	before, start := Search, emulator
	t.Cleanup(func() { Search, emulator = before, start })
	emulator = nil
	Search = func() cudart.Found {
		return cudart.Find(cudart.Env{Getenv: func(string) string { return "" }, Root: "/nowhere",
			Load:   func(file string) (uintptr, error) { return 0, fmt.Errorf("%s: no such file", file) },
			Symbol: func(uintptr, string) uintptr { return 0 }})
	}
	g := FindGPU(nil)
	if _, err := g.Open(First, 0); err == nil || g.Driver || !strings.HasPrefix(err.Error(), "cuda: find CUDA: libcuda.so not found") {
		t.Errorf("driver %v: %v", g.Driver, err)
	}
	if c := FindCUDA(); c.Device != "" || c.String() != "not usable: no NVIDIA driver (libcuda.so), no libcudart.so" {
		t.Errorf("%q", c)
	}
	cpu := testkit.Must(Open(Options{Device: "cpu", Threads: 1, MemoryLimit: 1 << 20}))(t)
	if u := cpu.Usage(); cpu.Kind() != "cpu" || u.Limit != 1<<20 {
		t.Errorf("kind %q, limit %d", cpu.Kind(), u.Limit)
	}
	if err := cpu.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnderWSL: underWSL detects WSL by the file of its GPU device.
func TestUnderWSL(t *testing.T) {
	there := filepath.Join(t.TempDir(), "dxg")
	testkit.NoError(t, os.WriteFile(there, nil, 0o600))
	if !underWSL(there) || underWSL(there+"-not") {
		t.Errorf("%v, %v", underWSL(there), underWSL(there+"-not"))
	}
}
