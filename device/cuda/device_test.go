package cuda

import (
	"errors"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cuda/kernels"
)

func TestUsage(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	context := d.Usage().Now[device.ForContext]
	if context < leastContext+kernels.ScratchBytes {
		t.Errorf("the context counts as %d bytes", context)
	}
	d.usage.Limit = context + 1024
	a, err := d.Alloc(device.ForWeights, 300) // counts as 512
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(device.ForGradients, 512)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(device.ForBatch, 1); err == nil || !strings.Contains(err.Error(), "batch wants") {
		t.Errorf("over the limit: %v", err)
	}
	h, err := d.AllocHost(5000) // has no limit
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range h {
		if x != 0 {
			t.Fatalf("byte %d of host memory is %d", i, x)
		}
	}
	if a.Addr%device.Align != 0 || b.Addr%device.Align != 0 || address(h)%device.Align != 0 || len(h) != 5000 {
		t.Error("an allocation is not aligned, or of the wrong size")
	}
	d.Free(a)
	u := d.Usage()
	want := device.Usage{Total: context + 512, PeakTotal: context + 1024, Limit: context + 1024}
	want.Now[device.ForGradients], want.Now[device.ForHostStaging], want.Now[device.ForContext] = 512, 5120, context
	want.Peak[device.ForWeights], want.Peak[device.ForGradients], want.Peak[device.ForHostStaging] = 512, 512, 5120
	want.Peak[device.ForContext] = context
	if u != want {
		t.Errorf("usage %+v, want %+v", u, want)
	}
	d.Free(b)
	d.FreeHost(h)
	d.Free(device.Mem{})
	d.FreeHost(nil)
	if u := d.Usage(); u.Total != context || u.Now[device.ForHostStaging] != 0 {
		t.Errorf("usage %+v after everything was freed", u)
	}
}

func TestBadAllocations(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	for _, p := range []device.Purpose{device.ForHostStaging, device.NumPurposes} {
		if _, err := d.Alloc(p, 8); err == nil {
			t.Errorf("Alloc for %s: no error", p)
		}
	}
	if _, err := d.Alloc(device.ForBatch, -1); err == nil {
		t.Error("Alloc of -1 bytes: no error")
	}
	if _, err := d.AllocHost(-1); err == nil {
		t.Error("AllocHost of -1 bytes: no error")
	}
	if m, err := d.Alloc(device.ForBatch, 0); err != nil || m != (device.Mem{}) {
		t.Errorf("Alloc of nothing: %v, %v", m, err)
	}
	if b, err := d.AllocHost(0); err != nil || b != nil {
		t.Errorf("AllocHost of nothing: %v, %v", b, err)
	}
}

// A driver that has less than the budget says so, with what it has.
func TestOutOfMemoryOfTheDriver(t *testing.T) {
	d, _ := newDevice(t, emu.Options{DeviceMemory: 1 << 30}, Options{})
	d.usage.Limit = 1 << 40 // as if another process had taken memory since
	_, err := d.Alloc(device.ForWeights, 1<<30)
	var oom *device.OutOfMemory
	if !errors.As(err, &oom) || oom.Requested != 1<<30 || !errors.Is(err, cudart.ErrOutOfMemory) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"weight slots wants 1.000 GiB", "in use", "device_memory", "cudaMalloc", "GiB free"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestBudget(t *testing.T) {
	d, _ := newDevice(t, emu.Options{DeviceMemory: 4 << 30}, Options{})
	if u := d.Usage(); u.Limit > 4<<30 || u.Limit < 3<<30 {
		t.Errorf("without device_memory the limit is %d of a card of 4 GiB", u.Limit)
	}
	d, _ = newDevice(t, emu.Options{}, Options{MemoryLimit: 1 << 30})
	if u := d.Usage(); u.Limit != 1<<30 {
		t.Errorf("the limit is %d, want 1 GiB", u.Limit)
	}
	d, _ = newDevice(t, emu.Options{DeviceMemory: 2 << 30}, Options{MemoryLimit: 10 << 30})
	if u := d.Usage(); u.Limit > 2<<30 || !strings.Contains(strings.Join(d.Notes(), "\n"), "device_memory is 10.000 GiB") {
		t.Errorf("more than there is: limit %d, notes %q", u.Limit, d.Notes())
	}
}

func TestMisusePanics(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	m := alloc(t, d, 512)
	h, err := d.AllocHost(512)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(){
		"free of a part":        func() { d.Free(m.Slice(256, 256)) },
		"free of host memory":   func() { d.Free(device.Mem{Addr: address(h), Bytes: 512}) },
		"bind":                  func() { d.BindHost(h) },
		"free of what is Go's":  func() { d.FreeHost(make([]byte, 8)) },
		"free of a part, host":  func() { d.FreeHost(h[256:]) },
		"slice of what is less": func() { m.Slice(256, 512) },
	}
	for name, f := range cases {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
	d.Free(m)
	if !panics(func() { d.Free(m) }) {
		t.Error("a second free: no panic")
	}
}

func TestNewAndClose(t *testing.T) {
	_, c := bind(t, emu.Options{Name: "GPU of the test"})
	if _, err := New(Options{CUDA: c, MemoryLimit: -1}); err == nil {
		t.Error("a negative limit: no error")
	}
	d, err := New(Options{CUDA: c})
	if err != nil {
		t.Fatal(err)
	}
	if d.Kind() != "cuda" || d.Name() != "GPU of the test" || d.Unified() {
		t.Errorf("kind %q, name %q, unified %v", d.Kind(), d.Name(), d.Unified())
	}
	s, err := d.NewStream("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "1 streams are still open") {
		t.Errorf("Close with a stream open: %v", err)
	}
	// Left to Close: memory on both sides, a registration, an event.
	alloc(t, d, 100)
	if _, err := d.AllocHost(100); err != nil {
		t.Fatal(err)
	}
	host := make([]byte, 5000)
	if err := d.Register(host); err != nil {
		t.Fatal(err)
	}
	newEvent(t, d)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	checkEmpty(t, d)
	if _, err := d.NewStream("late"); err == nil {
		t.Error("NewStream after Close: no error")
	}
	if _, err := d.NewEvent(); err == nil {
		t.Error("NewEvent after Close: no error")
	}
	if _, err := d.Alloc(device.ForBatch, 8); err == nil {
		t.Error("Alloc after Close: no error")
	}
	if _, err := d.AllocHost(8); err == nil {
		t.Error("AllocHost after Close: no error")
	}
}

// What mt cannot run on is refused, by name, and nothing is left behind.
func TestUnusable(t *testing.T) {
	for name, tc := range map[string]struct {
		emu  emu.Options
		opts Options
		is   error
		says []string
	}{
		"no GPU":           {emu: emu.Options{NoDevice: true}, is: cudart.ErrNoDevice},
		"old driver":       {emu: emu.Options{DriverVersion: 11080, RuntimeVersion: 11080}, is: cudart.ErrDriverTooOld, says: []string{"CUDA 11.8", "12.0", "525", "Emulated GPU"}},
		"newer libcudart":  {emu: emu.Options{DriverTooOld: true}, is: cudart.ErrDriverTooOld, says: []string{"driver serves CUDA 11.4", "libcudart is of CUDA 12.8", "MT_CUDA_LIBS"}},
		"sm_75":            {emu: emu.Options{ComputeCapability: 75, Name: "T4"}, is: cudart.ErrNotSupported, says: []string{"the T4 has compute capability 7.5", "8.0"}},
		"old PTX":          {emu: emu.Options{MaxPTXVersion: 78}, is: cudart.ErrDriverTooOld, says: []string{"kernels "}},
		"context too big":  {opts: Options{MemoryLimit: 100 << 20}, says: []string{"context wants", "of 0.098 GiB", "device_memory"}},
		"scratch too much": {opts: Options{MemoryLimit: leastContext + lazyBlas + 400<<20}, emu: emu.Options{ContextMemory: leastContext + 390<<20}, says: []string{"context wants", "device_memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			drv, c := bind(t, tc.emu)
			tc.opts.CUDA = c
			_, err := New(tc.opts)
			if err == nil || !strings.HasPrefix(err.Error(), "cuda: ") || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tc.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
			if live := drv.Live(); len(live) > 0 {
				t.Errorf("left behind: %q", live)
			}
		})
	}
}

func TestWithoutBlasLt(t *testing.T) {
	d, _ := newDevice(t, emu.Options{WithoutBlasLt: true, WithoutML: true}, Options{})
	if d.blas.lib != nil || !strings.Contains(strings.Join(d.Notes(), "\n"), "no cuBLASLt") {
		t.Errorf("notes %q", d.Notes())
	}
}
