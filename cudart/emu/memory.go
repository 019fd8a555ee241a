package emu

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"mt/cudart/emu/ptx"
)

// Device memory has addresses from deviceBase on, which no host pointer can have. Each allocation
// (buffer) owns 2^spanBits addresses, which are never reused. So every access outside a buffer, or
// after its release, is detected.
const (
	deviceBase = 1 << 62
	spanBits   = 36
	alignment  = 512 // of cudaMalloc, in bytes
	chunkSize  = 1 << 11
	maxChunks  = 1 << 11
)

// chunk is a section of the table of all buffers. Entries are only added, so readers need no lock.
type chunk [chunkSize]atomic.Pointer[buffer]

// buffer is one allocation of device memory.
type buffer struct {
	ptx.Buffer // Data is nil after cudaFree
	region
	gpu   *gpu
	size  int64
	freed bool
}

// isDevice reports whether addr is in the range of device memory.
func isDevice(addr uint64) bool { return addr>>62 == deviceBase>>62 }

// index returns the index of the buffer that owns an address.
func index(addr uint64) uint64 { return (addr - deviceBase) >> spanBits }

// buffer returns the i-th buffer; nil if it does not exist.
func (d *Driver) buffer(i uint64) *buffer {
	if i/chunkSize >= maxChunks {
		return nil
	}
	if c := d.chunks[i/chunkSize].Load(); c != nil {
		return c[i%chunkSize].Load()
	}
	return nil
}

// memory finds the memory that a launch may access; it implements ptx.Memory for one device.
type memory struct {
	d    *Driver
	gpu  *gpu
	miss atomic.Uint64 // the first looked-up address that is in no allocation
}

// Find returns the allocation of the device, or the pinned memory in its reach, that holds the byte at addr. nil:
// none does, and the first such address is recorded in miss.
func (m *memory) Find(addr uint64) *ptx.Buffer {
	if b := m.d.allocation(addr); b != nil && b.gpu == m.gpu && addr-b.Base < uint64(len(b.Data)) {
		return &b.Buffer
	}
	if p := m.d.reachable(m.gpu, addr); p != nil {
		return &p.view
	}
	m.miss.CompareAndSwap(0, addr)
	return nil
}

// missed describes, for an error message, which allocation lies at or near the first address that a
// launch accessed outside all allocations.
func (m *memory) missed() string {
	addr := m.miss.Load()
	b := m.d.allocation(addr)
	switch {
	case b == nil:
		return ""
	case b.freed:
		return fmt.Sprintf(" (in %s, which was freed)", b.name)
	case b.gpu != m.gpu:
		return fmt.Sprintf(" (offset %d of %s; the kernel runs on %s)", addr-b.Base, b.name, m.gpu)
	}
	return fmt.Sprintf(" (offset %d of %s)", addr-b.Base, b.name)
}

// cudaMalloc takes memory from the device in units of largeUnit. Allocations above largeFrom get whole units of their
// own. CUDA does not document this, but cudaMemGetInfo shows it.
const (
	largeFrom = 1 << 20
	largeUnit = 2 << 20
)

// malloc is cudaMalloc. A size of 0 returns a null pointer.
func (d *Driver) malloc(p *uint64, bytes uint64) int32 {
	if p == nil {
		return errInvalidValue
	}
	*p = 0
	if bytes == 0 {
		return 0
	}
	if d.mallocs++; d.opt.FullAt > 0 && d.mallocs >= d.opt.FullAt || bytes > uint64(d.opt.DeviceMemory) {
		return errOutOfMemory
	}
	unit := int64(alignment)
	if bytes > largeFrom {
		unit = largeUnit
	}
	taken := (int64(bytes) + unit - 1) / unit * unit
	next, g := d.buffers+1, d.here()
	if taken > d.opt.DeviceMemory-g.used || bytes > 1<<spanBits || next/chunkSize >= maxChunks {
		return errOutOfMemory
	}
	g.used += taken
	d.buffers = next
	b := &buffer{size: taken, gpu: g}
	b.name = fmt.Sprintf("device memory #%d (%d bytes)%s", next, bytes, d.of(g))
	b.Buffer = ptx.Buffer{Base: deviceBase + next<<spanBits, Data: junk(int(bytes)), Name: b.name}
	c := d.chunks[next/chunkSize].Load()
	if c == nil {
		c = new(chunk)
		d.chunks[next/chunkSize].Store(c)
	}
	c[next%chunkSize].Store(b)
	*p = b.Base
	return 0
}

// fresh is a piece of the content of newly allocated memory. Its bytes are NaN in fp32 and bf16 and
// -1 in integers, so that results show reads of unwritten memory.
var fresh = bytes.Repeat([]byte{0xff}, 8<<10)

// spares are freed large allocations, kept for later drivers of this process. They must have the content of fresh
// memory again. Programs rarely touch all of a large allocation, so restoring the touched parts is faster than
// filling a new one.
var spares struct {
	sync.Mutex
	of [][]byte
}

// The process keeps freed allocations of at least spareFrom bytes, at most mostSpares of them.
const (
	spareFrom  = 1 << 20
	mostSpares = 4
)

// junk returns n bytes for a new allocation, filled like fresh memory. It reuses a spare allocation
// if one has this size.
func junk(n int) []byte {
	spares.Lock()
	i := slices.IndexFunc(spares.of, func(b []byte) bool { return len(b) == n })
	if i < 0 {
		spares.Unlock()
		return bytes.Repeat([]byte{0xff}, n)
	}
	b := spares.of[i]
	spares.of = slices.Delete(spares.of, i, i+1)
	spares.Unlock()
	spoil(b)
	return b
}

// spare keeps the memory b of a released allocation for junk. Beyond mostSpares allocations it drops the oldest.
func spare(b []byte) {
	if len(b) < spareFrom {
		return
	}
	spares.Lock()
	defer spares.Unlock()
	if spares.of = append(spares.of, b); len(spares.of) > mostSpares {
		spares.of = slices.Delete(spares.of, 0, 1)
	}
}

// spoil gives b the content of fresh memory. It writes only the parts that differ.
func spoil(b []byte) {
	for len(b) > 0 {
		n := min(len(b), len(fresh))
		if !bytes.Equal(b[:n], fresh[:n]) {
			copy(b, fresh[:n])
		}
		b = b[n:]
	}
}

// free is cudaFree. Like CUDA, it waits until the device is idle. Still, it records a fault unless
// the host has already waited, before this call, for all work that uses the memory.
func (d *Driver) free(addr uint64) int32 {
	if addr == 0 {
		return 0
	}
	d.drain()
	b := d.allocation(addr)
	switch {
	case b == nil:
		d.fault(Argument, "cudaFree of %#x, where there has been no device memory", addr)
		return errInvalidValue
	case b.freed:
		d.fault(Bounds, "cudaFree of %s, which was freed before", b.name)
		return errInvalidValue
	case b.Base != addr:
		d.fault(Argument, "cudaFree %d bytes into %s", addr-b.Base, b.name)
		return errInvalidValue
	}
	if d.sticky == 0 {
		d.unused("cudaFree", &b.region)
		spare(b.Data) // a lost device may still run enqueued work
	}
	b.freed, b.Data, b.segments = true, nil, nil
	b.gpu.used -= b.size
	return 0
}

// allocation returns the buffer that owns an address, freed or not.
func (d *Driver) allocation(addr uint64) *buffer {
	if !isDevice(addr) {
		return nil
	}
	return d.buffer(index(addr))
}

// reach is memory that a device operation accesses: device memory or, for an integrated device,
// pinned host memory.
type reach struct {
	data  []byte
	parts []span // the regions that make up data, in order
}

// spans appends to out the accesses to bytes [off, off+n) of r. write says that the operation
// writes them.
func (r reach) spans(out []span, off, n int64, write bool) []span {
	for _, p := range r.parts {
		size := p.to - p.from
		if from, to := max(off, 0), min(off+n, size); from < to {
			out = append(out, span{p.region, p.from + from, p.from + to, write})
		}
		off -= size
	}
	return out
}

// reach returns the n bytes at addr if device g can access them. For an invalid address or size it
// records a fault and returns an error code.
func (d *Driver) reach(call string, g *gpu, addr, n uint64) (reach, int32) {
	if d.reachable(g, addr) == nil {
		b, off, code := d.deviceRange(call, g, addr, n)
		if code != 0 {
			return reach{}, code
		}
		return reach{b.Data[off : off+int64(n)], []span{{region: &b.region, from: off, to: off + int64(n)}}}, 0
	}
	out := reach{data: hostBytes(addr, n)}
	for at := addr; at < addr+n; {
		p := d.reachable(g, at)
		if p == nil {
			return reach{}, d.badMemory(Bounds, "%s: %d bytes at %#x, of which the last %d are not in pinned host memory", call, n, addr, addr+n-at)
		}
		end := min(p.end(), addr+n)
		out.parts = append(out.parts, span{region: &p.region, from: int64(at - p.base), to: int64(end - p.base)})
		at = end
	}
	return out, 0
}

// deviceRange returns the buffer that holds the n bytes at addr on device g, and the offset of addr
// in the buffer. For an invalid address or size it records a fault and returns an error code.
// Memory of another device is a fault too, because kernels and plain copies never have peer access
// in the emulator.
func (d *Driver) deviceRange(call string, g *gpu, addr, n uint64) (*buffer, int64, int32) {
	b := d.allocation(addr)
	switch {
	case b == nil:
		return nil, 0, d.badMemory(Bounds, "%s: %d bytes at %#x, where there is no device memory", call, n, addr)
	case b.freed:
		return nil, 0, d.badMemory(Bounds, "%s: %d bytes at offset %d of %s, which was freed", call, n, addr-b.Base, b.name)
	case b.gpu != g:
		return nil, 0, d.badMemory(Device, "%s on %s: %d bytes at offset %d of %s", call, g, n, addr-b.Base, b.name)
	case addr-b.Base > uint64(len(b.Data)) || n > uint64(len(b.Data))-(addr-b.Base):
		return nil, 0, d.badMemory(Bounds, "%s: %d bytes at offset %d of %s", call, n, addr-b.Base, b.name)
	}
	return b, int64(addr - b.Base), 0
}
