package ptx

import (
	"math/bits"
	"sync"
	"unsafe"
)

// atomics is a lock around every atomic instruction and every strong access (volatile, relaxed, acquire, release)
// to global memory, in all launches. If block B observes such an access of block A, the lock also makes A's earlier
// writes visible to B.
var atomics sync.Mutex

// atom decodes atom and red on integers and floats.
func (b *builder) atom(in *inst) {
	m := b.modifiers()
	t := m.last()
	in.fam = famAtomic
	in.space = b.spaceWord(&m)
	access(&m)
	name := m.take("add", "min", "max", "and", "or", "xor", "exch", "cas")
	b.done(m)
	in.size, in.n, in.x = uint8(typeBytes(t)), 1, &extra{update: updates32(name, t)}
	if in.size != 4 || in.x.update == nil {
		b.unknown()
	}
	first := 0
	in.flags |= flagNoResult
	if b.st.words[0] == "atom" {
		in.d = b.out(b.arg(0), fileOf(t))
		first, in.flags = 1, in.flags&^flagNoResult
	}
	b.count(first + pick(name == "cas", 3, 2))
	b.address(in, b.arg(first))
	in.b = b.in(b.arg(first+1), t)
	in.c = in.b
	if name == "cas" {
		in.c = b.in(b.arg(first+2), t)
	}
	b.slot(in)
}

// updates32 returns the function that computes the new value of a 32-bit atomic instruction from the old value and
// the operands b and c. name is the operation and t its type. nil: the emulator does not know the instruction.
func updates32(name, t string) func(old, b, c uint32) uint32 {
	if t == "f32" {
		return map[string]func(old, b, c uint32) uint32{
			"add":  func(old, b, _ uint32) uint32 { return bits32(f32(old) + f32(b)) },
			"exch": func(_, b, _ uint32) uint32 { return b },
		}[name]
	}
	if name == "add" || name == "and" || name == "or" || name == "xor" {
		return map[string]func(old, b, c uint32) uint32{
			"add": func(old, b, _ uint32) uint32 { return old + b },
			"and": func(old, b, _ uint32) uint32 { return old & b },
			"or":  func(old, b, _ uint32) uint32 { return old | b },
			"xor": func(old, b, _ uint32) uint32 { return old ^ b },
		}[name]
	}
	return map[string]func(old, b, c uint32) uint32{
		"min":  pick(isSigned(t), rare[opMinS], rare[opMinU]),
		"max":  pick(isSigned(t), rare[opMaxS], rare[opMaxU]),
		"exch": func(_, b, _ uint32) uint32 { return b },
		"cas": func(old, b, c uint32) uint32 {
			if old == b {
				return c
			}
			return old
		},
	}[name]
}

// atomic executes atom and red, one thread at a time.
func (w *warp) atomic(in *inst, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		lo, hi, _ := w.offsets(in, 1<<i)
		bytes := uint64(in.size)
		if lo&(bytes-1) != 0 {
			w.misaligned(in, 1<<i, bytes)
		}
		where, lo, _ := w.spaceOf(in, lo, hi)
		switch where {
		case spaceShared:
			w.sharedBounds(in, 1<<i, w.addr[i], bytes)
			w.atomicShared(in, i)
			w.update(in, start(w.block.shared), w.addr[i], i)
		case spaceGlobal:
			s := w.find(in, 1<<i, lo, lo+bytes)
			if s.base >= constWindow {
				w.fail(in, i, "a store to constant memory")
			}
			at := lo - s.base
			s.readFrom, s.readTo = min(s.readFrom, at), max(s.readTo, at+bytes)
			s.writeFrom, s.writeTo = min(s.writeFrom, at), max(s.writeTo, at+bytes)
			if w.block.global != nil {
				w.block.atomicGlobal(w, in, s.buffer, i, at)
			}
			atomics.Lock()
			w.block.launch.idle = 0
			w.update(in, s.data, at, i)
			atomics.Unlock()
		default:
			w.fail(in, i, "an atomic instruction on memory that is neither global nor shared")
		}
	}
}

// atomicShared checks one thread's atomic access to shared memory for races. Atomic accesses of different warps do
// not race with each other.
func (w *warp) atomicShared(in *inst, lane int) {
	b := w.block
	if b.proxy != nil {
		b.proxy.readRows(w, in, 1<<lane, uint32(in.size))
		b.proxy.writeRows(w, in, 1<<lane, uint32(in.size))
	}
	for j := range uint64(in.size / 4) {
		c := &b.cells[w.addr[lane]>>2+j]
		if c.write >= b.full && c.info&cellAtomic != 0 && c.read < b.full {
			c.write, c.info = b.tick, c.info&^(31<<cellWarp)|uint32(w.index)<<cellWarp
			continue
		}
		if c.info&(cellPending|15) != 15 || c.write < b.began || c.write >= b.full {
			b.badRead(w, in, lane, c, 15, w.addr[lane]+4*j)
		}
		b.checkWrite(w, in, lane, c, 15, place{offset: w.addr[lane] + 4*j})
		c.write, c.info = b.tick, 15|15<<cellLast|uint32(w.index)<<cellWarp|cellAtomic
	}
}

func (w *warp) update(in *inst, p unsafe.Pointer, at uint64, lane int) {
	old := load32(p, at)
	store32(p, at, in.x.update(old, w.r32[in.b][lane], w.r32[in.c][lane]))
	if in.flags&flagNoResult == 0 {
		w.r32[in.d][lane] = old
	}
}
