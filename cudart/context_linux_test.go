package cudart

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestContextOfThread calls libcuda and libcublasLt from many goroutines with contexts of their
// own: each call must find its context current on the thread it runs on.
func TestContextOfThread(t *testing.T) {
	f, c := newFake(t)
	current := map[int]uintptr{}
	f.on("cuCtxSetCurrent", func(a *[maxArguments]uintptr) uintptr { current[syscall.Gettid()] = a[0]; return 0 })
	inContext := func(function func(a *[maxArguments]uintptr) uintptr) func(a *[maxArguments]uintptr) uintptr {
		return func(a *[maxArguments]uintptr) uintptr {
			if current[syscall.Gettid()] != function(a) {
				return 201
			}
			return 0
		}
	}
	first := func(a *[maxArguments]uintptr) uintptr { return a[0] }
	second := func(a *[maxArguments]uintptr) uintptr { return a[1] }
	f.on("cuLaunchKernel", inContext(first))
	f.on("cuModuleUnload", inContext(first))
	f.on("cuFuncSetAttribute", inContext(first))
	f.on("cuModuleGetFunction", inContext(second))
	for _, name := range []string{"cublasLtDestroy", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic"} {
		f.on(name, inContext(first))
	}
	f.on("cuModuleLoadDataEx", inContext(func(a *[maxArguments]uintptr) uintptr { return uintptr(textAt(a[1])[0]) }))
	one := [3]uint32{1, 1, 1}
	var wait sync.WaitGroup
	for id := uintptr(1); id <= 16; id++ {
		wait.Go(func() {
			ctx := Context(id)
			for range 50 {
				_, loading := c.ModuleLoad(ctx, []byte{byte(id)})
				_, finding := c.ModuleFunction(ctx, Module(id), "f")
				_, choosing := c.BlasLt().AlgoGetHeuristic(ctx, BlasHandle(id), &MatmulShape{}, 0, 1)
				if errors.Is(choosing, ErrNotSupported) { // it was called and proposed nothing
					choosing = nil
				}
				if err := errors.Join(loading, finding, choosing, c.BlasLt().Destroy(ctx, BlasHandle(id)),
					c.BlasLt().Matmul(ctx, BlasHandle(id), &MatmulShape{}, &MatmulArgs{}, 0), c.FuncSetMaxDynamicShared(ctx, Function(id), 1),
					c.LaunchKernel(ctx, Function(id), one, one, 0, 0, []byte{1}), c.ModuleUnload(ctx, Module(id))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	// Stopping the world takes the processors of goroutines that are in C: they
	// come back on any thread, unless they are bound to one.
	for stopped := false; !stopped; {
		select {
		case <-done:
			stopped = true
		default:
			runtime.ReadMemStats(new(runtime.MemStats))
		}
	}
}
