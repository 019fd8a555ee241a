package cuda

import (
	"fmt"

	"mt/base/accounts"
	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// biasBytes is the size of device memory, beside a stream's scratch memory, into which a bias is
// copied if its address is not a multiple of biasAlign bytes. Some kernels of cuBLASLt read 16
// bytes of a bias at a time, and its interface has no way to state a smaller alignment.
const (
	biasBytes = 1 << 20
	biasAlign = 16
)

// table maps each operation to the Go function that enqueues its kernels: the function in package
// kernels, unless a file here replaces it. Nothing checks the values of index tensors; the caller
// is responsible for them.
var table = kernels.Operations.Clone()

// launcher implements kernels.Launcher for one stream: the functions in package kernels enqueue
// kernels through it. It serves one operation after another.
type launcher struct {
	stream  *stream
	params  kernels.Params
	scratch device.Mem // the stream's scratch memory, taken at first use
	err     error      // error of the current operation
	task    task       // the current operation
}

// Do enqueues an operation on a stream of this package.
func (d *dev) Do(s device.Stream, o device.Op) {
	c, bad := command{name: o.Name(), what: operation}, o.Check()
	if bad == nil {
		c.call, bad = table.Take(o)
		c.task = d.expected(c.name, op.LoadOf(o))
	}
	on(s).do(c, bad)
}

// do runs call, which enqueues the kernels of one operation. w describes the operation and its
// longest expected time, for reports of hangs.
func (l *launcher) do(call op.Call[kernels.Launcher], w task) error {
	l.err, l.task = nil, w
	if err := call.Run(l); err != nil {
		return err
	}
	return l.err
}

// Params returns the buffer for the parameters of the next launch, emptied.
func (l *launcher) Params() *kernels.Params { return l.params.Reset() }

// Launch enqueues the kernel k. After the first failure, it ignores the other launches of the same
// operation.
func (l *launcher) Launch(k *kernels.Kernel, grid, block kernels.Dim3, shared int, params *kernels.Params) {
	if l.err != nil {
		return
	}
	d := l.stream.dev
	f, err := d.function(k)
	switch {
	case err != nil:
		l.err = err
		return
	case shared > k.Shared:
		l.err = fmt.Errorf("%s: %d bytes of shared memory, it says at most %d", k.Name, shared, k.Shared)
		return
	}
	err = d.cuda.LaunchKernel(d.context, f, [3]uint32{grid.X, grid.Y, grid.Z}, [3]uint32{block.X, block.Y, block.Z}, uint32(shared), l.stream.cuda, params.Bytes)
	if err == nil {
		err = l.launched(k.Name)
	}
	if err != nil {
		l.err = fmt.Errorf("%s: %w", k.Name, err)
	}
}

// launched adds a launch of the current operation to those that are watched for hangs. call names the kernel or C
// function.
func (l *launcher) launched(call string) error { return l.stream.launched(call, l.task) }

// Scratch returns the first n bytes of the stream's scratch memory. If the memory cannot be allocated, the operation
// fails and its launches are dropped.
func (l *launcher) Scratch(n int64) device.Mem { return l.memory(0, n, kernels.ScratchBytes) }

// SharedBytes returns the largest shared memory of a block in bytes on this GPU. Source: CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability". Capabilities that the code does not list get the smallest value.
func (l *launcher) SharedBytes() int {
	switch l.stream.dev.capability {
	case 80, 87:
		return 163 << 10
	case 90, 100, 103:
		return 227 << 10
	}
	return 99 << 10
}

// Processors returns the GPU's number of multiprocessors; 0: unknown.
func (l *launcher) Processors() int { return l.stream.dev.processors }

// MostWork returns the most FLOPs that one launch should have, so that a watchdog does not end it.
// 0: no limit.
func (l *launcher) MostWork(dt device.DType) float64 { return l.stream.dev.mostWork[dt] }

// memory returns n bytes of the stream's scratch memory, beginning at byte off. If n exceeds most,
// the current operation fails.
func (l *launcher) memory(off, n, most int64) device.Mem {
	if l.err == nil && n > most {
		l.err = fmt.Errorf("%d bytes of scratch memory, there are %d", n, most)
	}
	if l.err == nil && l.scratch.Addr == 0 {
		l.scratch, l.err = l.stream.dev.takeScratch()
	}
	if l.err != nil {
		return device.Mem{Addr: device.Align, Bytes: n}
	}
	return l.scratch.Slice(off, n)
}

// free is called when the stream is closed. It returns the scratch memory to the device, for
// another stream.
func (l *launcher) free() {
	if l.scratch.Addr != 0 {
		l.stream.dev.giveScratch(l.scratch)
		l.scratch = device.Mem{}
	}
}

// StreamBytes is the size of the device memory that a stream allocates for its first operation that needs scratch
// memory. The first such stream costs nothing extra, because the budget counts its memory with the context.
const StreamBytes = kernels.ScratchBytes + biasBytes

// takeScratch returns scratch memory for a stream: free memory or new memory.
func (d *dev) takeScratch() (device.Mem, error) {
	d.mu.Lock()
	if n := len(d.scratch); n > 0 {
		m := d.scratch[n-1]
		d.scratch = d.scratch[:n-1]
		d.mu.Unlock()
		return m, nil
	}
	d.mu.Unlock()
	return d.alloc(accounts.Context, StreamBytes)
}

func (d *dev) giveScratch(m device.Mem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scratch = append(d.scratch, m)
}

// functionName is the key of a kernel in dev.functions: its PTX module and its name there.
type functionName struct{ module, name string }

// function returns CUDA's handle of the kernel k. The first call loads the kernel's module.
func (d *dev) function(k *kernels.Kernel) (cudart.Function, error) {
	key := functionName{k.Module, k.Name}
	d.functionsMu.RLock()
	f, ok := d.functions[key]
	d.functionsMu.RUnlock()
	if ok {
		return f, nil
	}
	m, err := d.module(k.Module)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	f, err = d.cuda.ModuleFunction(d.context, m, k.Name)
	if err == nil && k.Shared > freeShared {
		err = d.cuda.FuncSetMaxDynamicShared(d.context, f, k.Shared)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	d.functionsMu.Lock()
	defer d.functionsMu.Unlock()
	d.functions[key] = f
	return f, nil
}

// firstModule is the PTX module that is loaded when the device is opened, to check that the driver
// accepts mt's PTX. It is small, and has the same PTX version and target as the other modules.
const firstModule = "convert"

// module returns a module of this device and loads it at first use. The driver takes seconds to compile all modules
// that are not in its cache, and a model uses fewer than half of them. Modules load one at a time, because CUDA does
// not document parallel compilation within one context.
func (d *dev) module(name string) (cudart.Module, error) {
	d.modulesMu.Lock()
	defer d.modulesMu.Unlock()
	if m, ok := d.modules[name]; ok {
		return m, nil
	}
	ptx := kernels.PTX(name)
	if ptx == nil {
		return 0, fmt.Errorf("there is no module %s", name)
	}
	m, err := d.cuda.ModuleLoad(d.context, ptx)
	if err != nil {
		return 0, fmt.Errorf("kernels %s: %w", name, err)
	}
	d.modules[name] = m
	return m, nil
}

// freeShared is the dynamic shared memory in bytes that any launch may use. For more, CUDA requires
// setting an attribute of the kernel first.
const freeShared = 48 << 10
