package ptx

import "unsafe"

// This file is the only place that reads and writes memory by address; offsets have
// been checked before. PTX memory is little-endian, as is every platform that this
// module runs on.

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func load8(p unsafe.Pointer, off uint64) uint32  { return uint32(*(*uint8)(unsafe.Add(p, off))) }
func load16(p unsafe.Pointer, off uint64) uint32 { return uint32(*(*uint16)(unsafe.Add(p, off))) }
func load32(p unsafe.Pointer, off uint64) uint32 { return *(*uint32)(unsafe.Add(p, off)) }
func load64(p unsafe.Pointer, off uint64) uint64 { return *(*uint64)(unsafe.Add(p, off)) }

func store8(p unsafe.Pointer, off uint64, v uint32)  { *(*uint8)(unsafe.Add(p, off)) = uint8(v) }
func store16(p unsafe.Pointer, off uint64, v uint32) { *(*uint16)(unsafe.Add(p, off)) = uint16(v) }
func store32(p unsafe.Pointer, off uint64, v uint32) { *(*uint32)(unsafe.Add(p, off)) = v }
func store64(p unsafe.Pointer, off uint64, v uint64) { *(*uint64)(unsafe.Add(p, off)) = v }

// loadAny reads size bytes at off and extends them, with their sign or with zeros.
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

// gather reads an element, or a vector of elements, for every thread of mask, at
// its offset in off.
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

// gather32 is gather of 32-bit elements.
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

// scatter writes an element, or a vector of elements, of every thread of mask, at
// its offset in off.
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
