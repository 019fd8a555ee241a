package ptx

import (
	"math/bits"
)

// The operations (inst.op) of famBulk, which executes cp.async.bulk: copies of many bytes by the
// TMA unit.
const (
	opBulkLoad  op = iota // global to shared
	opBulkStore           // shared to global
	opBulkCommit
	opBulkWait // cp.async.bulk.wait_group: waits for all groups except the imm newest; with flagRead only until shared memory has been read
)

const flagRead = 1

// bulkSpec holds the decoded operands of a cp.async.bulk, a copy of many bytes that one thread
// starts and the TMA unit makes.
type bulkSpec struct {
	rank   int     // rank of the tensor; 0: a plain copy, without a tensor map
	coords []int32 // registers of the coordinates
	shared place32
	mbar   place32
	global int32 // register with the address of the tensor map, or for a plain copy of the global memory
	offset int64
	bytes  int32 // register with the byte count of a plain copy
}

// place32 is an operand that names an address in shared memory: the value of register reg plus add.
// narrow says that the register has 32 bits.
type place32 struct {
	reg    int32
	narrow bool
	add    int64
}

// bulkCopies has the bulk copies from shared to global memory that threads of a warp have started
// and not yet waited for.
type bulkCopies struct {
	group   [32]uint32 // the open group of each thread
	pending []*bulkCopy
}

// bulkCopy is one bulk copy (cp.async.bulk), started by one thread. It consists of pieces of 16
// bytes.
type bulkCopy struct {
	in     *inst
	warp   *warp
	lane   int
	bytes  int
	pieces []piece
	mbar   int    // loads: index into proxy.mbars
	group  uint32 // stores: number of the group
	read   bool   // stores: shared memory has been read
	data   []byte // stores: the bytes read
}

// bulk decodes the instructions that begin with cp.async.bulk.
func (b *builder) bulk(in *inst, m modifiers) {
	in.fam = famBulk
	b.kernel.async = true
	switch m.take("commit_group", "wait_group") {
	case "commit_group":
		b.count(0)
		in.op = opBulkCommit
		b.done(m)
		return
	case "wait_group":
		b.count(1)
		n, ok := parseInteger(b.arg(0).name)
		if !ok || n < 0 {
			b.fail("wait_group takes a number")
		}
		in.op, in.imm, in.flags = opBulkWait, n, pick(m.has("read"), uint8(flagRead), 0)
		b.done(m)
		return
	}
	s := &bulkSpec{}
	in.x = &extra{bulk: s}
	if m.has("tensor") {
		s.rank = map[string]int{"1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5}[m.take("1d", "2d", "3d", "4d", "5d")]
		m.take("tile")
		if s.rank == 0 {
			b.unknown()
		}
	}
	hint := pick(m.has("L2::cache_hint"), 1, 0)
	if len(m) > 0 && m[0] == "global" {
		in.op = opBulkStore
		if !m.has("global") || m.take("shared::cta") == "" || !m.has("bulk_group") {
			b.unknown()
		}
	} else if m.take("shared::cluster", "shared::cta") == "" || !m.has("global") || !m.has("mbarrier::complete_tx::bytes") {
		b.unknown()
	}
	b.done(m)
	b.bulkArguments(in, s, hint)
	b.slot(in)
}

// bulkArguments decodes the arguments of a cp.async.bulk, in their order: [to], [from], the byte
// count of a plain copy, the [mbarrier] of a load, and the cache hint.
func (b *builder) bulkArguments(in *inst, s *bulkSpec, hint int) {
	plain := pick(s.rank == 0, 1, 0)
	load := in.op == opBulkLoad
	b.count(2 + plain + hint + pick(load, 1, 0))
	global, shared := b.arg(0), b.arg(1)
	if load {
		global, shared = shared, global
		s.mbar = b.place32(b.arg(2 + plain))
	}
	s.shared = b.place32(shared)
	if plain != 0 {
		s.bytes = b.in(b.arg(2), "u32")
	}
	var at inst
	b.address(&at, operand{name: global.name, mem: global.mem, off: global.off})
	if at.flags&flagNarrow != 0 {
		b.fail("a global address has 64 bits")
	}
	s.global, s.offset = at.a, at.imm
	if len(global.list) != pick(s.rank > 0, 1, 0) || s.rank > 0 && len(global.list[0].list) != s.rank {
		b.fail("%d coordinates should be there", s.rank)
	}
	for i := range s.rank {
		s.coords = append(s.coords, b.in(global.list[0].list[i], "b32"))
	}
}

func (b *builder) place32(o operand) place32 {
	var at inst
	b.address(&at, o)
	return place32{at.a, at.flags&flagNarrow != 0, at.imm}
}

// of returns the offset in shared memory that p names for thread lane. The register may have an
// address of shared memory or a generic address.
func (p place32) of(w *warp, lane int) uint64 {
	if p.narrow {
		return uint64(w.r32[p.reg][lane] + uint32(p.add))
	}
	at := w.r64[p.reg][lane] + uint64(p.add)
	if at>>56<<56 == sharedWindow {
		at -= sharedWindow
	}
	return at
}

// bulkAsync executes an instruction of famBulk for each thread of mask.
func (w *warp) bulkAsync(in *inst, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		switch in.op {
		case opBulkCommit:
			w.bulk.group[lane]++
		case opBulkWait:
			w.bulkWait(lane, int64(w.bulk.group[lane])-in.imm, in.flags&flagRead != 0)
		default:
			w.startBulk(in, lane)
		}
	}
}

// startBulk starts the cp.async.bulk of one thread.
func (w *warp) startBulk(in *inst, lane int) {
	s, p := in.x.bulk, w.block.proxy
	c := &bulkCopy{in: in, warp: w, lane: lane, group: w.bulk.group[lane]}
	shared := s.shared.of(w, lane)
	if s.rank > 0 {
		c.pieces = w.tensorPieces(in, lane, shared)
	} else {
		c.pieces = w.plainPieces(in, lane, shared)
	}
	c.bytes = 16 * len(c.pieces)
	p.news++
	w.block.count.bulk(w, c)
	w.checkBulk(c)
	if in.op == opBulkStore {
		for i := range c.pieces {
			p.fetch(w, in, lane, c.pieces[i].shared)
		}
		w.bulk.pending = append(w.bulk.pending, c)
		return
	}
	off := s.mbar.of(w, lane)
	if off&7 != 0 || off+8 > uint64(len(w.block.shared)) {
		w.fail(in, lane, "an mbarrier at offset %d of the block's %d bytes of shared memory", off, len(w.block.shared))
	}
	m, i := p.mbarAt(w, in, lane, uint32(off))
	if m.shown == 0 || m.maker != w.index && !w.block.ordered(m.maker, m.shown, w.index) {
		w.fail(in, lane, "a copy arrives on the mbarrier at offset %d, and no fence.mbarrier_init or fence.proxy.async after warp %d made it is ordered before", off, m.maker)
	}
	c.mbar = i
	for j := range c.pieces {
		p.claim(w, in, lane, c.pieces[j].shared, i, m.phase)
	}
	w.block.count.needed(w, event{i, m.phase})
	p.loads = append(p.loads, c)
}

// tensorPieces lists the 16-byte pieces of a bulk copy with a tensor map, whose shared memory begins at offset
// shared.
func (w *warp) tensorPieces(in *inst, lane int, shared uint64) []piece {
	s := in.x.bulk
	at := w.r64[s.global][lane] + uint64(s.offset)
	m, err := w.tensorMap(at)
	if err != nil {
		w.fail(in, lane, "tensor map at %#x: %v", at, err)
	}
	if m.Rank != s.rank {
		w.fail(in, lane, "a tensor map of %d dimensions in a copy of %d", m.Rank, s.rank)
	}
	if m.Swizzle > 16 && int(m.Box[0])*m.Element != m.Swizzle {
		w.fail(in, lane, "a box with rows of %d bytes and a swizzle of %d, which the emulator does not follow", int(m.Box[0])*m.Element, m.Swizzle)
	}
	if shared&127 != 0 {
		w.fail(in, lane, "a tensor is copied at offset %d of shared memory, which is not a multiple of 128", shared)
	}
	w.bulkBounds(in, lane, shared, uint64(m.bytes()))
	var first [5]int32
	for i, r := range s.coords {
		first[i] = int32(w.r32[r][lane])
	}
	return m.pieces(uint32(shared), first)
}

// tensorMap decodes the tensor map at an address in global memory or among the parameters.
func (w *warp) tensorMap(at uint64) (*TensorMap, error) {
	from := []byte(nil)
	if off := at - paramWindow; off < uint64(len(w.block.params)) {
		from = w.block.params[off:]
	} else if b := w.block.find(at); b != nil {
		from = b.Data[at-b.Base:]
	}
	if at%TensorMapAlign != 0 {
		from = nil
	}
	return decodeTensorMap(from)
}

// plainPieces lists the 16-byte pieces of a bulk copy without a tensor map, whose shared memory begins at offset
// shared.
func (w *warp) plainPieces(in *inst, lane int, shared uint64) []piece {
	s := in.x.bulk
	global, n := w.r64[s.global][lane]+uint64(s.offset), w.r32[s.bytes][lane]
	if shared&15 != 0 || global&15 != 0 || n&15 != 0 {
		w.fail(in, lane, "%d bytes at offset %d of shared memory and address %#x: all must be multiples of 16", n, shared, global)
	}
	w.bulkBounds(in, lane, shared, uint64(n))
	out := make([]piece, n/16)
	for i := range out {
		out[i] = piece{shared: uint32(shared) + 16*uint32(i), global: global + 16*uint64(i), to: 16}
	}
	return out
}

func (w *warp) bulkBounds(in *inst, lane int, shared, n uint64) {
	if size := uint64(len(w.block.shared)); shared > size || n > size-shared {
		w.fail(in, lane, "%d bytes at offset %d of the block's %d bytes of shared memory", n, shared, size)
	}
}

// checkBulk checks that the global memory of bulk copy c lies in buffers, and records the access.
func (w *warp) checkBulk(c *bulkCopy) {
	for i := range c.pieces {
		q := &c.pieces[i]
		if q.from >= q.to {
			continue
		}
		from, to := q.global+uint64(q.from), q.global+uint64(q.to)
		s := w.find(c.in, 1<<c.lane, from, to)
		w.addr[c.lane] = from
		if c.in.op == opBulkLoad {
			s.readFrom, s.readTo = min(s.readFrom, from-s.base), max(s.readTo, to-s.base)
		} else {
			s.writeFrom, s.writeTo = min(s.writeFrom, from-s.base), max(s.writeTo, to-s.base)
		}
		if g := w.block.global; g != nil && c.in.op == opBulkLoad {
			g.read(w, c.in, s, 1<<c.lane, to-from)
		} else if g != nil {
			g.write(w, c.in, s, 1<<c.lane, to-from)
		}
	}
}

// memory returns the bytes of global memory that piece q of a bulk copy reads or writes.
func (q *piece) memory(b *block) []byte {
	from := b.find(q.global + uint64(q.from)) // was checked when the copy started
	at := q.global + uint64(q.from) - from.Base
	return from.Data[at:][:q.to-q.from]
}

// land completes a bulk copy from global to shared memory: it writes the bytes to shared memory and
// reports their number to the copy's mbarrier.
func (c *bulkCopy) land(p *proxy) {
	b := p.block
	for i := range c.pieces {
		q := &c.pieces[i]
		to := b.shared[q.shared:][:16]
		clear(to)
		if q.from < q.to {
			copy(to[q.from:], q.memory(b))
		}
		p.landed(q.shared)
	}
	m := p.mbars[c.mbar]
	m.bytes -= c.bytes
	m.last, m.lastOf = c, m.phase
	p.news++
	p.settle(c.mbar, func(format string, args ...any) { c.warp.fail(c.in, c.lane, format, args...) })
}

// bulkWait completes the copies from shared to global memory that thread lane has started in groups
// with numbers below `before`. If readOnly is true, it only reads their shared memory, which the
// kernel may then overwrite. The global memory is written later.
func (w *warp) bulkWait(lane int, before int64, readOnly bool) {
	left := w.bulk.pending[:0]
	for _, c := range w.bulk.pending {
		if c.lane != lane || int64(c.group) >= before {
			left = append(left, c)
			continue
		}
		c.fetch(w)
		if readOnly {
			left = append(left, c)
		} else {
			c.write(w)
		}
	}
	w.bulk.pending = left
}

// fetch reads the bytes that copy c takes from shared memory into c.data.
func (c *bulkCopy) fetch(w *warp) {
	if c.read {
		return
	}
	c.read = true
	for i := range c.pieces {
		off := c.pieces[i].shared
		c.data = append(c.data, w.block.shared[off:][:16]...)
		w.block.proxy.fetchEnd(w, off)
	}
}

// write writes c.data, the bytes of a copy from shared to global memory, to global memory.
func (c *bulkCopy) write(w *warp) {
	for i := range c.pieces {
		if q := &c.pieces[i]; q.from < q.to {
			copy(q.memory(w.block), c.data[16*i+int(q.from):])
		}
	}
}
