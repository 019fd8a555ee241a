package cudart

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// TestContextOfThread: libcudart, libcuda and libcublasLt are called from many goroutines at the
// same time, each with its own context. In every call, this context is current on the calling OS
// thread.
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
	for name, argument := range map[string]int{"cudaMalloc": 1, "cudaFree": 0, "cudaHostAlloc": 1, "cudaFreeHost": 0, "cudaHostRegister": 1,
		"cudaHostUnregister": 0, "cudaMemcpyAsync": 4, "cudaMemsetAsync": 3, "cudaStreamDestroy": 0, "cudaStreamSynchronize": 0,
		"cudaStreamWaitEvent": 0, "cudaEventCreateWithFlags": 1, "cudaEventDestroy": 0, "cudaEventRecord": 1, "cudaEventQuery": 0, "cudaEventSynchronize": 0,
		"cudaEventElapsedTime": 1} {
		f.on(name, inContext(func(a *[maxArguments]uintptr) uintptr {
			if name == "cudaHostAlloc" {
				*memory[uintptr](a[0]) = address(fixed)
			}
			return a[argument] % 100
		}))
	}
	tells := func(a *[maxArguments]uintptr) uintptr { *memory[uintptr](a[0]) = current[syscall.Gettid()]; return 0 }
	f.on("cudaMemGetInfo", tells)
	f.on("cudaStreamCreateWithFlags", tells)
	one := [3]uint32{1, 1, 1}
	var wait sync.WaitGroup
	for id := uintptr(1); id <= 16; id++ {
		wait.Go(func() {
			ctx := Context(id)
			for range 50 {
				_, loading := c.ModuleLoad(ctx, []byte{byte(id)})
				_, finding := c.ModuleFunction(ctx, Module(id), "f")
				_, choosing := c.BlasLt().AlgoGetHeuristic(ctx, BlasHandle(id), &MatmulShape{}, 0, 1)
				if errors.Is(choosing, ErrNotSupported) { // the call was made and proposed nothing
					choosing = nil
				}
				if err := errors.Join(runtimeIn(c, id), loading, finding, choosing, c.BlasLt().Destroy(ctx, BlasHandle(id)),
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
	// Force goroutines to change OS threads: stopping the world takes the processor away from a
	// goroutine that is in C. It may come back on any thread unless it is locked to one.
	for stopped := false; !stopped; {
		select {
		case <-done:
			stopped = true
		default:
			runtime.ReadMemStats(new(runtime.MemStats))
		}
	}
}

// fixed is host memory at a multiple of 100. The test uses multiples of 100 as context ids, so an
// address can say which context a call belongs to.
var fixed = func() []byte {
	b := make([]byte, 300)
	return b[(100-address(b)%100)%100:]
}()

// runtimeIn makes all libcudart calls that need a context, in context id. id is also among the
// arguments or results of each call, so that the fake can compare it with the current context.
func runtimeIn(c *CUDA, id uintptr) error {
	ctx := Context(id)
	_, malloc := c.Malloc(ctx, int64(id))
	_, alloc := c.HostAlloc(ctx, int64(id))
	_, event := c.EventCreate(ctx, EventFlags(id))
	_, elapsed := c.EventElapsed(ctx, Event(id), 0)
	_, query := c.EventQuery(ctx, Event(id))
	free, _, info := c.MemGetInfo(ctx)
	stream, create := c.StreamCreate(ctx)
	if free != int64(id) || stream != Stream(id) {
		return fmt.Errorf("in context %d: %d bytes free, stream %d", id, free, stream)
	}
	return errors.Join(malloc, alloc, event, elapsed, query, info, create, c.Free(ctx, DevicePtr(id)), c.FreeHost(ctx, fixed[id:]),
		c.HostRegister(ctx, fixed[:id]), c.HostUnregister(ctx, fixed[id:]), c.MemcpyAsync(ctx, 0, 0, 0, HostToDevice, Stream(id)),
		c.MemsetAsync(ctx, 0, 0, 0, Stream(id)), c.StreamDestroy(ctx, Stream(id)), c.StreamSynchronize(ctx, Stream(id)),
		c.StreamWaitEvent(ctx, Stream(id), 0), c.EventDestroy(ctx, Event(id)), c.EventRecord(ctx, 0, Stream(id)), c.EventSynchronize(ctx, Event(id)))
}
