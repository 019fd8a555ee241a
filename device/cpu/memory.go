package cpu

import (
	"fmt"
	"unsafe"

	"mt/base/accounts"
	"mt/device"
)

// block is one allocation of memory, for the device or the host.
type block struct {
	purpose accounts.Purpose
	bytes   int64  // requested size, rounded up to device.Align
	data    []byte // the memory; keeps it alive
}

// pointer converts the address of device memory to a pointer. The garbage collector cannot free
// this memory too early: it is outside the Go heap, or dev.blocks keeps it alive until Free.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// memory returns the device memory m as a slice.
func memory(m device.Mem) []byte { return unsafe.Slice((*byte)(pointer(m.Addr)), m.Bytes) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Alloc maps memory for a device purpose. Zero bytes map no memory.
func (d *dev) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if !p.OfDevice() || bytes < 0 {
		return device.Mem{}, fmt.Errorf("cpu: alloc %d bytes for %s: not a request for device memory", bytes, p)
	}
	b, err := d.alloc(p, bytes)
	if err != nil || bytes == 0 {
		return device.Mem{}, err
	}
	return device.Mem{Addr: address(b), Bytes: bytes}, nil
}

// AllocHost maps zeroed memory. It counts as HostStaging.
func (d *dev) AllocHost(bytes int64) ([]byte, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cpu: alloc %d bytes of host memory", bytes)
	}
	return d.alloc(accounts.HostStaging, bytes)
}

func (d *dev) alloc(p accounts.Purpose, bytes int64) ([]byte, error) {
	if bytes == 0 {
		return nil, nil
	}
	rounded := (bytes + device.Align - 1) &^ (device.Align - 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cpu: alloc for %s: the device is closed", p)
	}
	u := &d.usage
	lacking := &device.OutOfMemory{Purpose: p, Requested: bytes, Used: u.Total, Limit: u.Limit}
	if p != accounts.HostStaging && u.Limit > 0 && rounded > u.Limit-u.Total {
		return nil, fmt.Errorf("cpu: %w", lacking)
	}
	data, err := mapMemory(rounded)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w: %w", lacking, err)
	}
	d.blocks[address(data)] = &block{purpose: p, bytes: rounded, data: data}
	d.count(p, rounded)
	return data[:bytes:bytes], nil
}

// count adds bytes, which is negative for freed memory, to the usage of purpose p. The caller holds d.mu.
func (d *dev) count(p accounts.Purpose, bytes int64) { d.usage.Count(p, bytes) }

// Free unmaps memory of Alloc. It panics for any other memory.
func (d *dev) Free(m device.Mem) {
	if m.Addr != 0 {
		d.free(m.Addr, false)
	}
}

// FreeHost unmaps memory of AllocHost. It panics for any other memory.
func (d *dev) FreeHost(b []byte) {
	if cap(b) > 0 {
		d.free(address(b), true)
	}
}

func (d *dev) free(addr uintptr, host bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[addr]
	if b == nil || host != (b.purpose == accounts.HostStaging) {
		panic(fmt.Sprintf("cpu: free of %#x, which is no allocation of this device", addr))
	}
	d.drop(addr, b)
}

// drop unmaps a freed block and removes it from d.blocks. The caller holds d.mu.
func (d *dev) drop(addr uintptr, b *block) {
	delete(d.blocks, addr)
	d.count(b.purpose, -b.bytes)
	unmapMemory(b.data)
}

// Register does nothing: copies are equally fast for all host memory.
func (d *dev) Register(...[]byte) error { return nil }

// Unregister does nothing.
func (d *dev) Unregister(...[]byte) {}

// BindHost returns b itself as device memory.
func (d *dev) BindHost(b []byte) device.Mem {
	if !d.opts.Unified {
		panic("cpu: BindHost on a device that is not unified")
	}
	if len(b) == 0 {
		return device.Mem{}
	}
	return device.Mem{Addr: address(b), Bytes: int64(len(b))}
}

// Usage counts memory by purpose.
func (d *dev) Usage() device.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usage
}
