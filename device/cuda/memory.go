package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sort"
	"unsafe"

	"mt/base/accounts"
	"mt/base/human"
	"mt/base/parallel"
	"mt/cudart"
	"mt/device"
)

// block is one allocation by Alloc or AllocHost.
type block struct {
	purpose accounts.Purpose
	bytes   int64  // requested size, rounded up to device.Align
	host    []byte // host memory, pinned or of the Go heap
	pinned  bool
}

// span is a pinned range of host memory, by its addresses.
type span struct{ from, to uintptr }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Alloc allocates device memory. Zero bytes allocate no memory.
func (d *dev) Alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if !p.OfDevice() || bytes < 0 {
		return device.Mem{}, fmt.Errorf("cuda: alloc %d bytes for %s: not a request for device memory", bytes, p)
	}
	m, err := d.alloc(p, bytes)
	if err != nil {
		return device.Mem{}, fmt.Errorf("cuda: %w", err)
	}
	return m, nil
}

func (d *dev) alloc(p accounts.Purpose, bytes int64) (device.Mem, error) {
	if bytes == 0 {
		return device.Mem{}, nil
	}
	rounded := (bytes + device.Align - 1) &^ (device.Align - 1)
	d.allocating.Lock()
	defer d.allocating.Unlock()
	if err := d.fits(p, bytes, rounded); err != nil {
		return device.Mem{}, err
	}
	ptr, err := d.cuda.Malloc(d.context, rounded)
	if err == nil && ptr%device.Align != 0 {
		err = errors.Join(fmt.Errorf("cudaMalloc: %#x is not at a multiple of %d", ptr, device.Align), d.cuda.Free(d.context, ptr))
	}
	if err != nil {
		return device.Mem{}, d.outOfMemory(p, bytes, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[uintptr(ptr)] = &block{purpose: p, bytes: rounded}
	d.count(p, rounded)
	return device.Mem{Addr: uintptr(ptr), Bytes: bytes}, nil
}

// fits returns an error if an allocation of rounded bytes would exceed the budget. bytes is the
// size that the caller asked for, which the error names.
func (d *dev) fits(p accounts.Purpose, bytes, rounded int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("alloc for %s: %w", p, errClosed)
	}
	if u := &d.usage; rounded > u.Limit-u.Total {
		return &device.OutOfMemory{Purpose: p, Requested: bytes, Used: u.Total, Limit: u.Limit}
	}
	return nil
}

// outOfMemory returns the error for an allocation of the given bytes that the driver refused with
// err. If the driver had too little memory, the error is a device.OutOfMemory that names the
// purpose and the memory in use.
func (d *dev) outOfMemory(p accounts.Purpose, bytes int64, err error) error {
	if !errors.Is(err, cudart.ErrOutOfMemory) {
		return fmt.Errorf("alloc %d bytes for %s: %w", bytes, p, err)
	}
	u := d.Usage()
	lacking := &device.OutOfMemory{Purpose: p, Requested: bytes, Used: u.Total, Limit: u.Limit}
	free, total, infoErr := d.cuda.MemGetInfo(d.context)
	if infoErr != nil {
		return fmt.Errorf("%w: %w", lacking, err)
	}
	return fmt.Errorf("%w: %w: of its %s %s has %s free; is another process using it?", lacking, err, human.Bytes(total), d.name, human.Bytes(free))
}

// count adds bytes to the usage of purpose p; bytes is negative for freed memory. The caller holds
// d.mu.
func (d *dev) count(p accounts.Purpose, bytes int64) { d.usage.Count(p, bytes) }

// AllocHost allocates zeroed host memory. The memory counts as HostStaging, and is pinned unless the system refuses.
func (d *dev) AllocHost(bytes int64) ([]byte, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: alloc %d bytes of host memory", bytes)
	}
	if bytes == 0 {
		return nil, nil
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("cuda: alloc for %s: %w", accounts.HostStaging, errClosed)
	}
	rounded := (bytes + device.Align - 1) &^ (device.Align - 1)
	var data []byte
	var err error
	b := &block{purpose: accounts.HostStaging, bytes: rounded, pinned: !d.leaving.Load()}
	if b.pinned {
		data, err = d.cuda.HostAlloc(d.context, rounded)
	}
	switch {
	case !b.pinned:
		data = aligned(rounded)
	case refused(err) && d.Unified():
		return nil, fmt.Errorf("cuda: alloc %s for %s: %w; %w", human.Bytes(bytes), accounts.HostStaging, err, ErrNotPinned)
	case refused(err):
		d.refuse(human.Bytes(bytes), err)
		b.pinned, data = false, aligned(rounded)
	case err != nil:
		return nil, fmt.Errorf("cuda: alloc %d bytes for %s: %w", bytes, accounts.HostStaging, err)
	default:
		zero(data)
	}
	b.host = data
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[address(data)] = b
	d.count(b.purpose, rounded)
	if b.pinned {
		d.pin(data)
	}
	return data[:bytes:bytes], nil
}

// aligned allocates bytes on the Go heap at a multiple of device.Align, for host memory that the
// system refused to pin.
func aligned(bytes int64) []byte {
	b := make([]byte, bytes+device.Align)
	off := int64(-address(b) & (device.Align - 1))
	return b[off : off+bytes]
}

// zero clears b, on several threads if b is large. The first access makes the operating system map
// the pages, which is slow on one thread.
func zero(b []byte) {
	const piece = 16 << 20
	if len(b) <= piece {
		clear(b)
		return
	}
	pool := parallel.New(min(4, runtime.GOMAXPROCS(0)))
	defer pool.Close()
	pool.Run((len(b)+piece-1)/piece, func(i int) { clear(b[i*piece : min(len(b), (i+1)*piece)]) })
}

// Free releases memory allocated by Alloc. It panics for any other memory.
func (d *dev) Free(m device.Mem) {
	if m.Addr != 0 {
		d.forget(m.Addr, false)
		d.release(func() error { return d.cuda.Free(d.context, cudart.DevicePtr(m.Addr)) })
	}
}

// FreeHost releases memory allocated by AllocHost. It panics for any other memory.
func (d *dev) FreeHost(b []byte) {
	if cap(b) == 0 {
		return
	}
	if found := d.forget(address(b), true); found.pinned {
		d.release(func() error { return d.cuda.FreeHost(d.context, found.host) })
	}
}

// forget removes the allocation at addr from the accounts and returns it. The allocation must be
// from AllocHost if host is true, else from Alloc. Otherwise forget panics.
func (d *dev) forget(addr uintptr, host bool) *block {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[addr]
	if b == nil || host != (b.purpose == accounts.HostStaging) {
		panic(fmt.Sprintf("cuda: free of %#x, which is no allocation of this device", addr))
	}
	delete(d.blocks, addr)
	d.count(b.purpose, -b.bytes)
	if b.pinned {
		d.unpin(addr)
	}
	return b
}

// refused reports whether err, an error of pinning memory, only means that the system does not pin
// this memory. The reasons are the limit of locked memory and the kind of mapping. Any other error
// is a failure.
func refused(err error) bool {
	var e *cudart.Error
	if !errors.As(err, &e) || e.Library != cudart.Runtime { // an error of setting the context
		return false
	}
	for _, is := range []error{cudart.ErrOutOfMemory, cudart.ErrNotSupported, cudart.ErrInvalidValue, cudart.ErrAlreadyRegistered} {
		if errors.Is(err, is) {
			return true
		}
	}
	return e.Code == codeOperatingSystem || e.Code == codeNotPermitted
}

// The values of CUDA's errors cudaErrorOperatingSystem and cudaErrorNotPermitted.
const (
	codeOperatingSystem = 304
	codeNotPermitted    = 800
)

// pin adds a range to the list of pinned ranges, which is sorted by address. unpin, below, removes
// a range. The caller holds d.mu.
func (d *dev) pin(b []byte) {
	s := span{address(b), address(b) + uintptr(len(b))}
	i := sort.Search(len(d.spans), func(i int) bool { return d.spans[i].from >= s.from })
	d.spans = append(d.spans, span{})
	copy(d.spans[i+1:], d.spans[i:])
	d.spans[i] = s
}

func (d *dev) unpin(addr uintptr) {
	i := sort.Search(len(d.spans), func(i int) bool { return d.spans[i].from >= addr })
	if i < len(d.spans) && d.spans[i].from == addr {
		d.spans = append(d.spans[:i], d.spans[i+1:]...)
	}
}

// run reports whether b begins in pinned memory, and how many of its bytes follow before that
// changes. Callers cut copies there, because CUDA refuses a copy across the border of a pinned
// range.
func (d *dev) run(b []byte) (bytes int64, pinned bool) {
	from := address(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	end := from + uintptr(len(b))
	if s, ok := d.spanOf(from); ok {
		return int64(min(end, s.to) - from), true
	}
	i := sort.Search(len(d.spans), func(i int) bool { return d.spans[i].from > from })
	if i < len(d.spans) {
		end = min(end, d.spans[i].from)
	}
	return int64(end - from), false
}

// spanOf returns the pinned range with the byte at addr. The caller holds d.mu.
func (d *dev) spanOf(addr uintptr) (span, bool) {
	i := sort.Search(len(d.spans), func(i int) bool { return d.spans[i].from > addr })
	if i > 0 && addr < d.spans[i-1].to {
		return d.spans[i-1], true
	}
	return span{}, false
}

// Usage returns the memory in use by purpose, the peaks and the limit.
func (d *dev) Usage() device.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usage
}
