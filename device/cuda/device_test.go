package cuda

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"mt/base/accounts"
	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
	"mt/internal/testkit"
)

// TestUsageOfTheContext: from the start, the CUDA context and the scratch memory of one stream
// count as used.
func TestUsageOfTheContext(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	u := d.Usage()
	context := u.Now[accounts.Context]
	if context < leastContext+kernels.ScratchBytes || u.Total != context || u.PeakTotal != context || u.Peak[accounts.Context] != context {
		t.Errorf("the context counts as %d bytes of %d", context, u.Total)
	}
}

// TestProcessors: launches learn the number of multiprocessors that the driver reports.
func TestProcessors(t *testing.T) {
	d, _ := newDevice(t, emu.Options{}, Options{})
	if got := (&launcher{stream: &stream{dev: d}}).Processors(); got != 132 {
		t.Errorf("%d multiprocessors, the driver says 132", got)
	}
}

// TestOutOfMemoryOfTheDriver: if the driver has less memory left than the budget allows, the error
// says so, with the number of free bytes.
func TestOutOfMemoryOfTheDriver(t *testing.T) {
	d, _ := newDevice(t, emu.Options{DeviceMemory: 1 << 30}, Options{})
	d.usage.Limit = 1 << 40 // as if another process had taken memory since
	_, err := d.Alloc(accounts.WeightSlots, 1<<30)
	var oom *device.OutOfMemory
	if !errors.As(err, &oom) || oom.Requested != 1<<30 || !errors.Is(err, cudart.ErrOutOfMemory) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"weight slots wants 1.0 GiB", "in use", "device_memory", "cudaMalloc", " free; is another process"} {
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
	if u := d.Usage(); u.Limit > 2<<30 || !strings.Contains(strings.Join(d.Notes(), "\n"), "device_memory is 10 GiB") {
		t.Errorf("more than there is: limit %d, notes %q", u.Limit, d.Notes())
	}
}

// TestIntegrated: an integrated GPU uses host memory, whose page cache CUDA counts as used. So the
// budget follows from the available memory that the operating system reports, at most the total.
func TestIntegrated(t *testing.T) {
	const most = 8 << 30
	said := func(bytes int64, known bool) func() (int64, bool) {
		return func() (int64, bool) { return bytes, known }
	}
	for name, tc := range map[string]struct {
		integrated  bool
		available   func() (int64, bool)
		least, most int64
	}{
		"less than free":     {true, said(3<<30, true), 2 << 30, 3<<30 + AssumedContext},
		"more than there is": {true, said(1<<40, true), 6 << 30, most},
		"nobody says":        {true, said(0, false), 6 << 30, most},
		"nobody to ask":      {true, nil, 6 << 30, most},
		"memory of its own":  {false, said(3<<30, true), 6 << 30, most},
	} {
		d, _ := newDevice(t, emu.Options{DeviceMemory: most, Integrated: tc.integrated}, Options{Available: tc.available})
		if u := d.Usage(); u.Limit < tc.least || u.Limit > tc.most || u.Integrated != tc.integrated {
			t.Errorf("%s: %d bytes, integrated %t", name, u.Limit, u.Integrated)
		}
	}
}

// TestBudgetIsForAll: all purposes share one budget. Memory allocated for one purpose is not
// available to the others.
func TestBudgetIsForAll(t *testing.T) {
	testkit.NotShort(t)
	d, _ := newDevice(t, emu.Options{}, Options{MemoryLimit: 1 << 30})
	before := d.Usage()
	half := (before.Limit - before.Total) / 2 / device.Align * device.Align
	m, err := d.Alloc(accounts.WeightSlots, half)
	testkit.NoError(t, err)
	defer d.Free(m)
	var lacking *device.OutOfMemory
	if _, err := d.Alloc(accounts.GradientBuffers, half+2*device.Align); !errors.As(err, &lacking) || lacking.Used != before.Total+half || lacking.Limit != 1<<30 {
		t.Errorf("half of the budget is taken, and more than the other half gives %v", err)
	}
	rest, err := d.Alloc(accounts.GradientBuffers, half)
	if err != nil {
		t.Fatalf("the other half: %v", err)
	}
	d.Free(rest)
}

func TestNewAndClose(t *testing.T) {
	_, c := bind(t, emu.Options{Name: "GPU of the test"})
	if _, err := New(Options{CUDA: c, MemoryLimit: -1}); err == nil {
		t.Error("a negative limit: no error")
	}
	d := testkit.Must(New(Options{CUDA: c}))(t)
	if d.Kind() != "cuda" || d.Name() != "GPU of the test" || d.Unified() {
		t.Errorf("kind %q, name %q, unified %v", d.Kind(), d.Name(), d.Unified())
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	checkEmpty(t, d)
	if _, err := d.NewEvent(); err == nil {
		t.Error("NewEvent after Close: no error")
	}
}

// lazyModules is how many bytes the context's usage includes for the modules of kernels that are
// not loaded at start.
var lazyModules = lazyModule * int64(len(kernels.Modules())-1)

// TestBudgetOfAnInstance: if CUDA sees only a part of a card (MIG), NVML's numbers for the whole
// card are ignored.
func TestBudgetOfAnInstance(t *testing.T) {
	d, _ := newDevice(t, emu.Options{DeviceMemory: 4 << 30, BoardMemory: 16 << 30, ContextMemory: 300 << 20}, Options{})
	want := 300<<20 + lazyBlas + lazyModules + kernels.ScratchBytes + biasBytes
	if got := d.Usage().Now[accounts.Context]; got != want {
		t.Errorf("the context counts as %d bytes, want %d", got, want)
	}
}

// loads counts the module loads that the emulated driver has seen.
func loads(drv *emu.Driver) (n int) {
	for i := range drv.Calls() {
		if drv.CallName(i+1) == "cuModuleLoadDataEx" {
			n++
		}
	}
	return n
}

// TestModulesAreLoadedOnce: a module of kernels is loaded when an operation first needs it, and
// only once, even if several streams need it.
func TestModulesAreLoadedOnce(t *testing.T) {
	d, drv := newDevice(t, emu.Options{}, Options{})
	if n := loads(drv); n != 1 {
		t.Errorf("%d modules are loaded at start, want 1", n)
	}
	m := alloc(t, d, 1<<16)
	defer d.Free(m)
	var users sync.WaitGroup
	for i := range int64(4) {
		s := newStream(t, d, "s")
		users.Go(func() {
			at := m.Slice(i<<14, 1<<14)
			s.Zero(at)
			op.Do(d, s, op.AddBiasGrad{DB: at.Tensor(device.F32, 0, 8), DY: at.Tensor(device.F32, 1024, 8), T: 1, N: 8})
			op.Do(d, s, op.Convert{Dst: at.Tensor(device.BF16, 0, 8), Src: at.Tensor(device.F32, 1024, 8), N: 8})
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
	if n := loads(drv); n != 2 {
		t.Errorf("%d modules are loaded, want 2", n)
	}
}

// TestUnusable: New refuses a GPU or driver that cannot run mt. The error names the reason, and
// nothing stays allocated.
func TestUnusable(t *testing.T) {
	_, drv := newDevice(t, emu.Options{}, Options{})
	retain := 1
	for drv.CallName(retain) != "cuDevicePrimaryCtxRetain" {
		retain++
	}
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
		"full card":        {emu: emu.Options{FailCall: retain, FailCode: 2, Name: "card"}, is: cudart.ErrOutOfMemory, says: []string{"cuDevicePrimaryCtxRetain", "the card has no room", "another process"}},
		"old PTX":          {emu: emu.Options{MaxPTXVersion: 78}, is: cudart.ErrDriverTooOld, says: []string{"kernels "}},
		"context too big":  {opts: Options{MemoryLimit: 100 << 20}, says: []string{"context wants", "of 100 MiB", "device_memory"}},
		"scratch too much": {opts: Options{MemoryLimit: leastContext + lazyBlas + lazyModules + 400<<20}, emu: emu.Options{ContextMemory: leastContext + 390<<20}, says: []string{"context wants", "device_memory"}},
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
