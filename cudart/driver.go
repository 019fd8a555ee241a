package cudart

import (
	"fmt"
	"runtime"
	"strings"
)

// funcMaxDynamicShared is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, in bytes.
// Source: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
const funcMaxDynamicShared = 8

// Options of cuModuleLoadDataEx and cuLaunchKernel.
const (
	jitInfoLogBuffer       = 3
	jitInfoLogBufferBytes  = 4
	jitErrorLogBuffer      = 5
	jitErrorLogBufferBytes = 6

	launchParamEnd           = 0
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

// The PTX compiler writes two logs: one for information, one for errors. jitLogBytes is the size of
// each log. cuModuleLoadDataEx gets jitOptions options for both logs together.
const (
	jitLogBytes = 8 << 10
	jitOptions  = 4
)

// driverFunctions are the functions of libcuda.
type driverFunctions struct {
	init, deviceGet, deviceGetName                     function
	primaryCtxRetain, primaryCtxRelease, ctxSetCurrent function
	moduleLoadDataEx, moduleUnload, moduleGetFunction  function
	funcSetAttribute, launchKernel                     function
	tensorMapEncodeTiled                               function // CUDA 12.0 and newer
}

func (f *driverFunctions) bind(b *binder) {
	b.texts.cuErrorName = b.need("cuGetErrorName").addr
	b.texts.cuErrorString = b.need("cuGetErrorString").addr
	f.init = b.need("cuInit")
	b.need("cuDriverGetVersion") // used by Find
	f.deviceGet = b.need("cuDeviceGet")
	f.deviceGetName = b.need("cuDeviceGetName")
	f.primaryCtxRetain = b.need("cuDevicePrimaryCtxRetain")
	f.primaryCtxRelease = b.need("cuDevicePrimaryCtxRelease_v2")
	f.ctxSetCurrent = b.need("cuCtxSetCurrent")
	f.moduleLoadDataEx = b.need("cuModuleLoadDataEx")
	f.moduleUnload = b.need("cuModuleUnload")
	f.moduleGetFunction = b.need("cuModuleGetFunction")
	f.funcSetAttribute = b.need("cuFuncSetAttribute")
	f.launchKernel = b.need("cuLaunchKernel")
	f.tensorMapEncodeTiled = b.probe("cuTensorMapEncodeTiled")
}

// status calls f with ctx current on the calling OS thread, and returns f's status code. An error means that the
// context could not be set and f was not called. cuCtxSetCurrent:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__CTX.html
func (d *driverFunctions) status(ctx Context, f *function, args ...uintptr) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.ctxSetCurrent.call(uintptr(ctx)); err != nil {
		return 0, err
	}
	return f.status(args...), nil
}

// in makes ctx current on the calling OS thread and then calls f. It returns an error for a nonzero
// status code.
func (d *driverFunctions) in(ctx Context, f *function, args ...uintptr) error {
	code, err := d.status(ctx, f, args...)
	if err == nil && code != 0 {
		err = f.fail(code, "")
	}
	return err
}

// always is in for functions that wait or release something. Even if the context cannot be set, it
// calls f, whose arguments say which device is meant. If both calls fail, it returns the error of
// f.
func (d *driverFunctions) always(ctx Context, f *function, args ...uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unset := d.ctxSetCurrent.call(uintptr(ctx))
	if err := f.call(args...); err != nil {
		return err
	}
	return unset
}

// device returns the handle of the device with ordinal dev. It first initializes libcuda, which is no error if it
// has been done before. cuInit, cuDeviceGet: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
func (c *CUDA) device(dev int) (uintptr, error) {
	if err := c.driver.init.call(0); err != nil {
		return 0, err
	}
	handle, err := getInt(&c.driver.deviceGet, uintptr(dev))
	return uintptr(handle), err
}

// DeviceName returns NVIDIA's name of a device. It needs no context. cuDeviceGetName:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
func (c *CUDA) DeviceName(dev int) (string, error) {
	handle, err := c.device(dev)
	if err != nil {
		return "", err
	}
	m := newFrame()
	defer m.release()
	const room = 256
	err = c.driver.deviceGetName.call(m.room(room), room, handle)
	return goString(m.bytes), err
}

// PrimaryContext retains the primary context of a device, and creates it if necessary. libcudart uses the same
// context. Each call needs a matching ReleasePrimaryContext. cuInit, cuDeviceGet, cuDevicePrimaryCtxRetain:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PRIMARY__CTX.html
func (c *CUDA) PrimaryContext(dev int) (Context, error) {
	handle, err := c.device(dev)
	if err != nil {
		return 0, err
	}
	m := newFrame()
	defer m.release()
	err = c.driver.primaryCtxRetain.call(m.out(0), handle)
	return Context(m.words[0]), err
}

// ReleasePrimaryContext releases one PrimaryContext. The last release destroys the context and everything in it.
// cuDevicePrimaryCtxRelease:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PRIMARY__CTX.html
func (c *CUDA) ReleasePrimaryContext(dev int) error {
	handle, err := c.device(dev)
	if err != nil {
		return err
	}
	return c.driver.primaryCtxRelease.call(handle)
}

// ModuleLoad compiles PTX for the device of ctx, or takes the result from the driver's cache. ptx needs no terminating
// NUL and is not used after the call. The error's Detail is the compiler log. For PTX newer than the driver the error
// matches ErrDriverTooOld. cuModuleLoadDataEx:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MODULE.html
func (c *CUDA) ModuleLoad(ctx Context, ptx []byte) (Module, error) {
	text, m := newFrame(), newFrame()
	defer text.release()
	defer m.release()
	logs := m.room(2 * jitLogBytes)
	m.words[1] = jitInfoLogBuffer | jitInfoLogBufferBytes<<32 // option keys, C ints
	m.words[2] = jitErrorLogBuffer | jitErrorLogBufferBytes<<32
	copy(m.words[3:], []uint64{uint64(logs), jitLogBytes, uint64(logs) + jitLogBytes, jitLogBytes}) // option values
	err := c.driver.in(ctx, &c.driver.moduleLoadDataEx, m.out(0), text.text(ptx), jitOptions, m.at(1), m.at(3))
	if e, ok := err.(*Error); ok {
		info, errors := goString(m.bytes[:jitLogBytes]), goString(m.bytes[jitLogBytes:])
		e.Detail = strings.TrimSpace(strings.TrimSpace(errors) + "\n" + strings.TrimSpace(info))
	}
	return Module(m.words[0]), err
}

// ModuleUnload frees a module and its functions. None of them may be running. cuModuleUnload:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MODULE.html
func (c *CUDA) ModuleUnload(ctx Context, m Module) error {
	return c.driver.in(ctx, &c.driver.moduleUnload, uintptr(m))
}

// ModuleFunction returns the kernel with the given name. It is valid as long as its module. For an unknown name the
// error matches ErrNotFound. cuModuleGetFunction:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MODULE.html
func (c *CUDA) ModuleFunction(ctx Context, mod Module, name string) (Function, error) {
	m := newFrame()
	defer m.release()
	err := c.driver.in(ctx, &c.driver.moduleGetFunction, m.out(0), uintptr(mod), m.text([]byte(name)))
	if e, ok := err.(*Error); ok {
		e.Detail = fmt.Sprintf("kernel %q", name)
	}
	return Function(m.words[0]), err
}

// FuncSetMaxDynamicShared allows launches of f with up to bytes of dynamic shared memory. Launches with more than 48
// KiB need it. cuFuncSetAttribute:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html
func (c *CUDA) FuncSetMaxDynamicShared(ctx Context, f Function, bytes int) error {
	return c.driver.in(ctx, &c.driver.funcSetAttribute, uintptr(f), funcMaxDynamicShared, uintptr(bytes))
}

// LaunchKernel enqueues f on s. grid is in blocks, block in threads, shared in bytes of dynamic shared memory. params
// are the packed parameters, each aligned to its own size. They are copied before the call returns. A later call
// reports a fault in the kernel. cuLaunchKernel:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html
func (c *CUDA) LaunchKernel(ctx Context, f Function, grid, block [3]uint32, shared uint32, s Stream, params []byte) error {
	m := newFrame()
	defer m.release()
	var extra uintptr
	if len(params) > 0 {
		m.words[0] = launchParamBufferPointer
		m.words[1] = uint64(m.copy(params))
		m.words[2] = launchParamBufferSize
		m.words[3] = uint64(m.in(5, uint64(len(params))))
		m.words[4] = launchParamEnd
		extra = m.at(0)
	}
	return c.driver.in(ctx, &c.driver.launchKernel, uintptr(f),
		uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
		uintptr(shared), uintptr(s), 0, extra)
}
