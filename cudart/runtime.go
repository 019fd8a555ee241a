package cudart

import (
	"errors"
	"fmt"
	"unsafe"
)

// DeviceAttr is a cudaDeviceAttr. libcuda uses the same numbers for the attributes below. Source:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
type DeviceAttr int

// Attributes of a device.
const (
	AttrClockRate    DeviceAttr = 13 // peak clock in kHz
	AttrProcessors   DeviceAttr = 16
	AttrExecTimeout  DeviceAttr = 17 // 1: a watchdog stops long kernels
	AttrIntegrated   DeviceAttr = 18 // 1: the device has no memory of its own and shares the host's
	AttrPCIBus       DeviceAttr = 33
	AttrPCIDevice    DeviceAttr = 34
	AttrPCIDomain    DeviceAttr = 50
	AttrComputeMajor DeviceAttr = 75
	AttrComputeMinor DeviceAttr = 76
	// AttrHostPointers: 1 if the device accesses pinned host memory by its host addresses
	// (cudaDevAttrCanUseHostPointerForRegisteredMem).
	AttrHostPointers DeviceAttr = 91
)

// MemcpyKind is a cudaMemcpyKind: the direction of a copy.
type MemcpyKind int

// Directions of a copy.
const (
	HostToDevice   MemcpyKind = 1
	DeviceToHost   MemcpyKind = 2
	DeviceToDevice MemcpyKind = 3
	// AnyDirection is cudaMemcpyDefault: the addresses determine the direction.
	AnyDirection MemcpyKind = 4
)

// EventFlags are the creation flags of an event.
type EventFlags uint

// Flags of events.
const (
	EventDefault       EventFlags = 0
	EventBlockingSync  EventFlags = 1 // EventSynchronize sleeps instead of spinning
	EventDisableTiming EventFlags = 2 // cheaper; EventElapsed is an error
)

// Flags that this package passes to CUDA.
const (
	streamNonBlocking    = 1 // no implicit synchronization with the default stream
	hostAllocPortable    = 1 // pinned for every context
	hostRegisterPortable = 1
)

// runtimeFunctions are the functions of libcudart.
type runtimeFunctions struct {
	getDeviceCount, deviceGetAttribute, getVersion, driverGetVersion, getLastError function

	canAccessPeer, enablePeerAccess, memcpyPeerAsync function

	memGetInfo, malloc, free, hostAlloc, freeHost, hostRegister, hostUnregister, memcpyAsync, memsetAsync function

	streamCreate, streamDestroy, streamSynchronize, streamWaitEvent                    function
	eventCreate, eventDestroy, eventRecord, eventQuery, eventSynchronize, eventElapsed function
}

func (f *runtimeFunctions) bind(b *binder) {
	b.texts.cudaErrorName = b.need("cudaGetErrorName").addr
	b.texts.cudaErrorString = b.need("cudaGetErrorString").addr
	f.getDeviceCount = b.need("cudaGetDeviceCount")
	f.deviceGetAttribute = b.need("cudaDeviceGetAttribute")
	f.getVersion = b.need("cudaRuntimeGetVersion")
	f.driverGetVersion = b.need("cudaDriverGetVersion")
	f.getLastError = b.need("cudaGetLastError")
	f.canAccessPeer = b.need("cudaDeviceCanAccessPeer")
	f.enablePeerAccess = b.need("cudaDeviceEnablePeerAccess")
	f.memcpyPeerAsync = b.need("cudaMemcpyPeerAsync")
	f.memGetInfo = b.need("cudaMemGetInfo")
	f.malloc = b.need("cudaMalloc")
	f.free = b.need("cudaFree")
	f.hostAlloc = b.need("cudaHostAlloc")
	f.freeHost = b.need("cudaFreeHost")
	f.hostRegister = b.need("cudaHostRegister")
	f.hostUnregister = b.need("cudaHostUnregister")
	f.memcpyAsync = b.need("cudaMemcpyAsync")
	f.memsetAsync = b.need("cudaMemsetAsync")
	f.streamCreate = b.need("cudaStreamCreateWithFlags")
	f.streamDestroy = b.need("cudaStreamDestroy")
	f.streamSynchronize = b.need("cudaStreamSynchronize")
	f.streamWaitEvent = b.need("cudaStreamWaitEvent")
	f.eventCreate = b.need("cudaEventCreateWithFlags")
	f.eventDestroy = b.need("cudaEventDestroy")
	f.eventRecord = b.need("cudaEventRecord")
	f.eventQuery = b.need("cudaEventQuery")
	f.eventSynchronize = b.need("cudaEventSynchronize")
	f.eventElapsed = b.need("cudaEventElapsedTime")
}

// getInt calls f with the address of an int, followed by args, and returns the int.
func getInt(f *function, args ...uintptr) (int, error) {
	m := newFrame()
	defer m.release()
	err := f.call(append([]uintptr{m.out(0)}, args...)...)
	return m.int(0), err
}

// DeviceCount returns the number of GPUs that CUDA_VISIBLE_DEVICES does not hide. Without a GPU the error matches
// ErrNoDevice; if the driver does not fit, it matches ErrDriverTooOld. cudaGetDeviceCount:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__DEVICE.html
func (c *CUDA) DeviceCount() (int, error) { return getInt(&c.runtime.getDeviceCount) }

// DeviceAttribute returns one attribute of a device. cudaDeviceGetAttribute:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__DEVICE.html
func (c *CUDA) DeviceAttribute(attr DeviceAttr, dev int) (int, error) {
	return getInt(&c.runtime.deviceGetAttribute, uintptr(attr), uintptr(dev))
}

// PCIBusID returns the PCI address of a device, in the form that NVML.ByPCI takes. It is composed of three attributes.
func (c *CUDA) PCIBusID(dev int) (string, error) {
	var at [3]int
	for i, attr := range []DeviceAttr{AttrPCIDomain, AttrPCIBus, AttrPCIDevice} {
		v, err := c.DeviceAttribute(attr, dev)
		if err != nil {
			return "", err
		}
		at[i] = v
	}
	return fmt.Sprintf("%08x:%02x:%02x.0", at[0], at[1], at[2]), nil
}

// RuntimeVersion returns libcudart's version as CUDA numbers it, 12040 for 12.4. It needs no device.
// cudaRuntimeGetVersion:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART____VERSION.html
func (c *CUDA) RuntimeVersion() (int, error) { return getInt(&c.runtime.getVersion) }

// DriverVersion returns the newest CUDA version that the driver supports; 0: no driver. cudaDriverGetVersion:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART____VERSION.html
func (c *CUDA) DriverVersion() (int, error) { return getInt(&c.runtime.driverGetVersion) }

// LastError returns the last error of this OS thread and clears it. A fault that lost the context is not cleared.
// cudaGetLastError: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__ERROR.html
func (c *CUDA) LastError() error { return c.runtime.getLastError.call() }

// DeviceCanAccessPeer reports whether work on device dev could access the memory of device peer, over NVLink or PCI
// Express. It enables nothing. cudaDeviceCanAccessPeer:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__PEER.html
func (c *CUDA) DeviceCanAccessPeer(dev, peer int) (bool, error) {
	can, err := getInt(&c.runtime.canAccessPeer, uintptr(dev), uintptr(peer))
	return can != 0, err
}

// DeviceEnablePeerAccess gives work in ctx access to all memory of device peer, present and future, until the context
// ends. It does not enable the reverse direction. Enabling it twice is no error. If the devices cannot reach each
// other, or ctx has the maximum number of peers, the error matches ErrNotSupported. cudaDeviceEnablePeerAccess:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__PEER.html
func (c *CUDA) DeviceEnablePeerAccess(ctx Context, peer int) error {
	err := c.driver.in(ctx, &c.runtime.enablePeerAccess, uintptr(peer), 0)
	var e *Error
	if errors.As(err, &e) && e.Library == Runtime && e.Code == errorPeerAccessAlreadyEnabled {
		return nil
	}
	return err
}

// MemcpyPeerAsync enqueues a copy from device from to device to on s, a stream of either device. Both sides must stay
// valid until an event recorded after the copy completes. Without peer access (DeviceEnablePeerAccess) CUDA copies
// through the host. cudaMemcpyPeerAsync:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) MemcpyPeerAsync(ctx Context, dst DevicePtr, to int, src DevicePtr, from int, bytes int64, s Stream) error {
	return c.driver.in(ctx, &c.runtime.memcpyPeerAsync, uintptr(dst), uintptr(to), uintptr(src), uintptr(from), uintptr(bytes), uintptr(s))
}

// MemGetInfo returns the free and the total device memory in bytes. Memory of other processes is not free.
// cudaMemGetInfo:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) MemGetInfo(ctx Context) (free, total int64, err error) {
	m := newFrame()
	defer m.release()
	err = c.driver.in(ctx, &c.runtime.memGetInfo, m.out(0), m.out(1))
	return int64(m.words[0]), int64(m.words[1]), err
}

// Malloc allocates device memory, aligned to 256 bytes, with undefined content. It may wait for the device. Free
// releases the memory. cudaMalloc:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) Malloc(ctx Context, bytes int64) (DevicePtr, error) {
	m := newFrame()
	defer m.release()
	err := c.driver.in(ctx, &c.runtime.malloc, m.out(0), uintptr(bytes))
	return DevicePtr(m.words[0]), err
}

// Free releases device memory, after waiting for all work on the device. Freeing address 0 is no error. cudaFree:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) Free(ctx Context, p DevicePtr) error {
	return c.driver.always(ctx, &c.runtime.free, uintptr(p))
}

// HostAlloc allocates pinned host memory with undefined content. Asynchronous copies of pinned memory run at full
// rate. The memory belongs to C: do not use the slice after FreeHost. cudaHostAlloc with cudaHostAllocPortable:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) HostAlloc(ctx Context, bytes int64) ([]byte, error) {
	m := newFrame()
	defer m.release()
	if err := c.driver.in(ctx, &c.runtime.hostAlloc, m.out(0), uintptr(bytes), hostAllocPortable); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(m.pointer(0)), bytes), nil
}

// FreeHost frees memory of HostAlloc. b must be the whole slice. An empty b is no error. cudaFreeHost:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) FreeHost(ctx Context, b []byte) error {
	return c.driver.always(ctx, &c.runtime.freeHost, address(b))
}

// HostRegister pins memory that Go's garbage collector does not own, such as a mapping, for fast asynchronous copies.
// It touches every page. The memory must stay mapped until HostUnregister. Systems that refuse it return various
// errors: out of memory (low limit of locked memory), not supported, or invalid value. The same memory may be
// registered once per device; the first registration pins it for all devices. cudaHostRegister with
// cudaHostRegisterPortable:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) HostRegister(ctx Context, b []byte) error {
	return c.hostMemory.register(ctx, b, func() error {
		return c.driver.in(ctx, &c.runtime.hostRegister, address(b), uintptr(len(b)), hostRegisterPortable)
	})
}

// HostUnregister undoes HostRegister for one device. b must start at the registered address. No copy of this device
// may use the memory. The memory stays pinned until the last device unregisters it. At that time no copy of any device
// may use it. cudaHostUnregister:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) HostUnregister(ctx Context, b []byte) error {
	return c.hostMemory.unregister(ctx, b, func() error {
		return c.driver.always(ctx, &c.runtime.hostUnregister, address(b))
	})
}

// MemcpyAsync enqueues a copy on s. Both sides must stay valid until an event recorded after the copy completes. Host
// memory must be pinned (HostAlloc, HostRegister). CUDA stages copies of pageable memory, and the call may then return
// before or after the copy ends. cudaMemcpyAsync:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) MemcpyAsync(ctx Context, dst, src uintptr, bytes int64, kind MemcpyKind, s Stream) error {
	return c.driver.in(ctx, &c.runtime.memcpyAsync, dst, src, uintptr(bytes), uintptr(kind), uintptr(s))
}

// MemsetAsync sets every one of the bytes bytes at dst to value, as an operation of s. cudaMemsetAsync:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
func (c *CUDA) MemsetAsync(ctx Context, dst DevicePtr, value byte, bytes int64, s Stream) error {
	return c.driver.in(ctx, &c.runtime.memsetAsync, uintptr(dst), uintptr(value), uintptr(bytes), uintptr(s))
}

// StreamCreate creates a stream without implicit synchronization. cudaStreamCreateWithFlags with
// cudaStreamNonBlocking:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
func (c *CUDA) StreamCreate(ctx Context) (Stream, error) {
	m := newFrame()
	defer m.release()
	err := c.driver.in(ctx, &c.runtime.streamCreate, m.out(0), streamNonBlocking)
	return Stream(m.words[0]), err
}

// StreamDestroy destroys a stream without waiting. Enqueued work still runs.
// cudaStreamDestroy:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
func (c *CUDA) StreamDestroy(ctx Context, s Stream) error {
	return c.driver.always(ctx, &c.runtime.streamDestroy, uintptr(s))
}

// StreamSynchronize waits until all work on s is complete, and returns its first fault. cudaStreamSynchronize:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
func (c *CUDA) StreamSynchronize(ctx Context, s Stream) error {
	return c.driver.always(ctx, &c.runtime.streamSynchronize, uintptr(s))
}

// StreamWaitEvent makes later work on s wait for the last record of e. An event that was never recorded makes nothing
// wait. The host does not wait. cudaStreamWaitEvent:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
func (c *CUDA) StreamWaitEvent(ctx Context, s Stream, e Event) error {
	return c.driver.in(ctx, &c.runtime.streamWaitEvent, uintptr(s), uintptr(e), 0)
}

// EventCreate creates an event. cudaEventCreateWithFlags:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventCreate(ctx Context, flags EventFlags) (Event, error) {
	m := newFrame()
	defer m.release()
	err := c.driver.in(ctx, &c.runtime.eventCreate, m.out(0), uintptr(flags))
	return Event(m.words[0]), err
}

// EventDestroy destroys an event. Enqueued waits for it stay valid.
// cudaEventDestroy:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventDestroy(ctx Context, e Event) error {
	return c.driver.always(ctx, &c.runtime.eventDestroy, uintptr(e))
}

// EventRecord makes e mark the work that is on s now, in place of its previous record. cudaEventRecord:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventRecord(ctx Context, e Event, s Stream) error {
	return c.driver.in(ctx, &c.runtime.eventRecord, uintptr(e), uintptr(s))
}

// EventQuery reports whether the work that e marks is complete. It does not wait.
// cudaEventQuery:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventQuery(ctx Context, e Event) (bool, error) {
	code, err := c.driver.status(ctx, &c.runtime.eventQuery, uintptr(e))
	switch {
	case err != nil:
		return false, err
	case code == errorNotReady:
		return false, nil
	case code != 0:
		return false, c.runtime.eventQuery.fail(code, "")
	}
	return true, nil
}

// EventSynchronize waits until the work that e marks is complete. With EventBlockingSync the thread sleeps.
// cudaEventSynchronize:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventSynchronize(ctx Context, e Event) error {
	return c.driver.always(ctx, &c.runtime.eventSynchronize, uintptr(e))
}

// EventElapsed returns the time in milliseconds between two completed events, with a resolution of about half a
// microsecond. Neither event may have EventDisableTiming. If one is incomplete, the error matches ErrNotReady.
// cudaEventElapsedTime:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
func (c *CUDA) EventElapsed(ctx Context, start, end Event) (ms float32, err error) {
	m := newFrame()
	defer m.release()
	err = c.driver.in(ctx, &c.runtime.eventElapsed, m.out(0), uintptr(start), uintptr(end))
	return m.float(0), err
}

// address returns the address of b's first byte; 0 if b has no memory.
func address(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}
