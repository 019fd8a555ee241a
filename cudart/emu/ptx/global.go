package ptx

import (
	"math/bits"
	"sync"
)

// globalCheck finds races between blocks: two blocks of a launch access the same word of global memory, and at least
// one of them writes it.
type globalCheck struct {
	alone bool // the launch has a single block, so no blocks can race
	mu    sync.Mutex
	cells map[*Buffer]*globalCells
}

// globalCells records the writer and the reader of each 4-byte word of a buffer. An entry is a
// block number plus one; 0: no block; many: several blocks.
type globalCells struct{ write, read []uint32 }

const many = ^uint32(0)

// of returns the globalCells of the buffer that slot s points to, and makes them on first use.
func (g *globalCheck) of(s *slot) *globalCells {
	if s.known != nil {
		return s.known
	}
	c := g.cells[s.buffer]
	if c == nil {
		n := (len(s.buffer.Data) + 3) / 4
		c = &globalCells{make([]uint32, n), make([]uint32, n)}
		g.cells[s.buffer] = c
	}
	s.known = c
	return c
}

// number returns the number of the block in the grid plus one.
func (b *block) number() uint32 {
	g := b.launch.Grid
	return (b.ctaid[2]*g[1]+b.ctaid[1])*g[0] + b.ctaid[0] + 1
}

// skips reports whether an access through slot s is exempt from the check for races between blocks. An access
// narrower than a word is exempt: cells cover whole words, and two blocks that touch different bytes of a word do
// not race. Constants are exempt too.
func (g *globalCheck) skips(s *slot, bytes uint64) bool {
	return g.alone || bytes < 4 || s.base >= constWindow
}

func (g *globalCheck) read(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	w.block.readGlobal(w, in, s, mask, bytes)
	if g.skips(s, bytes) {
		return
	}
	me := w.block.number()
	g.mu.Lock()
	defer g.mu.Unlock()
	c, last := g.of(s), ^uint64(0)
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		if off == last { // threads that read the same word
			continue
		}
		last = off
		for word := off / 4; word < (off+bytes)/4; word++ {
			if by := c.write[word]; by != 0 && by != me {
				w.fail(in, lane, "%s at offset %d is read, and block %d of the same launch writes it", s.buffer.Name, 4*word, by-1)
			}
			if r := &c.read[word]; *r == 0 {
				*r = me
			} else if *r != me {
				*r = many
			}
		}
	}
}

func (g *globalCheck) write(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	w.block.writeGlobal(w, in, s, mask, bytes)
	if g.skips(s, bytes) {
		return
	}
	me := w.block.number()
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(s)
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		for word := off / 4; word < (off+bytes)/4; word++ {
			if by := c.write[word]; by != 0 && by != me {
				w.fail(in, lane, "%s at offset %d is written, and block %d of the same launch writes it too", s.buffer.Name, 4*word, by-1)
			}
			if by := c.read[word]; by != 0 && by != me {
				w.fail(in, lane, "%s at offset %d is written, and another block of the same launch reads it", s.buffer.Name, 4*word)
			}
			c.write[word] = me
		}
	}
}

// The functions below find races between warps of one block in global memory, as shared.go does in
// shared memory. A race is two accesses to the same bytes by different warps, at least one a write,
// without a barrier in between. Threads of one warp are not distinguished. Strong accesses
// (volatile, relaxed, acquire, release) are exempt, because warps synchronize through them.
//
// A cell holds the access history of one word. A block has cells, in pages, only for the parts of
// memory that it accesses.

// pageWords is the number of words per page.
const pageWords = 1024

// sparePages is the number of pages, of 16 KiB each, that a block keeps for its next launch. Their cells need not
// be cleared: their ticks lie before the next launch, so they count as no access.
const sparePages = 64

type page [pageWords]cell

// pageOf identifies a page: page n of a buffer.
type pageOf struct {
	buffer *Buffer
	n      uint64
}

// cellAt returns the cell of a word of global memory.
func (b *block) cellAt(buffer *Buffer, word uint64) *cell {
	if b.pageAt != (pageOf{buffer, word / pageWords}) {
		b.turnTo(pageOf{buffer, word / pageWords})
	}
	return &b.page[word%pageWords]
}

// turnTo makes at the current page, b.page, whose cells cellAt uses. If the block has no such page
// yet, it creates one.
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

// forgetPages ends the use of a launch's pages, so that its buffers can be freed. It keeps some pages for the next
// launch.
func (b *block) forgetPages() {
	for _, p := range b.pages {
		if len(b.sparePages) < sparePages {
			b.sparePages = append(b.sparePages, p)
		}
	}
	clear(b.pages)
	b.page, b.pageAt = nil, pageOf{}
}

// checked reports whether an access of in through slot s takes part in the check for races between warps.
func checked(in *inst, s *slot) bool { return s.base < constWindow && in.flags&flagStrong == 0 }

// readGlobal checks that the reads of the threads of mask, bytes bytes each, do not race with writes of other
// warps, and records the reads.
func (b *block) readGlobal(w *warp, in *inst, s *slot, mask uint32, bytes uint64) {
	if !checked(in, s) {
		return
	}
	me, last := uint32(1)<<w.index, ^uint64(0)
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		off := w.addr[lane] - s.base
		if off == last { // threads that read the same word
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

// writeGlobal checks that the writes of the threads of mask, bytes bytes each, do not race with accesses of other
// warps, and records the writes.
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

// atomicGlobal checks an atomic access to global memory. Atomic accesses of different warps do not race with each
// other.
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
