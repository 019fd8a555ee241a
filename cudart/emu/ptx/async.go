package ptx

import (
	"math/bits"
	"unsafe"
)

// The operations (inst.op) of famCopy, which executes cp.async: asynchronous copies from global to
// shared memory.
const (
	opCopyStart op = iota
	opCopyCommit
	opCopyWait // cp.async.wait_group: waits for all groups except the imm newest
	opCopyWaitAll
)

// copies holds a warp's pending cp.async. Hardware may copy their bytes at any time until the warp
// waits for them. The emulator copies them only when the warp waits, so that a missing wait gives
// wrong results.
type copies struct {
	group   uint32 // number of the open group
	pending []pendingCopy
}

// pendingCopy is one cp.async instruction of a warp whose bytes have not reached shared memory yet.
// It belongs to the group with number group. Each of the threads in mask copies size bytes.
type pendingCopy struct {
	group uint32
	mask  uint32
	size  uint8
	n     [32]uint8 // bytes that each thread reads; the rest of the size bytes becomes zeros
	to    [32]uint32
	from  [32]unsafe.Pointer
}

func (c *copies) reset() {
	c.group = 0
	c.pending = c.pending[:0]
}

// cp decodes the instructions cp.async.*: copies from global to shared memory, and the instructions
// that close a group of copies or wait for groups.
func (b *builder) cp(in *inst) {
	m := b.modifiers()
	in.fam = famCopy
	if !m.has("async") {
		b.unknown()
	}
	if m.has("bulk") {
		b.bulk(in, m)
		return
	}
	switch m.take("commit_group", "wait_group", "wait_all") {
	case "commit_group":
		in.op = opCopyCommit
		b.count(0)
	case "wait_group":
		b.count(1)
		n, ok := parseInteger(b.arg(0).name)
		if !ok || n < 0 {
			b.fail("wait_group takes a number")
		}
		in.op, in.imm = opCopyWait, n
	case "wait_all":
		in.op = opCopyWaitAll
		b.count(0)
	default:
		b.cpStart(in, &m)
	}
	b.done(m)
}

// cpStart decodes cp.async.ca|cg.shared.global [dst], [src], size[, srcSize].
func (b *builder) cpStart(in *inst, m *modifiers) {
	kind := m.take("ca", "cg")
	if m.take("shared", "shared::cta") == "" || !m.has("global") {
		b.unknown()
	}
	access(m)
	if len(b.st.args) != 4 {
		b.count(3)
	}
	var from inst
	b.address(&from, b.arg(1))
	if from.flags&flagNarrow != 0 {
		b.fail("a global address has 64 bits")
	}
	b.address(in, b.arg(0))
	size, ok := parseInteger(b.arg(2).name)
	if !ok || size != 16 && (kind != "ca" || size != 4 && size != 8) {
		b.fail("cp.async copies 4, 8 or 16 bytes, with .cg only 16")
	}
	in.op, in.size, in.b, in.imm32, in.space = opCopyStart, uint8(size), from.a, uint32(from.imm), spaceShared
	if int64(int32(from.imm)) != from.imm {
		b.unknown()
	}
	in.c = b.constant32(uint32(size))
	if len(b.st.args) == 4 {
		in.c = b.in(b.arg(3), "b32")
	}
	b.slot(in)
}

// copyAsync executes an instruction of famCopy (cp.async) for the threads of mask.
func (w *warp) copyAsync(in *inst, mask uint32) {
	if mask == 0 {
		return
	}
	if in.op != opCopyStart && mask != w.live {
		w.fail(in, bits.TrailingZeros32(w.live&^mask), "some threads of the warp commit or wait for copies without this one, which the emulator does not follow")
	}
	c := &w.async
	switch in.op {
	case opCopyStart:
		w.startCopy(in, mask)
	case opCopyCommit:
		c.group++
	case opCopyWait:
		w.land(int64(c.group) - in.imm)
	case opCopyWaitAll:
		c.group++
		w.land(int64(c.group))
	}
}

func (w *warp) startCopy(in *inst, mask uint32) {
	c := &w.async
	if len(c.pending) < cap(c.pending) {
		c.pending = c.pending[:len(c.pending)+1]
	} else {
		c.pending = append(c.pending, pendingCopy{})
	}
	p := &c.pending[len(c.pending)-1]
	p.group, p.mask, p.size = c.group, mask, in.size
	w.copySources(in, mask, p)
	_, hi, or := w.offsets(in, mask)
	if size := uint64(in.size); or&(size-1) != 0 {
		w.misaligned(in, mask, size)
	}
	w.sharedBounds(in, mask, hi, uint64(in.size))
	b := w.block
	b.writeShared(w, in, mask, uint32(in.size))
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		p.to[i] = uint32(w.addr[i])
		b.rows[w.addr[i]>>4] = row{}
		for j := range uint64(in.size / 4) {
			b.cells[w.addr[i]>>2+j].info |= cellPending
		}
	}
}

// copySources checks, for each thread of mask, that the global memory that its cp.async reads lies
// in a buffer. It stores the addresses in p.
func (w *warp) copySources(in *inst, mask uint32, p *pendingCopy) {
	a, n, imm := &w.r64[in.b], &w.r32[in.c], uint64(int64(int32(in.imm32)))
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		at := a[i] + imm
		w.addr[i] = at
		if n[i] > uint32(in.size) {
			w.fail(in, i, "cp.async of %d bytes out of %d", n[i], in.size)
		}
		p.n[i] = uint8(n[i])
		if n[i] == 0 {
			continue
		}
		if at&uint64(in.size-1) != 0 {
			w.misaligned(in, 1<<i, uint64(in.size))
		}
		to := at + uint64(n[i])
		s := w.find(in, 1<<i, at, to)
		p.from[i] = unsafe.Add(s.data, at-s.base)
		s.readFrom, s.readTo = min(s.readFrom, at-s.base), max(s.readTo, to-s.base)
		if w.block.global != nil {
			w.block.global.read(w, in, s, 1<<i, uint64(n[i]))
		}
	}
}

// land completes the copies of all groups with numbers below `before`: it writes their bytes to
// shared memory.
func (w *warp) land(before int64) {
	c := &w.async
	done := 0
	for done < len(c.pending) && int64(c.pending[done].group) < before {
		w.landOne(&c.pending[done])
		done++
	}
	if done == 0 {
		return
	}
	n := copy(c.pending, c.pending[done:])
	c.pending = c.pending[:n]
}

func (w *warp) landOne(p *pendingCopy) {
	b := w.block
	w.stored |= p.mask
	size := uint32(p.size)
	for m := p.mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		to := b.shared[p.to[i]:][:size]
		if n := uint32(p.n[i]); n == size {
			copy(to, unsafe.Slice((*byte)(p.from[i]), size))
		} else {
			clear(to)
			if n > 0 {
				copy(to, unsafe.Slice((*byte)(p.from[i]), n))
			}
		}
		for j := range size / 4 {
			cell := &b.cells[p.to[i]>>2+j]
			cell.write, cell.info = b.tick, 15|15<<cellLast|uint32(w.index)<<cellWarp
		}
	}
}
