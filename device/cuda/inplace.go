package cuda

import (
	"errors"
	"fmt"

	"mt/cudart"
	"mt/device"
)

// This file lets an integrated GPU compute in host memory in place. Kernels, cuBLASLt, sets and copies then take the
// host address of pinned memory as if it were device memory. Pinned memory is registered in pieces. Kernels may cross
// from piece to piece, but CUDA refuses copies and sets across a border, so they are cut.

// InPlace makes the device unified (Unified, BindHost) or makes it copy again. Nothing may be enqueued meanwhile. All
// bound memory must be pinned, so Register and AllocHost of a unified device fail if the system refuses to pin. The
// error says why the GPU cannot use host memory in place.
func (d *dev) InPlace(on bool) error {
	if !on {
		d.unified.Store(false)
		return nil
	}
	if !d.usage.Integrated {
		return fmt.Errorf("the %s has memory of its own, so weights are copied to it", d.name)
	}
	has, err := d.cuda.DeviceAttribute(cudart.AttrHostPointers, d.opts.Ordinal)
	if err != nil {
		return err
	}
	if has == 0 {
		return fmt.Errorf("the %s does not read pinned memory by the host's addresses (cudaDevAttrCanUseHostPointerForRegisteredMem is 0)", d.name)
	}
	d.unified.Store(true)
	return nil
}

// Unified reports whether InPlace has made the device use host memory in place.
func (d *dev) Unified() bool { return d.unified.Load() }

// BindHost returns pinned host memory as device memory. It panics unless the device is unified.
func (d *dev) BindHost(b []byte) device.Mem {
	if !d.Unified() {
		panic("cuda: BindHost on a device that is not unified")
	}
	if len(b) == 0 {
		return device.Mem{}
	}
	return device.Mem{Addr: address(b), Bytes: int64(len(b))}
}

// ErrNotPinned is wrapped by errors of Register and AllocHost of a unified device: the system refused to pin the
// memory.
var ErrNotPinned = errors.New("the GPU uses host memory in place, which must be pinned for that: raise the limit of locked memory (ulimit -l), or set binding: copy")

// within returns how many bytes from the start of m lie in one registered piece of host memory. If m is not host
// memory, it returns the size of m. CUDA refuses copies that cross from piece to piece.
func (d *dev) within(m device.Mem) int64 {
	if !d.Unified() {
		return m.Bytes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.spanOf(m.Addr); ok {
		return min(m.Bytes, int64(s.to-m.Addr))
	}
	return m.Bytes
}

// direction returns the direction that a copy must state. On a unified device device memory may really be host memory,
// so CUDA has to find out the direction from the addresses.
func (d *dev) direction(kind cudart.MemcpyKind) cudart.MemcpyKind {
	if d.Unified() {
		return cudart.AnyDirection
	}
	return kind
}
