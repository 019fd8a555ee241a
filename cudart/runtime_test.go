package cudart

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// host is memory that the calls of TestArguments register and copy.
var host [64]byte

// TestArguments: every method passes its arguments to the right C function, in the right order. All
// argument values differ, so a swap is noticed. It covers the functions that take only integers and
// handles, and those that return a handle.
func TestArguments(t *testing.T) {
	out := uintptr(0) // an address of our own memory, which is not compared
	ctx := Context(90)
	tests := []struct {
		call func(c *CUDA) error
		name string
		args []uintptr
	}{
		{func(c *CUDA) error { _, err := c.DeviceAttribute(AttrPCIBus, 3); return err }, "cudaDeviceGetAttribute", []uintptr{out, 33, 3}},
		{func(c *CUDA) error { return c.LastError() }, "cudaGetLastError", nil},
		{func(c *CUDA) error { _, err := c.DeviceCanAccessPeer(3, 5); return err }, "cudaDeviceCanAccessPeer", []uintptr{out, 3, 5}},
		{func(c *CUDA) error { return c.DeviceEnablePeerAccess(90, 5) }, "cudaDeviceEnablePeerAccess", []uintptr{5, 0}},
		{func(c *CUDA) error { return c.MemcpyPeerAsync(90, 1, 2, 3, 4, 1<<33, 6) }, "cudaMemcpyPeerAsync", []uintptr{1, 2, 3, 4, 1 << 33, 6}},
		{func(c *CUDA) error { _, err := c.Malloc(90, 1<<40); return err }, "cudaMalloc", []uintptr{out, 1 << 40}},
		{func(c *CUDA) error { return c.Free(90, 0x7000) }, "cudaFree", []uintptr{0x7000}},
		{func(c *CUDA) error { return c.FreeHost(90, host[:]) }, "cudaFreeHost", []uintptr{address(host[:])}},
		{func(c *CUDA) error { return c.FreeHost(90, nil) }, "cudaFreeHost", []uintptr{0}},
		{func(c *CUDA) error { return c.HostRegister(90, host[8:24]) }, "cudaHostRegister", []uintptr{address(host[8:]), 16, 1}},
		{func(c *CUDA) error { return c.HostUnregister(90, host[8:24]) }, "cudaHostUnregister", []uintptr{address(host[8:])}},
		{func(c *CUDA) error { return c.MemcpyAsync(90, 1, 2, 1<<33, DeviceToHost, 4) }, "cudaMemcpyAsync", []uintptr{1, 2, 1 << 33, 2, 4}},
		{func(c *CUDA) error { return c.MemsetAsync(90, 1, 0xff, 1<<33, 4) }, "cudaMemsetAsync", []uintptr{1, 0xff, 1 << 33, 4}},
		{func(c *CUDA) error { _, err := c.StreamCreate(90); return err }, "cudaStreamCreateWithFlags", []uintptr{out, 1}},
		{func(c *CUDA) error { return c.StreamDestroy(90, 5) }, "cudaStreamDestroy", []uintptr{5}},
		{func(c *CUDA) error { return c.StreamSynchronize(90, 5) }, "cudaStreamSynchronize", []uintptr{5}},
		{func(c *CUDA) error { return c.StreamWaitEvent(90, 5, 6) }, "cudaStreamWaitEvent", []uintptr{5, 6, 0}},
		{func(c *CUDA) error { _, err := c.EventCreate(90, EventBlockingSync|EventDisableTiming); return err }, "cudaEventCreateWithFlags", []uintptr{out, 3}},
		{func(c *CUDA) error { return c.EventDestroy(90, 6) }, "cudaEventDestroy", []uintptr{6}},
		{func(c *CUDA) error { return c.EventRecord(90, 6, 5) }, "cudaEventRecord", []uintptr{6, 5}},
		{func(c *CUDA) error { _, err := c.EventQuery(90, 6); return err }, "cudaEventQuery", []uintptr{6}},
		{func(c *CUDA) error { return c.EventSynchronize(90, 6) }, "cudaEventSynchronize", []uintptr{6}},
		{func(c *CUDA) error { _, err := c.EventElapsed(90, 6, 7); return err }, "cudaEventElapsedTime", []uintptr{out, 6, 7}},

		{func(c *CUDA) error { return c.ModuleUnload(ctx, 8) }, "cuModuleUnload", []uintptr{8}},
		{func(c *CUDA) error { return c.FuncSetMaxDynamicShared(ctx, 9, 98304) }, "cuFuncSetAttribute", []uintptr{9, 8, 98304}},

		{func(c *CUDA) error { _, err := c.BlasLt().Create(77); return err }, "cublasLtCreate", []uintptr{out}},
		{func(c *CUDA) error { return c.BlasLt().Destroy(77, 1) }, "cublasLtDestroy", []uintptr{1}},
		{func(c *CUDA) error { _, err := c.BlasLt().DescCreate(ComputeFloat32, BFloat16); return err }, "cublasLtMatmulDescCreate", []uintptr{out, 68, 14}},
		{func(c *CUDA) error { return c.BlasLt().DescDestroy(2) }, "cublasLtMatmulDescDestroy", []uintptr{2}},
		{func(c *CUDA) error { _, err := c.BlasLt().LayoutCreate(BFloat16, 11, 12, 1<<33); return err }, "cublasLtMatrixLayoutCreate", []uintptr{out, 14, 11, 12, 1 << 33}},
		{func(c *CUDA) error { return c.BlasLt().LayoutDestroy(3) }, "cublasLtMatrixLayoutDestroy", []uintptr{3}},
		{func(c *CUDA) error { _, err := c.BlasLt().PreferenceCreate(); return err }, "cublasLtMatmulPreferenceCreate", []uintptr{out}},
		{func(c *CUDA) error { return c.BlasLt().PreferenceDestroy(4) }, "cublasLtMatmulPreferenceDestroy", []uintptr{4}},

		{func(c *CUDA) error { return c.NVML().Init() }, "nvmlInit_v2", nil},
		{func(c *CUDA) error { return c.NVML().Shutdown() }, "nvmlShutdown", nil},
		{func(c *CUDA) error { _, err := c.NVML().ClockMHz(7, ClockMemory); return err }, "nvmlDeviceGetClockInfo", []uintptr{7, 2, out}},
		{func(c *CUDA) error { _, err := c.NVML().MaxClockMHz(7, ClockSM); return err }, "nvmlDeviceGetMaxClockInfo", []uintptr{7, 1, out}},
		{func(c *CUDA) error { _, err := c.NVML().Throttled(7); return err }, "nvmlDeviceGetCurrentClocksThrottleReasons", []uintptr{7, out}},
		{func(c *CUDA) error { _, err := c.NVML().PowerMilliwatts(7); return err }, "nvmlDeviceGetPowerUsage", []uintptr{7, out}},
		{func(c *CUDA) error { _, err := c.NVML().Celsius(7); return err }, "nvmlDeviceGetTemperature", []uintptr{7, 0, out}},
	}
	f, c := newFake(t)
	for _, test := range tests {
		f.calls = nil
		if err := test.call(c); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		got := f.calls[len(f.calls)-1]
		if got.name != test.name {
			t.Errorf("called %s, want %s", got.name, test.name)
			continue
		}
		for i, want := range test.args {
			if want != out && got.args[i] != want {
				t.Errorf("%s: argument %d is %#x, want %#x", test.name, i, got.args[i], want)
			}
		}
		f.fails(test.name, 1)
		var e *Error
		if err := test.call(c); !errors.As(err, &e) || e.Op != test.name || e.Code != 1 {
			t.Errorf("%s that fails: %v", test.name, err)
		}
		delete(f.answers, test.name)
	}
}

// TestResults: values that C functions store at addresses (ints, words, floats, texts) are
// converted correctly.
func TestResults(t *testing.T) {
	f, c := newFake(t)
	// A C int occupies the lower half of a 64-bit word; its value must not depend on the upper
	// half.
	storesInt := func(name string, at int, v int32) {
		f.on(name, func(a *[maxArguments]uintptr) uintptr { *memory[int32](a[at]) = v; return 0 })
	}
	storesWord := func(name string, at int, v uint64) {
		f.on(name, func(a *[maxArguments]uintptr) uintptr { *memory[uint64](a[at]) = v; return 0 })
	}
	check := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	storesInt("cudaGetDeviceCount", 0, 2)
	n, err := c.DeviceCount()
	check("DeviceCount", n, 2, err)
	storesInt("cudaDeviceGetAttribute", 0, -7)
	n, err = c.DeviceAttribute(AttrPCIBus, 0)
	check("DeviceAttribute", n, -7, err)
	for _, want := range []bool{true, false} {
		storesInt("cudaDeviceCanAccessPeer", 0, map[bool]int32{true: 1}[want])
		can, err := c.DeviceCanAccessPeer(0, 1)
		check("DeviceCanAccessPeer", can, want, err)
	}
	f.fails("cudaDeviceEnablePeerAccess", errorPeerAccessAlreadyEnabled)
	check("DeviceEnablePeerAccess again", nil, nil, c.DeviceEnablePeerAccess(90, 1))
	for _, code := range []int{errorPeerAccessUnsupported, errorTooManyPeers, errorMapBufferObjectFailed} {
		f.fails("cudaDeviceEnablePeerAccess", code)
		if err := c.DeviceEnablePeerAccess(90, 1); !errors.Is(err, ErrNotSupported) {
			t.Errorf("DeviceEnablePeerAccess that fails with %d: %v", code, err)
		}
	}
	storesInt("cudaRuntimeGetVersion", 0, 12040)
	n, err = c.RuntimeVersion()
	check("RuntimeVersion", n, 12040, err)
	storesInt("cudaDriverGetVersion", 0, 13000)
	n, err = c.DriverVersion()
	check("DriverVersion", n, 13000, err)
	storesWord("cudaMalloc", 0, 0x7f0000000100)
	p, err := c.Malloc(90, 5)
	check("Malloc", p, DevicePtr(0x7f0000000100), err)
	storesWord("cudaStreamCreateWithFlags", 0, 1<<40)
	s, err := c.StreamCreate(90)
	check("StreamCreate", s, Stream(1<<40), err)
	storesWord("cudaEventCreateWithFlags", 0, 1<<41)
	e, err := c.EventCreate(90, EventDefault)
	check("EventCreate", e, Event(1<<41), err)
	storesWord("cublasLtCreate", 0, 1<<42)
	h, err := c.BlasLt().Create(77)
	check("Create", h, BlasHandle(1<<42), err)

	f.on("cudaMemGetInfo", func(a *[maxArguments]uintptr) uintptr {
		*memory[uint64](a[0]), *memory[uint64](a[1]) = 1<<34, 1<<35
		return 0
	})
	free, total, err := c.MemGetInfo(90)
	check("MemGetInfo", [2]int64{free, total}, [2]int64{1 << 34, 1 << 35}, err)
	f.on("cudaEventElapsedTime", func(a *[maxArguments]uintptr) uintptr { *memory[float32](a[0]) = 1.25; return 0 })
	ms, err := c.EventElapsed(90, 1, 2)
	check("EventElapsed", ms, float32(1.25), err)
	f.on("cudaDeviceGetAttribute", func(a *[maxArguments]uintptr) uintptr {
		*memory[int32](a[0]) = map[uintptr]int32{33: 0xc1, 34: 2, 50: 1}[a[1]]
		return 0
	})
	id, err := c.PCIBusID(0)
	check("PCIBusID", id, "00000001:c1:02.0", err)

	f.on("cudaHostAlloc", func(a *[maxArguments]uintptr) uintptr { *memory[uintptr](a[0]) = address(host[:]); return 0 })
	b, err := c.HostAlloc(90, 48)
	check("HostAlloc", len(b), 48, err)
	check("HostAlloc's address", unsafe.SliceData(b), &host[0], err)
	if a := f.calls[len(f.calls)-1].args; a[1] != 48 || a[2] != 1 {
		t.Errorf("cudaHostAlloc got %v", a[:3])
	}
}

// TestWithoutItsContext: if the context cannot be set, nothing is enqueued or created. A function that waits or
// releases something is still called once, and its own error takes precedence over the context's error.
func TestWithoutItsContext(t *testing.T) {
	f, c := newFake(t)
	f.fails("cuCtxSetCurrent", 201)
	named := func() []string { // omits the calls that request an error's text
		return slices.DeleteFunc(f.names(), func(name string) bool { return strings.Contains(name, "GetError") })
	}
	for name, call := range map[string]func() error{
		"cudaFree": func() error { return c.Free(90, 1) }, "cudaFreeHost": func() error { return c.FreeHost(90, host[:]) },
		"cudaHostUnregister": func() error { return c.HostUnregister(90, host[:]) }, "cudaStreamDestroy": func() error { return c.StreamDestroy(90, 1) },
		"cudaStreamSynchronize": func() error { return c.StreamSynchronize(90, 1) }, "cudaEventDestroy": func() error { return c.EventDestroy(90, 1) },
		"cudaEventSynchronize": func() error { return c.EventSynchronize(90, 1) },
	} {
		f.calls = nil
		var e *Error
		if err := call(); !errors.As(err, &e) || e.Op != "cuCtxSetCurrent" || !slices.Equal(named(), []string{"cuCtxSetCurrent", name}) {
			t.Errorf("%s: %v, called %q", name, err, named())
		}
		f.fails(name, 1)
		if err := call(); !errors.As(err, &e) || e.Op != name {
			t.Errorf("%s that fails: %v", name, err)
		}
	}
	f.calls = nil
	_, malloc := c.Malloc(90, 1)
	for _, err := range []error{malloc, c.MemsetAsync(90, 1, 0, 1, 2)} {
		var e *Error
		if !errors.As(err, &e) || e.Op != "cuCtxSetCurrent" {
			t.Error(err)
		}
	}
	if want := []string{"cuCtxSetCurrent", "cuCtxSetCurrent"}; !slices.Equal(named(), want) {
		t.Errorf("called %q", named())
	}
}

// TestNewMissing: New returns an error that lists all missing functions of required libraries.
// Missing functions of optional libraries are no error.
func TestNewMissing(t *testing.T) {
	f, _ := newFake(t)
	for _, test := range []struct {
		absent []string
		want   string // "": New succeeds
		blas   bool
		nvml   bool
	}{
		{absent: []string{"cudaMalloc", "cudaFree"}, want: "bind libcudart.so: it lacks cudaFree, cudaMalloc; is it older than CUDA 11.8?"},
		{absent: []string{"cuInit"}, want: "bind libcuda.so: it lacks cuInit; is it older than CUDA 11.8?"},
		{absent: []string{"cuda"}, want: "bind libcuda.so: the library is absent"},
		{absent: []string{"cublasLt", "nvidia-ml"}},
		{absent: []string{"cublasLtMatmul"}, nvml: true},
		{absent: []string{"cublasLtGetStatusString"}, blas: true, nvml: true},
		{absent: []string{"nvmlInit_v2"}, blas: true},
	} {
		f.absent = map[string]bool{}
		for _, name := range test.absent {
			f.absent[name] = true
		}
		c, err := New(f)
		if test.want != "" {
			if err == nil || err.Error() != test.want || !errors.Is(err, ErrMissing) {
				t.Errorf("without %v: %v, want %s", test.absent, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("without %v: %v", test.absent, err)
			continue
		}
		if (c.BlasLt() != nil) != test.blas || (c.NVML() != nil) != test.nvml {
			t.Errorf("without %v: cuBLASLt %v, NVML %v", test.absent, c.BlasLt() != nil, c.NVML() != nil)
		}
	}
}

// TestBoundOnce: no C function is bound to two fields.
func TestBoundOnce(t *testing.T) {
	for lib, names := range boundSymbols() {
		slices.Sort(names)
		if once := slices.Compact(slices.Clone(names)); len(once) != len(names) {
			t.Errorf("lib%s: a name twice in %s", lib, strings.Join(names, " "))
		}
	}
}

// TestMemoryIsRegisteredBesideOther: a registration in progress delays only calls for the same
// memory. Two ranges are registered at the same time.
func TestMemoryIsRegisteredBesideOther(t *testing.T) {
	var h hostMemory
	var both, ended sync.WaitGroup
	memory := make([]byte, 64)
	both.Add(2)
	for _, b := range [][]byte{memory[:32], memory[32:]} {
		ended.Go(func() {
			if err := h.register(1, b, func() error {
				both.Done()
				both.Wait() // until both registrations are in progress
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	calls := 0
	count := func() error { calls++; return nil }
	for _, use := range []func() error{
		func() error { return h.register(2, memory[:32], count) },
		func() error { return h.unregister(1, memory[:32], count) },
		func() error { return h.register(1, memory[:32], count) },
		func() error { return h.unregister(2, memory[:32], count) },
	} {
		if err := use(); err != nil || calls != 0 {
			t.Fatalf("%d calls (%v) for memory that others use", calls, err)
		}
	}
	if err := h.unregister(1, memory[:32], count); err != nil || calls != 1 {
		t.Errorf("%d calls (%v) of its last user", calls, err)
	}
	if err := h.register(1, memory[:32], count); err != nil || calls != 2 {
		t.Errorf("%d calls (%v) of its first user", calls, err)
	}
}
