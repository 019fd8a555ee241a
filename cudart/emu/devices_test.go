package emu_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
)

// pair is two devices of one emulated driver. Each has a module, a kernel, a stream, an event,
// memory and a cuBLASLt handle.
type pair struct {
	t    *testing.T
	d    *emu.Driver
	c    *cudart.CUDA
	each [2]half
}

type half struct {
	*rig
	m     cudart.Module
	f     cudart.Function
	s     cudart.Stream
	e     cudart.Event
	p     cudart.DevicePtr
	h     cudart.BlasHandle
	shape cudart.MatmulShape
}

func openPair(t *testing.T, o emu.Options) *pair { return openDevices(t, o, 2) }

// openDevices opens a pair on a driver with n devices; the pair is the first two.
func openDevices(t *testing.T, o emu.Options, n int) *pair {
	o.Devices = n
	p := &pair{t: t}
	first := open(t, o)
	p.d, p.c = first.d, first.CUDA
	for i := range p.each {
		h := &p.each[i]
		h.rig = &rig{CUDA: p.c, t: t, d: p.d, ordinal: i}
		ctx := h.context()
		var err error
		h.m, err = h.ModuleLoad(ctx, []byte(tinyPTX))
		h.must(err)
		h.f, err = h.ModuleFunction(ctx, h.m, "store")
		h.must(err)
		h.s, h.e, h.p = h.stream(), h.event(), h.malloc(512)
		h.h, err = h.BlasLt().Create(ctx)
		h.must(err)
		h.shape.Desc, err = h.BlasLt().DescCreate(cudart.ComputeFloat32, cudart.Float32)
		h.must(err)
		h.shape.A, err = h.BlasLt().LayoutCreate(cudart.Float32, 4, 4, 4)
		h.must(err)
		h.shape.B, h.shape.C, h.shape.D = h.shape.A, h.shape.A, h.shape.A
	}
	return p
}

// launch launches the kernel f, which writes to memory at to, on the stream s in context ctx.
func (p *pair) launch(ctx cudart.Context, f cudart.Function, s cudart.Stream, to cudart.DevicePtr) error {
	r := &kernelRig{p: to}
	return p.c.LaunchKernel(ctx, f, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, s, r.params(0))
}

// product enqueues the product of a with itself; the result goes to memory at to.
func (p *pair) product(ctx cudart.Context, h *half, s cudart.Stream, a, to cudart.DevicePtr) error {
	return p.c.BlasLt().Matmul(ctx, h.h, &h.shape, &cudart.MatmulArgs{Alpha: 1, A: a, B: a, D: to}, s)
}

// TestDevicesAreApart: each device has its own name, memory, context and streams. A program that
// uses both correctly causes no fault.
func TestDevicesAreApart(t *testing.T) {
	inModes(t, func(t *testing.T, o emu.Options) {
		o.DeviceMemory = 1 << 20
		p := openPair(t, o)
		a, b := &p.each[0], &p.each[1]
		if n, err := p.c.DeviceCount(); n != 2 || err != nil {
			t.Errorf("%d devices, %v", n, err)
		}
		if a.ctx == b.ctx || !slices.Equal(p.d.Contexts(), []int{0, 1}) {
			t.Errorf("contexts %#x and %#x, of %v", a.ctx, b.ctx, p.d.Contexts())
		}
		all, err := b.Malloc(1<<20 - 512)
		b.must(err)
		_, err = a.Malloc(1<<20 - 1024)
		a.must(err)
		free0, _, _ := a.MemGetInfo()
		if free, total, err := b.MemGetInfo(); free != 0 || total != 1<<20 || free0 != 512 || err != nil {
			t.Errorf("%d and %d of %d bytes are free, %v", free0, free, total, err)
		}
		p.must(p.c.NVML().Init())
		for i := range p.each {
			id, err := p.c.PCIBusID(i)
			p.must(err)
			g, err := p.c.NVML().ByPCI(id)
			p.must(err)
			if _, free, _, err := p.c.NVML().Memory(g); free != int64(512*(1-i)) || err != nil {
				t.Errorf("libnvidia-ml: device %d at %s has %d bytes free, %v", i, id, free, err)
			}
		}
		p.must(p.c.NVML().Shutdown())
		p.must(b.Free(all))
		// An event orders work across devices, and all devices share the host memory.
		x := a.host(512)
		for i := range x {
			x[i] = byte(i)
		}
		a.h2d(a.p, x, a.s)
		a.d2h(x, a.p, a.s)
		p.must(a.EventRecord(a.e, a.s))
		p.must(b.StreamWaitEvent(b.s, a.e))
		b.h2d(b.p, x, b.s)
		p.must(p.launch(b.ctx, b.f, b.s, b.p))
		p.must(p.product(a.ctx, a, a.s, a.p, a.p+64))
		p.must(b.EventRecord(b.e, b.s))
		p.must(a.EventSynchronize(b.e)) // any device may wait for an event of another
		p.must(errors.Join(a.StreamSynchronize(a.s), b.StreamSynchronize(b.s), a.FreeHost(x)))
		if faults := p.d.Faults(); len(faults) > 0 {
			t.Error(faults)
		}
		p.must(a.ReleasePrimaryContext(0))
		a.own = false
		p.must(p.launch(b.ctx, b.f, b.s, b.p)) // the other device still works
		b.sync(b.s)
		if live := strings.Join(p.d.Live(), "\n"); !strings.Contains(live, "(512 bytes) of device 1") ||
			!strings.Contains(live, "primary context of device 1, retained 1 times") || strings.Contains(live, "context of device 0") {
			t.Errorf("alive:\n%s", live)
		}
	})
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestDevicesAreNotMixed: using an object of one device on another is recorded as a fault that
// names both devices. The call itself fails; if a kernel does it, the next wait fails.
func TestDevicesAreNotMixed(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(p *pair, a, b *half) error
		kind emu.Kind // "": Device
		says []string
	}{
		"kernel's memory": {func(p *pair, a, b *half) error {
			p.must(p.launch(a.ctx, a.f, a.s, b.p))
			return a.StreamSynchronize(a.s)
		}, emu.Kernel,
			[]string{"kernel store on stream #1 of device 0", "(512 bytes) of device 1; the kernel runs on device 0"}},
		"copy to": {func(p *pair, a, b *half) error {
			return a.MemcpyAsync(uintptr(b.p), uintptr(a.p), 64, cudart.DeviceToDevice, a.s)
		}, "", []string{"copy on device of 64 bytes on device 0: 64 bytes at offset 0 of device memory #2 (512 bytes) of device 1"}},
		"copy from": {func(p *pair, a, b *half) error {
			return a.MemcpyAsync(uintptr(a.p), uintptr(b.p), 64, cudart.DeviceToDevice, a.s)
		}, "", []string{"copy on device of 64 bytes on device 0", "of device 1"}},
		"copy from the host": {func(p *pair, a, b *half) error {
			return b.MemcpyAsync(uintptr(a.p), addr(pageable(64)), 64, cudart.HostToDevice, b.s)
		}, "", []string{"copy to device of 64 bytes on device 1", "of device 0"}},
		"copy to the host": {func(p *pair, a, b *half) error {
			return b.MemcpyAsync(addr(pageable(64)), uintptr(a.p), 64, cudart.DeviceToHost, b.s)
		}, "", []string{"copy to host of 64 bytes on device 1", "of device 0"}},
		"copy's stream": {func(p *pair, a, b *half) error {
			return a.MemcpyAsync(uintptr(a.p), addr(pageable(64)), 64, cudart.HostToDevice, b.s)
		}, "", []string{"on device 1", "of device 0"}},
		"copy, no stream": {func(p *pair, a, b *half) error {
			return b.MemcpyAsync(uintptr(a.p), addr(pageable(64)), 64, cudart.HostToDevice, 0)
		}, "", []string{"on device 1", "of device 0"}},
		"set":             {func(p *pair, a, b *half) error { return a.MemsetAsync(b.p, 0, 64, a.s) }, "", []string{"set of 64 bytes on device 0", "of device 1"}},
		"kernel's stream": {func(p *pair, a, b *half) error { return p.launch(a.ctx, a.f, b.s, a.p) }, "", []string{"cuLaunchKernel: stream #2 of device 1 is of device 1, and the current context of device 0"}},
		"kernel's module": {func(p *pair, a, b *half) error { return p.launch(a.ctx, b.f, a.s, a.p) }, "", []string{"cuLaunchKernel: kernel store is of device 1, and the current context of device 0"}},
		"record":          {func(p *pair, a, b *half) error { return a.EventRecord(a.e, b.s) }, "", []string{"cudaEventRecord: event #1 of device 0 is of device 0, and stream #2 of device 1 of device 1"}},
		"time": {func(p *pair, a, b *half) error {
			p.must(errors.Join(a.EventRecord(a.e, a.s), b.EventRecord(b.e, b.s)))
			_, err := a.EventElapsed(a.e, b.e)
			return err
		}, "", []string{"cudaEventElapsedTime: event #1", "device 0, and event #2", "device 1"}},
		"unload":            {func(p *pair, a, b *half) error { return p.c.ModuleUnload(a.ctx, b.m) }, "", []string{"cuModuleUnload: module #2 is of device 1, and the current context of device 0"}},
		"function":          {func(p *pair, a, b *half) error { _, err := p.c.ModuleFunction(b.ctx, a.m, "store"); return err }, "", []string{"cuModuleGetFunction: module #1 is of device 0, and the current context of device 1"}},
		"function's limit":  {func(p *pair, a, b *half) error { return p.c.FuncSetMaxDynamicShared(b.ctx, a.f, 1024) }, "", []string{"cuFuncSetAttribute: kernel store is of device 0", "device 1"}},
		"product's handle":  {func(p *pair, a, b *half) error { return p.product(a.ctx, b, a.s, a.p, a.p+64) }, "", []string{"cublasLtMatmul: cublasLt handle #2 is of device 1, and the current context of device 0"}},
		"product's stream":  {func(p *pair, a, b *half) error { return p.product(a.ctx, a, b.s, a.p, a.p+64) }, "", []string{"cublasLtMatmul: stream #2", "device 1", "device 0"}},
		"product's operand": {func(p *pair, a, b *half) error { return p.product(a.ctx, a, a.s, b.p, a.p) }, "", []string{"matrix product 4×4×4 on device 0", "of device 1"}},
		"product's result":  {func(p *pair, a, b *half) error { return p.product(a.ctx, a, a.s, a.p, b.p) }, "", []string{"matrix product 4×4×4 on device 0", "of device 1"}},
		"heuristic": {func(p *pair, a, b *half) error {
			_, err := p.c.BlasLt().AlgoGetHeuristic(a.ctx, b.h, &a.shape, 0, 1)
			return err
		}, "",
			[]string{"cublasLtMatmulAlgoGetHeuristic: cublasLt handle #2 is of device 1, and the current context of device 0"}},
		"handle destroyed": {func(p *pair, a, b *half) error { return p.c.BlasLt().Destroy(a.ctx, b.h) }, "", []string{"cublasLtDestroy: cublasLt handle #2 is of device 1, and the current context of device 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := openPair(t, emu.Options{})
			a, b := &p.each[0], &p.each[1]
			p.must(errors.Join(a.MemsetAsync(a.p, 0, 512, a.s), b.MemsetAsync(b.p, 0, 512, b.s), a.StreamSynchronize(a.s), b.StreamSynchronize(b.s)))
			if err := tc.do(p, a, b); err == nil {
				t.Error("the call says that it is done")
			}
			kind := tc.kind
			if kind == "" {
				kind = emu.Device
			}
			a.expect(kind, tc.says...)
		})
	}
}

// TestNoDeviceIsTakenByItself: a libcudart call on a thread without a context uses device 0. If
// there are two devices, the emulator reports this as a fault, since the program may have meant the
// other.
func TestNoDeviceIsTakenByItself(t *testing.T) {
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprint(devices), func(t *testing.T) {
			r := open(t, emu.Options{Devices: devices})
			malloc, free := r.d.Symbol(cudart.Runtime, "cudaMalloc"), r.d.Symbol(cudart.Runtime, "cudaFree")
			done := make(chan bool)
			go func() {
				defer close(done)
				runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
				p := new(uint64)
				if code := call(malloc, ptr(p), 4); code != 0 {
					t.Errorf("code %d", code)
				}
				call(free, uintptr(*p))
			}()
			<-done
			if devices == 1 {
				r.close()
				return
			}
			r.expect(emu.Context, "cudaMalloc on a thread that has no context", "device 0")
			if !slices.Equal(r.d.Contexts(), []int{0}) {
				t.Errorf("contexts of %v", r.d.Contexts())
			}
		})
	}
}
