package cuda

import (
	"errors"
	"fmt"

	"mt/cudart"
	"mt/device"
)

// This file lets an integrated GPU, which shares memory with the host, use host memory without
// copies. Kernels, cuBLASLt, memsets and copies then take the address of pinned host memory as if
// it were device memory. Pinned memory is registered with CUDA in pieces. A kernel may cross from
// piece to piece, but CUDA refuses copies and memsets that do, so they are cut there.

// InPlace(true) makes the device unified: it uses host memory without copies (see Unified,
// BindHost). InPlace(false) makes it copy again. No work may be enqueued during the call. A unified
// device can use only pinned memory, so its Register and AllocHost fail if the system refuses to
// pin. The error says why the GPU cannot use host memory in place.
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

// ErrNotPinned is wrapped by errors of Register and AllocHost on a unified device, when the system
// refuses to pin the memory.
var ErrNotPinned = errors.New("the GPU uses host memory in place, which must be pinned for that: raise the limit of locked memory (ulimit -l), or set binding: copy")

// within returns how many bytes from the start of m lie in one registered piece of host memory,
// because CUDA refuses copies that cross from piece to piece. If m is device memory, it returns the
// size of m.
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

// direction returns the direction to state in a copy that is meant as kind. On a unified device a
// device.Mem may really be host memory, so CUDA has to find out the direction from the addresses.
func (d *dev) direction(kind cudart.MemcpyKind) cudart.MemcpyKind {
	if d.Unified() {
		return cudart.AnyDirection
	}
	return kind
}
