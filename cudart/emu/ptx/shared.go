package ptx

import (
	"fmt"
	"math/bits"
)

// cell is the access history of one word of shared or global memory. Its times are ticks of the block: every barrier
// release starts a new tick. Ticks count on from block to block, so accesses of earlier blocks count as never made.
type cell struct {
	write   uint32 // tick of the last write
	read    uint32 // tick of the last read
	readers uint32 // mask of the warps that read at this tick
	info    uint32
}

// The parts of cell.info: a position for a part of several bits, a mask for a single bit. Bytes are
// those of the cell's 4-byte word.
const (
	cellInit    = 0       // 4 bits: bytes written in this block
	cellLast    = 4       // 4 bits: bytes of the last write
	cellWarp    = 8       // 5 bits: the warp that wrote last
	cellPending = 1 << 13 // an unfinished cp.async writes the word
	cellRead    = 14      // 4 bits: bytes read at the tick of cell.read
	cellAtomic  = 1 << 18 // the last write was atomic
	cellParts   = 1 << 19 // several warps read different bytes at the tick of cell.read
)

// row is a cache that speeds up the check of reads. The warps in readers have already read all 16
// bytes of this row of shared memory in the given tick, without an error.
type row struct{ tick, readers uint32 }

// sharedBounds checks that an access lies inside the block's shared memory.
func (w *warp) sharedBounds(in *inst, mask uint32, hi, bytes uint64) {
	size := uint64(len(w.block.shared))
	if hi+bytes > size || hi+bytes < hi {
		w.fail(in, w.laneOf(mask, hi), "%d bytes at offset %d of the block's %d bytes of shared memory", bytes, hi, size)
	}
}

// part returns a mask of the bytes of a word that an access of bytes bytes (below 4) at offset off touches.
func part(off uint64, bytes uint32) uint32 { return (1<<bytes - 1) << (off & 3) }

// readShared checks the reads of shared memory by the threads of mask, bytes bytes each, for races, and records
// them.
func (b *block) readShared(w *warp, in *inst, mask, bytes uint32) {
	cells, me := b.cells, uint32(1)<<w.index
	tick, began, age, index := b.tick, b.began, b.full-b.began, uint32(w.index)
	last := ^uint64(0)
	if b.proxy != nil {
		b.proxy.readRows(w, in, mask, bytes)
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		off := w.addr[i]
		if off == last { // threads that read the same word
			continue
		}
		last = off
		if bytes < 4 {
			b.readPart(w, in, i, &cells[off>>2], part(off, bytes))
			continue
		}
		if bytes == 16 {
			r := &b.rows[off>>4]
			if r.tick != tick {
				*r = row{tick: tick}
			} else if r.readers&me != 0 {
				continue
			}
			r.readers |= me
		}
		words := cells[off>>2:][:bytes>>2]
		for j := range words {
			c := &words[j]
			info := c.info
			if info&(cellPending|15) != 15 || c.write-began >= age && (c.write < began || info>>cellWarp&31 != index) {
				b.badRead(w, in, i, c, 15, off+4*uint64(j))
			}
			if c.read != tick {
				c.read, c.readers, c.info = tick, me, info&^cellParts|15<<cellRead
			} else if c.readers&me == 0 || info>>cellRead&15 != 15 {
				c.readers |= me
				c.info = info | 15<<cellRead
			}
		}
	}
}

// readPart is the check of readShared for one thread that reads only a part of the word of cell c.
// bytes is a mask of the bytes.
func (b *block) readPart(w *warp, in *inst, lane int, c *cell, bytes uint32) {
	if c.info&cellPending != 0 || c.info&bytes != bytes || c.write-b.began >= b.full-b.began &&
		(c.write < b.began || c.info>>cellWarp&31 != uint32(w.index) && c.info>>cellLast&bytes != 0) {
		b.badRead(w, in, lane, c, bytes, w.addr[lane])
	}
	b.noteRead(w, c, bytes)
}

// noteRead records in cell c that warp w reads the word's bytes in the mask bytes.
func (b *block) noteRead(w *warp, c *cell, bytes uint32) {
	me := uint32(1) << w.index
	if c.read != b.tick {
		c.read, c.readers = b.tick, me
		c.info = c.info&^(15<<cellRead|cellParts) | bytes<<cellRead
		return
	}
	if c.readers != me && c.info>>cellRead&15 != bytes {
		c.info |= cellParts
	}
	c.readers |= me
	c.info |= bytes << cellRead
}

// badRead examines a read of shared memory that the quick checks did not accept. It fails in these
// cases:
//
//   - a cp.async still writes the bytes
//   - no thread has written the bytes
//   - no barrier orders the write before this warp's read
//
// Otherwise it returns, and the read is accepted: a barrier of only some of the block's threads
// orders the write before the read, which the quick checks do not see.
func (b *block) badRead(w *warp, in *inst, lane int, c *cell, bytes uint32, off uint64) {
	switch {
	case c.info&cellPending != 0 && c.write >= b.began:
		w.fail(in, lane, "shared memory at offset %d is read while a cp.async writes it: wait_group is missing", off)
	case c.write < b.began || c.info&bytes != bytes:
		w.fail(in, lane, "shared memory at offset %d is read and nothing wrote it", off)
	}
	b.orderedRead(w, in, lane, c, place{offset: off})
}

// orderedRead fails unless the last write of the word of cell c is ordered before this warp's read.
// `at` says where the word lies, for the error.
func (b *block) orderedRead(w *warp, in *inst, lane int, c *cell, at place) {
	if writer := int(c.info >> cellWarp & 31); writer != w.index && !b.ordered(writer, c.write, w.index) {
		w.fail(in, lane, "%s is read without a barrier after warp %d wrote it", at, writer)
	}
}

// place is the position of a byte, for errors: in a buffer of global memory, or in shared memory if
// buffer is nil.
type place struct {
	buffer *Buffer
	offset uint64
}

func (p place) String() string {
	if p.buffer == nil {
		return fmt.Sprintf("shared memory at offset %d", p.offset)
	}
	return fmt.Sprintf("%s at offset %d", p.buffer.Name, p.offset)
}

// ordered reports whether barriers order the accesses that warp from made at a tick before the next
// instruction of warp to.
func (b *block) ordered(from int, tick uint32, to int) bool {
	return tick < b.full || tick < b.seen[to][from]
}

// writeShared checks the writes to shared memory by the threads of mask, bytes bytes each, for races, and records
// them.
func (b *block) writeShared(w *warp, in *inst, mask, bytes uint32) {
	cells := b.cells
	me := uint32(w.index) << cellWarp
	if b.proxy != nil {
		b.proxy.writeRows(w, in, mask, bytes)
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		off := w.addr[i]
		if bytes < 4 {
			p := part(off, bytes)
			b.checkWrite(w, in, i, &cells[off>>2], p, place{offset: off})
			b.note(w, &cells[off>>2], p, 0)
			continue
		}
		for j := range uint64(bytes >> 2) {
			c := &cells[off>>2+j]
			if c.write >= b.full || c.read >= b.full || c.info&cellPending != 0 {
				b.checkWrite(w, in, i, c, 15, place{offset: off + 4*j})
			}
			c.write, c.info = b.tick, 15|15<<cellLast|me
		}
	}
}

// note records in cell c that warp w writes the word's bytes in the mask bytes. flags are further fields of
// cell.info to set; 0: none.
func (b *block) note(w *warp, c *cell, bytes, flags uint32) {
	known, me := uint32(0), uint32(w.index)
	if c.write >= b.began {
		known = c.info & 15
	}
	if c.write == b.tick && c.info>>cellWarp&31 == me && c.info&cellAtomic == flags&cellAtomic { // other bytes of the same write
		bytes |= c.info >> cellLast & 15
	}
	c.write = b.tick
	c.info = known | bytes | bytes<<cellLast | me<<cellWarp | c.info&(15<<cellRead|cellParts) | flags
}

// checkWrite fails if another warp has accessed the word's bytes in the mask bytes, and nothing orders that access
// before this write.
func (b *block) checkWrite(w *warp, in *inst, lane int, c *cell, bytes uint32, at place) {
	if c.write >= b.began && c.info&cellPending != 0 {
		w.fail(in, lane, "%s is written while a cp.async writes it", at)
	}
	if c.write < b.began {
		c.info &= cellParts | 15<<cellRead
	}
	writer := int(c.info >> cellWarp & 31)
	if c.write >= b.began && writer != w.index && c.info>>cellLast&bytes != 0 && !b.ordered(writer, c.write, w.index) {
		w.fail(in, lane, "%s is written without a barrier after warp %d wrote it", at, writer)
	}
	others := c.readers &^ (1 << w.index)
	if c.read < b.full || others == 0 || c.info&cellParts != 0 || c.info>>cellRead&bytes == 0 {
		return
	}
	for ; others != 0; others &= others - 1 {
		if reader := bits.TrailingZeros32(others); !b.ordered(reader, c.read, w.index) {
			w.fail(in, lane, "%s is written without a barrier after warp %d read it", at, reader)
		}
	}
}
