package ptx

// event is what steps of a trace may wait for: a phase of an mbarrier, by its place in proxy.mbars, or one use of a barrier
// of the block.
type event struct {
	place int // of barriers -1 and below
	phase uint32
}

// last is the step that a warp executes; nil where the block is not traced.
func (c *counter) last(w *warp) *Step {
	if c == nil || c.trace == nil {
		return nil
	}
	steps := c.trace.Warps[w.index]
	return &steps[len(steps)-1]
}

// needed notes that an event happens after the step that the warp executes.
func (c *counter) needed(w *warp, e event) {
	s := c.last(w)
	if s == nil || s.Event != 0 { // other threads of the warp have arrived
		return
	}
	if c.events[e] == 0 {
		c.trace.Events = append(c.trace.Events, 0)
		c.events[e] = int32(len(c.trace.Events))
	}
	s.Event = c.events[e]
	c.trace.Events[s.Event-1]++
}

// awaited notes that the step which the warp executes has waited for an event. One that needed no step is none.
func (c *counter) awaited(w *warp, e event) {
	if s := c.last(w); s != nil {
		s.Event = c.events[e]
	}
}

// product counts a wgmma: of each warp what it multiplies, and for the warpgroup, with its first warp, what is read of shared memory.
// Pieces of operands lie so that banks do not conflict.
func (c *counter) product(w *warp, in *inst, s *Step) {
	c.now.Products += 16 * 16 * in.imm
	c.now.Grouped += 16 * 16 * in.imm
	n := 2 * 16 * in.imm
	if in.a >= 0 {
		n += 2 * 16 * 64
	}
	s.Wavefronts = uint16((n + 127) / 128)
	if w.index%4 == 0 {
		c.now.SharedLoad.Requests++
		c.now.SharedLoad.Wavefronts += int64(s.Wavefronts)
	}
}

// bulk counts a bulk copy.
func (c *counter) bulk(w *warp, b *bulkCopy) {
	if c == nil {
		return
	}
	global, shared := &c.now.BulkLoad, &c.now.SharedStore
	if b.in.op == opBulkStore {
		global, shared = &c.now.BulkStore, &c.now.SharedLoad
	}
	sectors, last := int64(0), ^uint64(0)
	for i := range b.pieces {
		q := &b.pieces[i]
		if q.from >= q.to {
			continue
		}
		global.Bytes += int64(q.to - q.from)
		if sector := (q.global + uint64(q.from)) / sectorBytes; sector != last {
			last = sector
			sectors++
		}
	}
	wavefronts := int64(b.bytes+127) / 128
	global.Requests++
	global.Sectors += sectors
	shared.Requests++
	shared.Wavefronts += wavefronts
	if s := c.last(w); s != nil {
		s.Sectors += uint16(sectors)
		s.Wavefronts += uint16(wavefronts)
	}
}
