package emu_test

import "mt/cudart"

// The methods in this file make cudart's calls that need a context, in the context of the rig.

func (r *rig) MemGetInfo() (free, total int64, err error) {
	return r.CUDA.MemGetInfo(r.context())
}

func (r *rig) Malloc(bytes int64) (cudart.DevicePtr, error) {
	return r.CUDA.Malloc(r.context(), bytes)
}

func (r *rig) Free(p cudart.DevicePtr) error {
	return r.CUDA.Free(r.context(), p)
}

func (r *rig) HostAlloc(bytes int64) ([]byte, error) {
	return r.CUDA.HostAlloc(r.context(), bytes)
}

func (r *rig) FreeHost(b []byte) error {
	return r.CUDA.FreeHost(r.context(), b)
}

func (r *rig) HostRegister(b []byte) error {
	return r.CUDA.HostRegister(r.context(), b)
}

func (r *rig) HostUnregister(b []byte) error {
	return r.CUDA.HostUnregister(r.context(), b)
}

func (r *rig) MemcpyAsync(dst, src uintptr, bytes int64, kind cudart.MemcpyKind, s cudart.Stream) error {
	return r.CUDA.MemcpyAsync(r.context(), dst, src, bytes, kind, s)
}

// peerCopy enqueues a copy from another device's memory to this device's memory, on a stream of either.
func (r *rig) peerCopy(on *rig, dst, src cudart.DevicePtr, from *rig, bytes int64, s cudart.Stream) error {
	return r.CUDA.MemcpyPeerAsync(on.context(), dst, r.ordinal, src, from.ordinal, bytes, s)
}

func (r *rig) MemsetAsync(dst cudart.DevicePtr, value byte, bytes int64, s cudart.Stream) error {
	return r.CUDA.MemsetAsync(r.context(), dst, value, bytes, s)
}

func (r *rig) StreamCreate() (cudart.Stream, error) {
	return r.CUDA.StreamCreate(r.context())
}

func (r *rig) StreamDestroy(s cudart.Stream) error {
	return r.CUDA.StreamDestroy(r.context(), s)
}

func (r *rig) StreamSynchronize(s cudart.Stream) error {
	return r.CUDA.StreamSynchronize(r.context(), s)
}

func (r *rig) StreamWaitEvent(s cudart.Stream, e cudart.Event) error {
	return r.CUDA.StreamWaitEvent(r.context(), s, e)
}

func (r *rig) EventCreate(flags cudart.EventFlags) (cudart.Event, error) {
	return r.CUDA.EventCreate(r.context(), flags)
}

func (r *rig) EventDestroy(e cudart.Event) error {
	return r.CUDA.EventDestroy(r.context(), e)
}

func (r *rig) EventRecord(e cudart.Event, s cudart.Stream) error {
	return r.CUDA.EventRecord(r.context(), e, s)
}

func (r *rig) EventQuery(e cudart.Event) (bool, error) {
	return r.CUDA.EventQuery(r.context(), e)
}

func (r *rig) EventSynchronize(e cudart.Event) error {
	return r.CUDA.EventSynchronize(r.context(), e)
}

func (r *rig) EventElapsed(start, end cudart.Event) (float32, error) {
	return r.CUDA.EventElapsed(r.context(), start, end)
}
