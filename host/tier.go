package host

import (
	"slices"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/host/extents"
	"mt/host/optim"
	"mt/model"
)

// Tier says which data of a store is on disk. The state of a layer on disk (lower halves and
// planes) is stored as one extent, a fixed range of the files, and is in memory only while it
// occupies a state slot. The tile stays in memory, unless it is on disk too. Then it is an extent
// of its own and shares the state slot. The same holds for a gradient that waits on disk. The zero
// Tier keeps everything in memory.
type Tier struct {
	StateOnDisk []bool // by layer
	Slots       int    // number of state slots; each has the size that the largest layer on disk needs
	Extents     *extents.Files

	TileOnDisk  []bool // by layer; the layer's state is then on disk too; nil: none is
	TileExtents *extents.Files

	// Grads has, by layer, the size in bytes of the gradient on disk, in whole pages; 0: the gradient stays in memory.
	// A layer whose gradient is on disk also has its state there. nil: all gradients stay in memory.
	Grads       []int64
	GradExtents *extents.Files
}

// has reports whether the state of layer i is on disk.
func (t Tier) has(i int) bool { return t.StateOnDisk != nil && t.StateOnDisk[i] }

// hasTile reports whether the tile of layer i is on disk.
func (t Tier) hasTile(i int) bool { return t.TileOnDisk != nil && t.TileOnDisk[i] }

// tileBytes returns the bytes of layer i's tile in a state slot; 0 if the tile is always in memory.
func (t Tier) tileBytes(i int, l model.Layout) int64 {
	if !t.hasTile(i) {
		return 0
	}
	return optim.Pages(l.TileBytes)
}

// slotBytes returns the bytes of a state slot, which is as large as the largest layer on disk needs.
func (t Tier) slotBytes(layouts []model.Layout, planes optim.Planes, shares []optim.Share) (most int64) {
	for i, l := range layouts {
		if t.has(i) {
			most = max(most, t.tileBytes(i, l)+optim.ExtentBytes(l, planes.Of(l), shareOf(layouts, shares, i))+t.gradBytes(i))
		}
	}
	return most
}

// takeSlots allocates all state slots, each of this number of bytes.
func (s *Store) takeSlots(bytes int64, pool *parallel.Pool) error {
	a, err := newArena(accounts.StateSlots, int64(s.tier.Slots)*bytes, slices.Repeat([]int64{bytes}, s.tier.Slots), pool)
	if err != nil {
		return err
	}
	s.arenas = append(s.arenas, a)
	for n := range s.tier.Slots {
		s.slots = append(s.slots, a.Bytes()[int64(n)*bytes:int64(n+1)*bytes])
	}
	s.slotOf = make([]int, len(s.tier.StateOnDisk))
	for i := range s.slotOf {
		s.slotOf[i] = none
	}
	return nil
}

// none is the value of slotOf for a layer that has no state slot now.
const none = -1

// ReadTile implements Home.
func (s *Store) ReadTile(i int, from int64, into []byte) error {
	return s.tier.TileExtents.ReadPart(i, from, into)
}

// Fetch implements Home. State that was never written is zero.
func (s *Store) Fetch(i, slot int) error {
	l := s.Layers[i]
	tile, state := s.inSlot(i, slot)
	if err := fetch(s.tier.Extents, i, state); err != nil {
		return err
	}
	if s.tier.hasTile(i) {
		if err := fetch(s.tier.TileExtents, i, tile); err != nil {
			return err
		}
		l.Tile = tile[:l.Layout.TileBytes:l.Layout.TileBytes]
	}
	s.slotOf[i], l.absent, l.changed = slot, false, false
	l.bind(state)
	return nil
}

// fetch reads extent i of files into memory. An extent that was never written reads as zero.
func fetch(files *extents.Files, i int, into []byte) error {
	if files.Written(i) {
		return files.Read(i, into)
	}
	clear(into)
	return nil
}

// inSlot returns the parts of a state slot that layer i uses. They are for the layer's tile, empty if the tile is not
// on disk, and for its state.
func (s *Store) inSlot(i, slot int) (tile, state []byte) {
	l, mem := s.Layers[i], s.slots[slot]
	n := s.tier.tileBytes(i, l.Layout)
	return mem[:n], mem[n : n+l.extentBytes()]
}

// Flush implements Home. It writes the tile last, because a reader of the tile goes on when the tile is written, and
// may then need the state.
func (s *Store) Flush(i int) error {
	tile, state := s.inSlot(i, s.slotOf[i])
	if err := s.tier.Extents.Write(i, state); err != nil {
		return err
	}
	if s.tier.hasTile(i) {
		if err := s.tier.TileExtents.Write(i, tile); err != nil {
			return err
		}
	}
	s.Layers[i].changed = false
	return nil
}

// Drop implements Home.
func (s *Store) Drop(i int) {
	s.slotOf[i], s.Layers[i].absent = none, true
	s.Layers[i].bind(nil)
	if s.tier.hasTile(i) {
		s.Layers[i].Tile = nil
	}
}

// Spared implements Home.
func (s *Store) Spared() (read, written int64) {
	for _, files := range []*extents.Files{s.tier.Extents, s.tier.TileExtents} {
		if files != nil {
			r, w := files.Spared()
			read, written = read+r, written+w
		}
	}
	return read, written
}

// Settle implements Home. A layer that was fetched but not updated needs no flush.
func (s *Store) Settle() error {
	for i, slot := range s.slotOf {
		if slot == none {
			continue
		}
		if s.Layers[i].changed {
			if err := s.Flush(i); err != nil {
				return err
			}
		}
		s.Drop(i)
	}
	return nil
}

// WithLayer calls use with layer i and its complete state. If the state is on disk, WithLayer reads it first and frees
// its memory after use returns. change: use changes the state, and WithLayer writes it back. No training pipeline may
// use the store meanwhile. Concurrent calls for layers on disk run one after the other.
func (s *Store) WithLayer(i int, change bool, use func(*LayerState) error) error {
	if !s.tier.has(i) {
		return use(s.Layers[i])
	}
	s.lending.Lock()
	defer s.lending.Unlock()
	if err := s.Fetch(i, 0); err != nil {
		return err
	}
	defer s.Drop(i)
	if err := use(s.Layers[i]); err != nil || !change {
		return err
	}
	return s.Flush(i)
}

// StateOnDisk reports whether the state of layer i is on disk.
func (s *Store) StateOnDisk(i int) bool { return s.tier.has(i) }

// TileOnDisk reports whether the tile of layer i is on disk.
func (s *Store) TileOnDisk(i int) bool { return s.tier.hasTile(i) }

// extentBytes returns the size of the layer's state on disk, where it is one extent.
func (l *LayerState) extentBytes() int64 {
	var placed []optim.Placed
	for _, p := range l.Planes {
		placed = append(placed, p.Placed)
	}
	return optim.ExtentBytes(l.Layout, placed, l.Share)
}

// bind cuts mem, a state slot's part for this layer's state, into the memory of its lower halves
// and planes. With mem nil, they have no memory until the next bind.
func (l *LayerState) bind(mem []byte) {
	l.State = mem
	take := func(bytes int64) []byte {
		if mem == nil {
			return nil
		}
		b := mem[:bytes:bytes]
		mem = mem[optim.Pages(bytes):]
		return b
	}
	l.Lo = optim.View[uint16](take(optim.LoBytes(l.Layout, l.Share)))
	for k := range l.Planes {
		p := &l.Planes[k]
		p.Data = take(p.ShareBytes(l.Layout, l.Share))
	}
}
