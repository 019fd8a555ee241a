package ptx

import (
	"math/bits"
	"sync"
)

// globalCheck finds blocks of one launch that touch the same words of global
// memory, at least one of them writing.
type globalCheck struct {
	alone bool // the launch has one block, which no other one can race with
	mu    sync.Mutex
	cells map[*Buffer]*globalCells
}

// globalCells says, for each word, which block wrote it and which read it: the
// block's number plus one, 0 for none, many for several.
type globalCells struct{ write, read []uint32 }

const many = ^uint32(0)

// of returns what is known of the words of the buffer that s is in.
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

// number is the block's number plus one.
func (b *block) number() uint32 {
	g := b.launch.Grid
	return (b.ctaid[2]*g[1]+b.ctaid[1])*g[0] + b.ctaid[0] + 1
}

// skips says whether an access is not checked against other blocks. Accesses to a part of a word are
// left out, since two blocks that touch different parts of one word do not race.
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
		if off == last { // threads that read the same
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
