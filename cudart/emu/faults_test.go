package emu_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

func TestMemoryFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *rig, s cudart.Stream) error
		kind emu.Kind
		lost bool // the context is unusable afterwards
		says string
	}{
		{"copy past the end", func(r *rig, s cudart.Stream) error {
			return r.MemcpyAsync(uintptr(r.malloc(100)+90), uintptr(r.malloc(100)), 11, cudart.DeviceToDevice, s)
		}, emu.Bounds, true, "11 bytes at offset 90 of device memory #1 (100 bytes)"},
		{"set after free", func(r *rig, s cudart.Stream) error {
			a := r.malloc(100)
			r.must(r.Free(a))
			return r.MemsetAsync(a, 0, 4, s)
		}, emu.Bounds, true, "freed"},
		{"set of host memory", func(r *rig, s cudart.Stream) error {
			return r.MemsetAsync(cudart.DevicePtr(addr(r.host(8))), 0, 4, s)
		}, emu.Bounds, true, "no device memory"},
		{"direction", func(r *rig, s cudart.Stream) error {
			return r.MemcpyAsync(uintptr(r.malloc(8)), uintptr(r.malloc(8)), 8, cudart.HostToDevice, s)
		}, emu.Argument, false, "no host memory"},
		{"freed twice", func(r *rig, s cudart.Stream) error {
			a := r.malloc(100)
			r.must(r.Free(a))
			return r.Free(a)
		}, emu.Bounds, false, "freed before"},
		{"free inside", func(r *rig, s cudart.Stream) error { return r.Free(r.malloc(100) + 4) }, emu.Argument, false, "4 bytes into"},
		{"half registered", func(r *rig, s cudart.Stream) error {
			b := pageable(64)
			r.must(r.HostRegister(b[:32]))
			return r.MemcpyAsync(uintptr(r.malloc(64)), addr(b), 64, cudart.HostToDevice, s)
		}, emu.Argument, false, "only in part"},
		{"destroyed event", func(r *rig, s cudart.Stream) error {
			e := r.event()
			r.must(r.EventDestroy(e))
			return r.EventRecord(e, s)
		}, emu.Handle, false, "event #1 was destroyed"},
		{"wrong handle", func(r *rig, s cudart.Stream) error { return r.EventRecord(cudart.Event(s), s) }, emu.Handle, false, "no event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, emu.Options{})
			s := r.stream()
			if err := c.do(r, s); err == nil {
				t.Error("the call succeeded")
			}
			r.expect(c.kind, c.says)
			_, err := r.Malloc(4)
			if lost := errors.Is(err, cudart.ErrContextLost); lost != c.lost {
				t.Errorf("cudaMalloc afterwards: %v", err)
			}
			if r.d.Close() == nil {
				t.Error("Close said nothing")
			}
		})
	}
}

func TestMemoryIsLimitedAndFreshMemoryIsNaN(t *testing.T) {
	r := open(t, emu.Options{DeviceMemory: 1 << 20, ContextMemory: 1 << 10})
	a := r.malloc(1<<20 - 2<<10)
	if uintptr(a)%256 != 0 {
		t.Errorf("%#x is not aligned", a)
	}
	free, total, err := r.MemGetInfo()
	if err != nil || free != 1<<10 || total != 1<<20 {
		t.Errorf("free %d of %d, %v", free, total, err)
	}
	if _, err := r.Malloc(1<<10 + 1); !errors.Is(err, cudart.ErrOutOfMemory) {
		t.Errorf("got %v, want out of memory", err)
	}
	s := r.stream()
	out := pageable(8)
	r.d2h(out, a, s)
	if slices.ContainsFunc(out, func(b byte) bool { return b != 0xff }) {
		t.Errorf("fresh memory holds %x", out)
	}
	r.must(errors.Join(r.Free(a), r.StreamDestroy(s)))
	if b := r.malloc(1); b == a {
		t.Error("an address was given out again")
	} else {
		r.must(r.Free(b))
	}
	r.close()
}

func TestRegistrationCanBeRefused(t *testing.T) {
	b := pageable(8192)
	r := open(t, emu.Options{RefuseRegister: 801})
	if err := r.HostRegister(b); !errors.Is(err, cudart.ErrNotSupported) {
		t.Errorf("got %v, want not supported", err)
	}
	r.close()
	r = open(t, emu.Options{RegisterLimit: 4096})
	r.must(r.HostRegister(b[:4096]))
	if err := r.HostRegister(b[4096:]); !errors.Is(err, cudart.ErrOutOfMemory) {
		t.Errorf("got %v, want out of memory", err)
	}
	if err := r.HostRegister(b[:1]); !errors.Is(err, cudart.ErrAlreadyRegistered) {
		t.Errorf("got %v, want already registered", err)
	}
	r.must(r.HostUnregister(b[:4096]))
	r.must(r.HostRegister(b[:100])) // this pins the whole page
	if err := r.HostRegister(b[200:300]); !errors.Is(err, cudart.ErrAlreadyRegistered) {
		t.Errorf("a page twice: got %v, want already registered", err)
	}
	r.must(r.HostUnregister(b[:100]))
	r.must(r.HostRegister(b[4096:]))
	r.must(r.HostUnregister(b[4096:]))
	r.close()
}

func TestLeaksAreNamed(t *testing.T) {
	r := open(t, emu.Options{})
	r.malloc(12)
	r.host(34)
	r.must(r.HostRegister(pageable(56)))
	r.stream()
	r.event()
	ctx, err := r.PrimaryContext(0)
	r.must(err)
	_, err = r.ModuleLoad(ctx, []byte(tinyPTX))
	r.must(err)
	h, err := r.BlasLt().Create(ctx)
	r.must(err)
	if h == 0 {
		t.Error("a null handle")
	}
	r.must(r.NVML().Init())
	want := []string{"device memory #1 (12 bytes)", "allocated host memory #1 (34 bytes)", "registered host memory #2 (56 bytes)",
		"stream #1", "event #1", "module #1", "cublasLt handle #1", "primary context", "nvidia-ml"}
	text := r.d.Close().Error()
	for _, w := range want {
		if !strings.Contains(text, "not given back: "+w) {
			t.Errorf("%q does not name %q", text, w)
		}
	}
	if n := strings.Count(text, "\n") + 1; n != len(want) {
		t.Errorf("%d things are alive, want %d: %s", n, len(want), text)
	}
}

// onThread runs f on a new OS thread, which has no current context, and which ends when f returns.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends
		f()
	}()
	<-done
}

func TestThreadWithoutContext(t *testing.T) {
	r := open(t, emu.Options{})
	ctx, err := r.PrimaryContext(0)
	r.must(err)
	m, err := r.ModuleLoad(ctx, []byte(tinyPTX))
	r.must(err)
	get := r.d.Symbol(cudart.Driver, "cuModuleGetFunction")
	name := append([]byte("store"), 0)
	f := new(uint64)
	set := r.d.Symbol(cudart.Driver, "cuCtxSetCurrent")
	onThread(func() {
		call(set, 0) // the thread may have run other code before
		if code := call(get, ptr(f), uintptr(m), ptr(&name[0])); code != 201 {
			t.Errorf("on a bare thread: code %d, want 201", code)
		}
		r.expect(emu.Context, "cuModuleGetFunction on a thread without a current context")
		if _, err := r.ModuleFunction(ctx, m, "store"); err != nil { // this makes the context current
			t.Error(err)
		}
		if code := call(get, ptr(f), uintptr(m), ptr(&name[0])); code != 0 {
			t.Errorf("with a current context: code %d", code)
		}
	})
	onThread(func() { // libcudart makes the primary context current
		call(set, 0)
		s := new(uint64)
		if code := call(r.d.Symbol(cudart.Runtime, "cudaStreamCreateWithFlags"), ptr(s), 1); code != 0 {
			t.Errorf("libcudart without a context: code %d", code)
		}
		if code := call(get, ptr(f), uintptr(m), ptr(&name[0])); code != 0 {
			t.Errorf("after a call of libcudart: code %d", code)
		}
		r.must(r.StreamDestroy(cudart.Stream(*s)))
	})
	r.expect(emu.Context)
}

func TestNoDeviceAndOldDriver(t *testing.T) {
	r := open(t, emu.Options{NoDevice: true})
	if _, err := r.DeviceCount(); !errors.Is(err, cudart.ErrNoDevice) {
		t.Errorf("got %v, want no device", err)
	}
	if code := call(r.d.Symbol(cudart.Runtime, "cudaMalloc"), ptr(new(uint64)), 4); code != 100 {
		t.Errorf("cudaMalloc: code %d, want 100, no device", code)
	}
	if _, err := r.PrimaryContext(0); !errors.Is(err, cudart.ErrNoDevice) {
		t.Errorf("got %v, want no device", err)
	}
	r.close()
	r = open(t, emu.Options{DriverTooOld: true})
	if _, err := r.DeviceCount(); !errors.Is(err, cudart.ErrDriverTooOld) {
		t.Errorf("got %v, want driver too old", err)
	}
	r.close()
	r = open(t, emu.Options{WithoutBlasLt: true, WithoutML: true})
	if r.BlasLt() != nil || r.NVML() != nil {
		t.Error("libraries that are not installed were bound")
	}
	r.close()
}

func TestErrorTexts(t *testing.T) {
	r := open(t, emu.Options{DeviceMemory: 512})
	_, err := r.Malloc(1024)
	if err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("got %v", err)
	}
	if err := r.LastError(); !errors.Is(err, cudart.ErrOutOfMemory) {
		t.Errorf("the thread's last error is %v", err)
	}
	if err := r.LastError(); err != nil {
		t.Errorf("asked again: %v", err)
	}
	r.close()
}
