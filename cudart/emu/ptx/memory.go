package ptx

import (
	"math/bits"
	"runtime"
	"unsafe"
)

// eachLane calls f for every thread of mask, in order.
func eachLane(mask uint32, f func(i int)) {
	for ; mask != 0; mask &= mask - 1 {
		f(bits.TrailingZeros32(mask) & 31)
	}
}

// slot belongs to one memory instruction of a block. It caches the buffer that the instruction accessed last. It
// also records the ranges of offsets that the instruction has read and written there.
type slot struct {
	base, size         uint64
	data               unsafe.Pointer
	buffer             *Buffer
	readFrom, readTo   uint64
	writeFrom, writeTo uint64
	known              *globalCells // cells of the buffer; nil: not looked up yet
}

func (s *slot) reset() { *s = slot{readFrom: ^uint64(0), writeFrom: ^uint64(0)} }

// offsets computes the address that every thread accesses, and writes it to w.addr. Over the
// threads in mask it returns the lowest (lo) and highest (hi) address, and the bitwise or of all,
// which shows whether all are aligned.
func (w *warp) offsets(in *inst, mask uint32) (lo, hi, or uint64) {
	off, imm := &w.addr, uint64(in.imm)
	if in.flags&flagNarrow != 0 {
		lo = ^uint64(0)
		b := &w.bounds
		offsets32(off, &w.r32[in.a], uint32(imm), b)
		for j := range 8 {
			lo, hi, or = min(lo, uint64(b[0][j])), max(hi, uint64(b[1][j])), or|uint64(b[2][j])
		}
	} else {
		b := &w.bounds64
		offsets64(off, &w.r64[in.a], imm, b)
		lo, hi = b[0][0], b[1][0]
		for j := range 4 {
			lo, hi = uint64(min(int64(lo), int64(b[0][j]))), uint64(max(int64(hi), int64(b[1][j])))
			or |= b[2][j]
		}
	}
	if mask == full {
		return lo, hi, or
	}
	lo, hi, or = ^uint64(0), 0, 0
	for m := mask; m != 0; m &= m - 1 {
		v := off[bits.TrailingZeros32(m)&31]
		lo, hi, or = min(lo, v), max(hi, v), or|v
	}
	return lo, hi, or
}

// load executes ld, a load from any state space, for the threads of mask.
func (w *warp) load(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	lo, hi, or := w.offsets(in, mask)
	bytes := uint64(in.size) * uint64(in.n)
	if or&(bytes-1) != 0 {
		w.misaligned(in, mask, bytes)
	}
	where, lo, hi := w.spaceOf(in, lo, hi)
	switch where {
	case spaceGlobal:
		w.loadGlobal(in, mask, lo, hi, bytes)
	case spaceShared:
		w.sharedBounds(in, mask, hi, bytes)
		w.block.readShared(w, in, mask, uint32(bytes))
		w.gather(in, start(w.block.shared), &w.addr, mask)
	case spaceParam:
		if hi+bytes > uint64(len(w.block.params)) {
			w.fail(in, w.laneOf(mask, hi), "parameter offset %d of %d bytes", hi, len(w.block.params))
		}
		w.gather(in, start(w.block.params), &w.addr, mask)
	case spaceLocal:
		w.localOffsets(in, mask, hi, bytes)
		w.gather(in, start(w.local), &w.addr, mask)
	default:
		w.split(in, mask, w.load)
	}
}

// store executes st, a store to any state space, for the threads of mask.
func (w *warp) store(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	lo, hi, or := w.offsets(in, mask)
	bytes := uint64(in.size) * uint64(in.n)
	if or&(bytes-1) != 0 {
		w.misaligned(in, mask, bytes)
	}
	where, lo, hi := w.spaceOf(in, lo, hi)
	switch where {
	case spaceGlobal:
		w.storeGlobal(in, mask, lo, hi, bytes)
	case spaceShared:
		w.sharedBounds(in, mask, hi, bytes)
		w.block.writeShared(w, in, mask, uint32(bytes))
		w.scatter(in, start(w.block.shared), &w.addr, mask)
	case spaceLocal:
		w.localOffsets(in, mask, hi, bytes)
		w.scatter(in, start(w.local), &w.addr, mask)
	case spaceParam:
		w.fail(in, bits.TrailingZeros32(mask), "a store to parameters")
	default:
		w.split(in, mask, w.store)
	}
}

// spaceOf returns the state space of an instruction's addresses. It converts generic addresses
// (w.addr, lo, hi) to addresses of that space. It returns spaceGeneric if the addresses lie in
// several spaces.
func (w *warp) spaceOf(in *inst, lo, hi uint64) (space, uint64, uint64) {
	if in.space != spaceGeneric {
		return in.space, lo, hi
	}
	if lo>>56 != hi>>56 {
		return spaceGeneric, lo, hi
	}
	s := spaceGlobal
	switch lo >> 56 << 56 {
	case sharedWindow:
		s = spaceShared
	case localWindow:
		s = spaceLocal
	default:
		return s, lo, hi
	}
	for i := range w.addr {
		w.addr[i] &= 1<<56 - 1
	}
	return s, lo & (1<<56 - 1), hi & (1<<56 - 1)
}

// split executes a memory access thread by thread: it calls `do` with a mask of each single thread.
// It is for warps whose threads access different buffers or spaces.
func (w *warp) split(in *inst, mask uint32, do func(*inst, uint32)) {
	for m := mask; m != 0; m &= m - 1 {
		do(in, m&-m)
	}
}

// inVain is the number of strong loads (volatile, relaxed, acquire) of global memory after which a launch counts as
// hung, if no atomic instruction comes in between. Blocks of a correct kernel that wait for each other need far
// fewer.
var inVain = 1 << 24

func (w *warp) loadGlobal(in *inst, mask uint32, lo, hi, bytes uint64) {
	s := w.find(in, mask, lo, hi+bytes)
	if s == nil {
		w.split(in, mask, w.load)
		return
	}
	s.readFrom, s.readTo = min(s.readFrom, lo-s.base), max(s.readTo, hi+bytes-s.base)
	if w.block.global != nil {
		w.block.global.read(w, in, s, mask, bytes)
	}
	for i := range w.addr {
		w.addr[i] -= s.base
	}
	if in.flags&flagStrong != 0 {
		runtime.Gosched() // another goroutine may run the block that the warp waits for
		atomics.Lock()
		defer atomics.Unlock()
		if w.block.launch.idle++; w.block.launch.idle > inVain {
			w.fail(in, bits.TrailingZeros32(mask), "waits for %s to change, and no block of the launch has executed an atomic instruction for %d such loads", s.buffer.Name, inVain)
		}
	}
	w.gather(in, s.data, &w.addr, mask)
}

func (w *warp) storeGlobal(in *inst, mask uint32, lo, hi, bytes uint64) {
	s := w.find(in, mask, lo, hi+bytes)
	if s == nil {
		w.split(in, mask, w.store)
		return
	}
	if s.base >= constWindow {
		w.fail(in, bits.TrailingZeros32(mask), "a store to constant memory")
	}
	s.writeFrom, s.writeTo = min(s.writeFrom, lo-s.base), max(s.writeTo, hi+bytes-s.base)
	if w.block.global != nil {
		w.block.global.write(w, in, s, mask, bytes)
	}
	for i := range w.addr {
		w.addr[i] -= s.base
	}
	if in.flags&flagStrong != 0 {
		atomics.Lock()
		defer atomics.Unlock()
	}
	w.scatter(in, s.data, &w.addr, mask)
}

// find returns the slot of instruction in, set to the buffer that holds all of [from, to). It
// returns nil if the threads of mask access several buffers. The launch fails if a thread's access
// lies in no buffer.
func (w *warp) find(in *inst, mask uint32, from, to uint64) *slot {
	s := &w.block.slots[in.slot]
	if from-s.base < s.size && to-s.base <= s.size {
		return s
	}
	b := w.block.find(from)
	inside := b != nil && from-b.Base < uint64(len(b.Data))
	if inside && to-b.Base <= uint64(len(b.Data)) && to > from {
		w.block.keep(s)
		s.base, s.size, s.data, s.buffer = b.Base, uint64(len(b.Data)), start(b.Data), b
		return s
	}
	if mask&(mask-1) != 0 {
		return nil
	}
	lane := bits.TrailingZeros32(mask)
	if !inside {
		w.fail(in, lane, "address %#x is in no allocation%s", from, w.block.near(from))
	}
	w.fail(in, lane, "%d bytes at offset %d of %s, which has %d", to-from, from-b.Base, b.Name, len(b.Data))
	return nil
}

// misaligned fails the launch, for the first thread of mask whose address is not a multiple of
// bytes.
func (w *warp) misaligned(in *inst, mask uint32, bytes uint64) {
	for m := mask; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); w.addr[i]&(bytes-1) != 0 {
			w.fail(in, i, "address %#x is not a multiple of %d", w.addr[i], bytes)
		}
	}
}

// laneOf returns the first thread of mask that accesses the address a, for an error message. It
// returns 0 if none does.
func (w *warp) laneOf(mask uint32, a uint64) int {
	for m := mask; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); w.addr[i] == a {
			return i
		}
	}
	return 0
}

// localOffsets converts the offsets in w.addr from each thread's own local memory to the warp's local memory, in
// which the threads' parts follow each other. hi is the highest offset.
func (w *warp) localOffsets(in *inst, mask uint32, hi, bytes uint64) {
	size := uint64(w.kernel.local)
	if hi+bytes > size {
		w.fail(in, w.laneOf(mask, hi), "offset %d of %d bytes of local memory", hi, size)
	}
	for i := range w.addr {
		w.addr[i] += uint64(i) * size
	}
}

// The functions below are the only code that accesses memory by address. Their callers have checked the offsets. PTX
// memory is little-endian, as is every platform of this module.

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func load8(p unsafe.Pointer, off uint64) uint32  { return uint32(*(*uint8)(unsafe.Add(p, off))) }
func load16(p unsafe.Pointer, off uint64) uint32 { return uint32(*(*uint16)(unsafe.Add(p, off))) }
func load32(p unsafe.Pointer, off uint64) uint32 { return *(*uint32)(unsafe.Add(p, off)) }
func load64(p unsafe.Pointer, off uint64) uint64 { return *(*uint64)(unsafe.Add(p, off)) }

func store8(p unsafe.Pointer, off uint64, v uint32)  { *(*uint8)(unsafe.Add(p, off)) = uint8(v) }
func store16(p unsafe.Pointer, off uint64, v uint32) { *(*uint16)(unsafe.Add(p, off)) = uint16(v) }
func store32(p unsafe.Pointer, off uint64, v uint32) { *(*uint32)(unsafe.Add(p, off)) = v }
func store64(p unsafe.Pointer, off uint64, v uint64) { *(*uint64)(unsafe.Add(p, off)) = v }

// loadAny reads size bytes at p + off and extends them to 64 bits, with their sign if signed is set, otherwise with
// zeros.
func loadAny(p unsafe.Pointer, off uint64, size uint8, signed bool) uint64 {
	switch size {
	case 1:
		if signed {
			return uint64(int64(int8(load8(p, off))))
		}
		return uint64(load8(p, off))
	case 2:
		if signed {
			return uint64(int64(int16(load16(p, off))))
		}
		return uint64(load16(p, off))
	case 4:
		if signed {
			return uint64(int64(int32(load32(p, off))))
		}
		return uint64(load32(p, off))
	}
	return load64(p, off)
}

func storeAny(p unsafe.Pointer, off uint64, size uint8, v uint64) {
	switch size {
	case 1:
		store8(p, off, uint32(v))
	case 2:
		store16(p, off, uint32(v))
	case 4:
		store32(p, off, uint32(v))
	default:
		store64(p, off, v)
	}
}

// gather executes a load. For every thread of mask, the element or vector of elements at the
// thread's offset in off goes to the instruction's registers. The memory begins at p.
func (w *warp) gather(in *inst, p unsafe.Pointer, off *lanes64, mask uint32) {
	if in.size == 4 && in.flags&flagWide == 0 {
		w.gather32(in, p, off, mask)
		return
	}
	if in.size == 8 {
		for j := range in.n {
			d := &w.r64[in.v[j&3]]
			eachLane(mask, func(i int) { d[i] = load64(p, off[i]+8*uint64(j)) })
		}
		return
	}
	if in.size == 2 && in.n == 1 && in.flags&(flagWide|flagSigned) == 0 && mask == full {
		d := &w.r32[in.v[0]]
		for i := range d {
			d[i] = load16(p, off[i])
		}
		return
	}
	for j := range in.n {
		r, at := in.v[j&3], uint64(j)*uint64(in.size)
		eachLane(mask, func(i int) {
			v := loadAny(p, off[i]+at, in.size, in.flags&flagSigned != 0)
			switch {
			case in.flags&flagWide != 0:
				w.r64[r][i] = v
			case in.imm32 != 0:
				w.r32[r][i] = uint32(v) & in.imm32
			default:
				w.r32[r][i] = uint32(v)
			}
		})
	}
}

// gather32 is gather for 32-bit elements.
func (w *warp) gather32(in *inst, p unsafe.Pointer, off *lanes64, mask uint32) {
	if mask != full {
		for j := range in.n {
			d, at := &w.r32[in.v[j&3]], 4*uint64(j)
			eachLane(mask, func(i int) { d[i] = load32(p, off[i]+at) })
		}
		return
	}
	switch in.n {
	case 1:
		d := &w.r32[in.v[0]]
		for i := range d {
			d[i] = load32(p, off[i])
		}
	case 2:
		d0, d1 := &w.r32[in.v[0]], &w.r32[in.v[1]]
		for i := range d0 {
			v := load64(p, off[i])
			d0[i], d1[i] = uint32(v), uint32(v>>32)
		}
	case 4:
		d0, d1, d2, d3 := &w.r32[in.v[0]], &w.r32[in.v[1]], &w.r32[in.v[2]], &w.r32[in.v[3]]
		for i := range d0 {
			u, v := load64(p, off[i]), load64(p, off[i]+8)
			d0[i], d1[i], d2[i], d3[i] = uint32(u), uint32(u>>32), uint32(v), uint32(v>>32)
		}
	}
}

// scatter executes a store. For every thread of mask, the element or vector in the instruction's
// registers goes to the thread's offset in off. The memory begins at p.
func (w *warp) scatter(in *inst, p unsafe.Pointer, off *lanes64, mask uint32) {
	switch {
	case in.size == 8 || in.flags&flagWide != 0:
		for j := range in.n {
			s, at := &w.r64[in.v[j&3]], uint64(j)*uint64(in.size)
			eachLane(mask, func(i int) { storeAny(p, off[i]+at, in.size, s[i]) })
		}
	case in.size == 4 && mask == full:
		for j := range in.n {
			s, at := &w.r32[in.v[j&3]], 4*uint64(j)
			for i := range s {
				store32(p, off[i]+at, s[i])
			}
		}
	default:
		for j := range in.n {
			s, at := &w.r32[in.v[j&3]], uint64(j)*uint64(in.size)
			eachLane(mask, func(i int) { storeAny(p, off[i]+at, in.size, uint64(s[i])) })
		}
	}
}
