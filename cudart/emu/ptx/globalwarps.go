package ptx

import "math/bits"

// Warps of one block race in global memory as they do in shared memory: they touch
// the same bytes, at least one of them writes, and there is no barrier between
// them. A cell has what is known of a word; a block keeps pages of cells for the
// words it touches. Threads of one warp are not told apart. Accesses that are
// strong (volatile, relaxed, acquire, release) are left out, because warps wait for
// each other by them.

// pageWords is how many words a page has.
const pageWords = 1024

// sparePages is how many pages, of 16 KiB each, a block keeps for its next launch.
// Their cells are of earlier ticks, and so say nothing about that launch.
const sparePages = 64

type page [pageWords]cell

// pageOf names a page: page n of a buffer.
type pageOf struct {
	buffer *Buffer
	n      uint64
}

// cellAt is the cell of a word of global memory.
func (b *block) cellAt(buffer *Buffer, word uint64) *cell {
	at := pageOf{buffer, word / pageWords}
	p := b.pages[at]
	if p == nil {
		if b.pages == nil {
			b.pages = map[pageOf]*page{}
		}
		if n := len(b.sparePages); n > 0 {
			p, b.sparePages = b.sparePages[n-1], b.sparePages[:n-1]
		} else {
			p = new(page)
		}
		b.pages[at] = p
	}
	return &p[word%pageWords]
}

// forgetPages drops the references to the buffers that a launch used.
func (b *block) forgetPages() {
	for _, p := range b.pages {
		if len(b.sparePages) < sparePages {
			b.sparePages = append(b.sparePages, p)
		}
	}
	clear(b.pages)
}

// eachWord calls f for every word of global memory that the threads of mask touch,
// with the bytes of the word that they touch.
func (b *block) eachWord(w *warp, in *inst, s *slot, mask uint32, bytes uint64, f func(lane int, c *cell, part uint32, at place)) {
	if s.base >= constWindow || in.flags&flagStrong != 0 {
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		if bytes < 4 {
			f(lane, b.cellAt(s.buffer, off/4), part(off, uint32(bytes)), place{s.buffer, off})
			continue
		}
		for at := off; at < off+bytes; at += 4 {
			f(lane, b.cellAt(s.buffer, at/4), 15, place{s.buffer, at})
		}
	}
}

// readGlobal checks a read against the writes of other warps, and notes it.
func (b *block) readGlobal(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	b.eachWord(w, in, s, mask, bytes, func(lane int, c *cell, part uint32, at place) {
		if c.write >= b.full && c.info>>cellLast&part != 0 {
			b.orderedRead(w, in, lane, c, at)
		}
		b.noteRead(w, c, part)
	})
}

// writeGlobal checks a write against what other warps did, and notes it.
func (b *block) writeGlobal(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	b.eachWord(w, in, s, mask, bytes, func(lane int, c *cell, part uint32, at place) {
		b.checkWrite(w, in, lane, c, part, at)
		b.note(w, c, part, 0)
	})
}

// atomicGlobal checks a read and a write of global memory. Atomic instructions of
// different warps do not race with each other.
func (b *block) atomicGlobal(w *warp, in *inst, buffer *Buffer, lane int, offset uint64) {
	for at := offset; at < offset+uint64(in.size); at += 4 {
		c, where := b.cellAt(buffer, at/4), place{buffer, at}
		if c.write < b.full || c.info&cellAtomic == 0 || c.read >= b.full {
			if c.write >= b.full {
				b.orderedRead(w, in, lane, c, where)
			}
			b.checkWrite(w, in, lane, c, 15, where)
		}
		c.write, c.info = b.tick, 15|15<<cellLast|uint32(w.index)<<cellWarp|cellAtomic
	}
}
