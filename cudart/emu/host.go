package emu

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sort"
	"unsafe"

	"mt/cudart/emu/ptx"
)

// pinned is host memory that is allocated by cudaHostAlloc or registered by cudaHostRegister.
type pinned struct {
	region
	base  uint64
	bytes uint64
	owned []byte     // cudaHostAlloc memory; nil: registered
	only  *gpu       // the device that it is pinned for; nil: all devices (portable)
	view  ptx.Buffer // the memory as kernels see it
}

func (p *pinned) end() uint64 { return p.base + p.bytes }

// pageSize is the alignment of cudaHostAlloc.
const pageSize = 4096

// pin adds p to the list of pinned memory, which is sorted by address. It gives p a name for
// messages. The name contains how, the kind of pinning. d.mu is held.
func (d *Driver) pin(p *pinned, how string) {
	d.pinnedID++
	p.name = fmt.Sprintf("%s host memory #%d (%d bytes)", how, d.pinnedID, p.bytes)
	if d.opt.Integrated {
		p.view = ptx.Buffer{Base: p.base, Data: hostBytes(p.base, p.bytes), Name: p.name}
	}
	i := d.pinnedAt(p.base)
	d.pinned = slices.Insert(d.pinned, i, p)
	d.show()
}

// hostBytes returns n bytes of host memory at addr. A registered range may span several Go allocations.
//
//go:nocheckptr
func hostBytes(addr, n uint64) []byte { return unsafe.Slice((*byte)(pointer(addr)), n) }

// show publishes a copy of the list of pinned memory. Kernels of integrated devices, which reach pinned memory,
// read the copy without a lock. d.mu is held.
func (d *Driver) show() {
	if d.opt.Integrated {
		d.shown.Store(new(slices.Clone(d.pinned)))
	}
}

// reachable returns the pinned memory that holds the byte at addr; nil if there is none or g cannot reach it. Only
// integrated devices reach pinned memory. d.mu need not be held.
func (d *Driver) reachable(g *gpu, addr uint64) *pinned {
	all := d.shown.Load()
	if all == nil {
		return nil
	}
	i := sort.Search(len(*all), func(i int) bool { return (*all)[i].end() > addr })
	if i == len(*all) || (*all)[i].base > addr || (*all)[i].only != nil && (*all)[i].only != g {
		return nil
	}
	return (*all)[i]
}

// pinnedAt returns the index of the first pinned memory that ends after addr, which is the one that holds addr, if
// any does.
func (d *Driver) pinnedAt(addr uint64) int {
	return sort.Search(len(d.pinned), func(i int) bool { return d.pinned[i].end() > addr })
}

// hostAlloc is cudaHostAlloc. The memory is on the Go heap, so that the race detector watches it. Its content is
// undefined, as in CUDA.
func (d *Driver) hostAlloc(p *uint64, bytes uint64, flags uint32) int32 {
	if p == nil || flags > 7 {
		return errInvalidValue
	}
	*p = 0
	if bytes == 0 {
		return 0
	}
	if bytes > 1<<40 {
		return errOutOfMemory
	}
	all := make([]byte, bytes+pageSize)
	base := uint64(uintptr(unsafe.Pointer(&all[0])))
	off := (pageSize - base%pageSize) % pageSize
	owned := all[off : off+bytes]
	spoil(owned)
	d.pin(&pinned{base: base + off, bytes: bytes, owned: owned, only: d.pinsFor(flags)}, "allocated")
	*p = base + off
	return 0
}

// pinsFor returns the device that pinned memory belongs to: the device of the current call. It returns nil for all
// devices if flags has cudaHostAllocPortable or cudaHostRegisterPortable (the same bit).
func (d *Driver) pinsFor(flags uint32) *gpu {
	if flags&1 != 0 {
		return nil
	}
	return d.here()
}

// unpin undoes the pinning of the memory at addr. call is the name of the C function that asks for
// it. The memory must come from cudaHostAlloc if owned is true; otherwise it must have been
// registered. If there is no such memory, unpin records a fault and returns code. Like CUDA, it
// first waits until the device is idle.
func (d *Driver) unpin(call string, addr uint64, owned bool, code int32) int32 {
	d.drain()
	i := d.pinnedAt(addr)
	if i == len(d.pinned) || d.pinned[i].base != addr || (d.pinned[i].owned != nil) != owned {
		d.fault(Argument, "%s of %#x, which is no such memory", call, addr)
		return code
	}
	p := d.pinned[i]
	d.pinned = slices.Delete(d.pinned, i, i+1)
	d.show()
	if d.sticky == 0 {
		d.unused(call, &p.region)
	}
	if owned {
		spoil(p.owned)
	} else {
		d.locked -= int64(p.bytes)
	}
	return 0
}

// hostRegister is cudaHostRegister.
func (d *Driver) hostRegister(addr, bytes uint64, flags uint32) int32 {
	switch {
	case d.opt.RefuseRegister != 0:
		return int32(d.opt.RefuseRegister)
	case addr == 0 || bytes == 0 || flags > 15 || isDevice(addr):
		d.fault(Argument, "cudaHostRegister of %d bytes at %#x, flags %#x", bytes, addr, flags)
		return errInvalidValue
	case d.shares(addr, addr+bytes):
		return errAlreadyRegistered
	case d.opt.RegisterLimit > 0 && d.locked+int64(bytes) > d.opt.RegisterLimit:
		return errOutOfMemory
	}
	d.locked += int64(bytes)
	d.registrations++
	d.pin(&pinned{base: addr, bytes: bytes, only: d.pinsFor(flags)}, "registered")
	return 0
}

// shares reports whether a page that [from, to) touches is already pinned. Drivers pin whole pages and reject pages
// that are pinned already.
func (d *Driver) shares(from, to uint64) bool {
	in := uint64(d.opt.HostPage) - 1 // mask of the offset in a page
	return slices.ContainsFunc(d.pinned, func(p *pinned) bool {
		return p.base&^in < (to+in)&^in && from&^in < (p.end()+in)&^in
	})
}

// watch is pinned memory that an enqueued copy uses. The host must not change it before the copy is
// complete. The emulator cannot see the host's writes. It only compares hashes of the bytes, taken
// when the copy is enqueued and when it runs.
type watch struct {
	region *region
	bytes  []byte
	sum    uint64
	writes uint64 // value of region.writes when the copy was enqueued
}

var sumSeed = maphash.MakeSeed()

// watch makes the emulator check that the host does not change the bytes of h before the operation
// o runs. If a pending operation will write to the same pinned memory, the bytes change anyway, and
// watch does nothing. d.mu is held.
func (o *op) watch(h *hostSide) {
	if r := &h.pinned.region; r.writers == 0 {
		o.watches = append(o.watches, watch{r, h.bytes, maphash.Bytes(sumSeed, h.bytes), r.writes})
	}
}

// untouched records a fault for every watched range of o whose bytes the host has changed. d.mu is held.
func (d *Driver) untouched(o *op) {
	for _, w := range o.watches {
		if w.writes == w.region.writes && maphash.Bytes(sumSeed, w.bytes) != w.sum {
			d.fault(Order, "the host changed its side of %s, %d bytes in %s, before the copy was done", o, len(w.bytes), w.region.name)
		}
	}
}

// hostSide is the host memory that a copy reads or writes.
type hostSide struct {
	bytes  []byte
	pinned *pinned // nil: pageable
	from   int64   // offset in pinned
}

// hostRange returns the n bytes of host memory at addr, for a copy by device g. call is the name of
// the C function. For an invalid address it records a fault and returns an error code; otherwise
// the code is 0.
func (d *Driver) hostRange(call string, g *gpu, addr, n uint64) (hostSide, int32) {
	if addr == 0 || isDevice(addr) || addr>>48 != 0 {
		d.fault(Argument, "%s: %d bytes at %#x, which is no host memory", call, n, addr)
		return hostSide{}, errInvalidValue
	}
	h := hostSide{bytes: unsafe.Slice((*byte)(pointer(addr)), n)}
	i := d.pinnedAt(addr)
	if i == len(d.pinned) || d.pinned[i].base >= addr+n {
		return h, 0
	}
	p := d.pinned[i]
	if addr < p.base || addr+n > p.end() {
		d.fault(Argument, "%s: %d bytes of host memory at %#x are only in part in %s", call, n, addr, p.name)
		return hostSide{}, errInvalidValue
	}
	if p.only == nil || p.only == g {
		h.pinned, h.from = p, int64(addr-p.base)
	}
	return h, 0
}

// pointer returns a host address, which C passes as an integer, as a pointer.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
