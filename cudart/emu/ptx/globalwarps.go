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
	if b.pageAt != (pageOf{buffer, word / pageWords}) {
		b.turnTo(pageOf{buffer, word / pageWords})
	}
	return &b.page[word%pageWords]
}

// turnTo makes page the page of that name, a new one where there is none.
func (b *block) turnTo(at pageOf) {
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
	b.page, b.pageAt = p, at
}

// forgetPages drops the references to the buffers that a launch used.
func (b *block) forgetPages() {
	for _, p := range b.pages {
		if len(b.sparePages) < sparePages {
			b.sparePages = append(b.sparePages, p)
		}
	}
	clear(b.pages)
	b.page, b.pageAt = nil, pageOf{}
}

// checked says whether accesses of in are checked against other warps.
func checked(in *inst, s *slot) bool { return s.base < constWindow && in.flags&flagStrong == 0 }

// readGlobal checks a read against the writes of other warps, and notes it.
func (b *block) readGlobal(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	if !checked(in, s) {
		return
	}
	me, last := uint32(1)<<w.index, ^uint64(0)
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		if off == last { // threads that read the same
			continue
		}
		last = off
		p := uint32(15)
		if bytes < 4 {
			p = part(off, uint32(bytes))
		}
		for at := off; at < off+bytes; at += 4 {
			c := b.cellAt(s.buffer, at/4)
			if c.write >= b.full && c.info>>cellLast&p != 0 {
				b.orderedRead(w, in, lane, c, place{s.buffer, at})
			}
			if c.read != b.tick || c.readers != me || c.info>>cellRead&p != p {
				b.noteRead(w, c, p)
			}
		}
	}
}

// writeGlobal checks a write against what other warps did, and notes it.
func (b *block) writeGlobal(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	if !checked(in, s) {
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		p := uint32(15)
		if bytes < 4 {
			p = part(off, uint32(bytes))
		}
		for at := off; at < off+bytes; at += 4 {
			c := b.cellAt(s.buffer, at/4)
			b.checkWrite(w, in, lane, c, p, place{s.buffer, at})
			b.note(w, c, p, 0)
		}
	}
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
