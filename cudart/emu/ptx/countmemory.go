package ptx

import "math/bits"

// access counts a load, a store or an atomic instruction. It looks at the addresses, since those
// of an instruction without a state space may be anywhere.
func (c *counter) access(w *warp, in *inst, mask uint32, s *Step) {
	if in.space == spaceParam || in.space == spaceLocal {
		return
	}
	w.offsets(in, mask)
	global, shared := mask, uint32(0)
	switch in.space {
	case spaceShared:
		global, shared = 0, mask
	case spaceGeneric:
		eachLane(mask, func(i int) {
			switch w.addr[i] >> 56 << 56 {
			case sharedWindow:
				global, shared = global&^(1<<i), shared|1<<i
			case localWindow:
				global &^= 1 << i
			}
		})
	}
	bytes := uint64(in.size) * uint64(in.n)
	if shared != 0 {
		to := &c.now.SharedLoad
		if in.fam != famLoad {
			to = &c.now.SharedStore
		}
		c.sharedBanks(to, &w.addr, shared, bytes, s)
	}
	if global != 0 {
		to := &c.now.Load
		switch in.fam {
		case famStore:
			to = &c.now.Store
		case famAtomic:
			to = &c.now.Atomic
		}
		c.globalTraffic(to, &w.addr, global, bytes, in.flags&flagStrong != 0, s)
	}
}

// copied counts a cp.async: what it reads, and where it writes.
func (c *counter) copied(w *warp, in *inst, mask uint32, s *Step) {
	w.offsets(in, mask)
	c.sharedBanks(&c.now.SharedStore, &w.addr, mask, uint64(in.size), s)
	from, n, reads := &w.r64[in.b], &w.r32[in.c], uint32(0)
	offset := uint64(int64(int32(in.imm32)))
	eachLane(mask, func(i int) {
		w.addr[i] = from[i] + offset
		if n[i] > 0 {
			reads |= 1 << i
		}
	})
	if reads != 0 {
		c.globalTraffic(&c.now.Copied, &w.addr, reads, uint64(in.size), false, s)
	}
}

// sectorBytes is the least that caches move.
const sectorBytes = 32

// globalTraffic counts a request of the threads of mask for so many bytes each. An access lies
// within one sector, as it is aligned and not longer than half of one. What a strong load reads is fresh each time, since other
// blocks may have written it.
func (c *counter) globalTraffic(to *Traffic, addr *lanes64, mask uint32, bytes uint64, strong bool, s *Step) {
	reads := to == &c.now.Load || to == &c.now.Copied
	var known [32]uint64
	n := 0
next:
	for m := mask; m != 0; m &= m - 1 {
		sector := addr[bits.TrailingZeros32(m)&31] / sectorBytes
		for i := n - 1; i >= 0; i-- {
			if known[i] == sector {
				continue next
			}
		}
		known[n] = sector
		n++
		if reads && (c.fresh(sector) || strong) {
			c.now.Fresh++
			s.Fresh++
		}
	}
	to.Requests++
	to.Bytes += int64(bits.OnesCount32(mask)) * int64(bytes)
	to.Sectors += int64(n)
	s.Sectors += uint16(n)
}

// fresh notes that the block reads a sector, and says whether it does so for the first time.
func (c *counter) fresh(sector uint64) bool {
	if at := sector / 64; at != c.readAt {
		c.read[c.readAt] = c.readBits
		c.readAt, c.readBits = at, c.read[at]
	}
	was := c.readBits
	c.readBits |= 1 << (sector % 64)
	return c.readBits != was
}

// banks are the words that a part of a warp asks each bank for.
type banks struct {
	words [32][32]uint64
	n     [32]uint8
}

// sharedBanks counts a request for so many bytes of each thread of mask. All threads are answered at
// a time where they ask for 4 bytes or fewer, half a warp where they ask for 8, a quarter where they
// ask for 16. Threads that ask for the same word are answered together. Source: CUDA C
// Programming Guide, "Shared Memory"; its sections on compute capability 2.x and 3.x have the
// rule for wide accesses.
func (c *counter) sharedBanks(to *Banks, addr *lanes64, mask uint32, bytes uint64, s *Step) {
	width := 32
	if bytes > 4 {
		width = int(128 / bytes)
	}
	to.Requests++
	for first := 0; first < 32; first += width {
		part := mask >> first << first & (full >> (32 - width) << first)
		if part == 0 {
			continue
		}
		n := c.banks.turns(addr, part)
		to.Wavefronts += int64(n)
		to.Conflicts += int64(n - 1)
		s.Wavefronts += uint16(n)
	}
}

// turns is how often the bank that is asked for most words must answer. Only first words are looked at: as accesses
// are aligned and equally long, the others meet where these do.
func (b *banks) turns(addr *lanes64, mask uint32) int {
	if b.apart(addr, mask) {
		return 1
	}
	most := 0
	b.n = [32]uint8{}
	for m := mask; m != 0; m &= m - 1 {
		most = max(most, b.ask(addr[bits.TrailingZeros32(m)&31]/4))
	}
	return most
}

// apart says whether every bank is asked once, where neighbours that ask for the same word count as one. Threads that
// share a word with one that is no neighbour make it false too.
func (b *banks) apart(addr *lanes64, mask uint32) bool {
	asked, n, last := uint32(0), 0, ^uint64(0)
	if mask == full {
		for _, a := range addr {
			word := a / 4
			if word != last {
				n++
			}
			asked, last = asked|1<<(word%32), word
		}
		return bits.OnesCount32(asked) == n
	}
	for m := mask; m != 0; m &= m - 1 {
		word := addr[bits.TrailingZeros32(m)&31] / 4
		if word != last {
			n++
		}
		asked, last = asked|1<<(word%32), word
	}
	return bits.OnesCount32(asked) == n
}

// ask is for how many words the bank of a word has been asked, that word among them.
func (b *banks) ask(word uint64) int {
	bank := word % 32
	n := int(b.n[bank])
	for i := range n {
		if b.words[bank][i] == word {
			return n
		}
	}
	b.words[bank][n] = word
	b.n[bank]++
	return n + 1
}
