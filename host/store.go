package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"mt/base/accounts"
	"mt/base/human"
	"mt/base/parallel"
	"mt/host/optim"
	"mt/model"
)

// Store holds the weights of a model, layer by layer, and the optimizer's planes. With AdamW that is 12 bytes for each
// parameter, or 6 with 8-bit moments.
type Store struct {
	Layers []*LayerState

	arenas []*Arena

	tier    Tier
	slots   [][]byte   // memory of each state slot
	slotOf  []int      // by layer, the index of its state slot, or none
	lending sync.Mutex // see WithLayer
}

// LayerState is the host memory of one layer, initially zero. A tensor that refers to another layer's
// (Layout.Tensors[t].Ref) has no memory here.
type LayerState struct {
	Layout model.Layout
	// Tile (Layout.TileBytes bytes) streams to the device. It has the bf16 high halves of split tensors, and plain fp32
	// tensors, and is aligned to 4 KiB. It is nil while the tile is on disk only (Tier).
	Tile []byte
	// Share is the part of the layer that Lo and Planes hold: the whole layer, unless there are several ranks.
	Share optim.Share
	// Lo has the lower halves of split weights, for the elements of Share in the layer's flat order of elements. It is
	// nil if there are none, and while they are on disk only (Tier).
	Lo []uint16
	// Planes has the optimizer's planes for the same elements. While they are on disk only, they have no Data.
	Planes []optim.State
	// State is the memory of Lo and Planes together, in the order in which they are on disk. It is nil for a layer
	// whose state is always in memory, and while the state is on disk only.
	State []byte

	// onCores calls f(i) for each index i of units on all cores. It is atNodes with several NUMA nodes, otherwise
	// onPool.
	onCores func(units []optim.Unit, f func(i int))

	pool  *parallel.Pool
	seed  uint64          // see Store.SetRoundingSeed
	means []optim.Mean    // see Store.SetEMA
	units []optim.Unit    // the optimizer's units of the layer; cached
	by    optim.Optimizer // the optimizer of the last update

	absent  bool // the state is on disk only
	changed bool // updated since the state was last read from or written to disk
}

// NewStore allocates memory for layers with the given layouts and planes. With planes nil it allocates weights only,
// for evaluation and generation; such weights cannot be updated. The store uses the threads of pool (nil: the caller's
// thread) until Close. If memory is insufficient, the error is an *OutOfMemory.
func NewStore(layouts []model.Layout, planes optim.Planes, pool *parallel.Pool) (*Store, error) {
	return NewShareStore(layouts, planes, nil, pool)
}

// NewShareStore is NewStore for one of several ranks. The store has whole tiles, but only the rank's share of each
// layer's state. shares has the share of each layer; nil: the whole state of every layer.
func NewShareStore(layouts []model.Layout, planes optim.Planes, shares []optim.Share, pool *parallel.Pool) (*Store, error) {
	return NewTieredStore(layouts, planes, shares, Tier{}, pool)
}

// NewTieredStore is NewShareStore with the data of some layers on disk, as tier says. The caller opens and closes the
// extents of tier. Their sizes must be optim.ExtentBytes for state and optim.Pages(Layout.TileBytes) for tiles.
func NewTieredStore(layouts []model.Layout, planes optim.Planes, shares []optim.Share, tier Tier, pool *parallel.Pool) (*Store, error) {
	s := &Store{tier: tier}
	need := tieredBytes(layouts, planes, shares, tier)
	if err := checkAvailable("the model ("+needs(need)+")", sum(need)); err != nil {
		return nil, err
	}
	arenas, err := s.newArenas(layouts, planes, shares, pool)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for i, l := range layouts {
		share := shareOf(layouts, shares, i)
		take := arenas.take
		if tier.has(i) {
			take = func(string, int64) []byte { return nil }
		}
		var tile []byte
		if !tier.hasTile(i) {
			tile = arenas.take(tileArena, l.TileBytes)
		}
		state := &LayerState{Layout: l, Share: share, absent: tier.has(i), Tile: tile, Lo: optim.View[uint16](take(loArena, optim.LoBytes(l, share))), pool: pool}
		state.onCores = state.onPool
		if n := MachineNodes(); n != nil {
			state.onCores = state.atNodes(n)
		}
		for _, p := range planes.Of(l) {
			state.Planes = append(state.Planes, optim.NewState(p, l, share, func(bytes int64) []byte { return take(p.Name, bytes) }))
		}
		s.Layers = append(s.Layers, state)
	}
	return s, nil
}

// Acquire implements Home.
func (s *Store) Acquire(i int) (*LayerState, error) {
	l := s.Layers[i]
	if l.absent {
		return nil, fmt.Errorf("layer %d: its state is on the disk", i)
	}
	return l, nil
}

// Release implements Home.
func (s *Store) Release(int) {}

// Tile implements Home.
func (s *Store) Tile(i int) []byte { return s.Layers[i].Tile }

func sum(need [accounts.NumPurposes]int64) (all int64) {
	for _, n := range need {
		all += n
	}
	return all
}

// shareOf returns the share of layer i; the whole layer if shares is nil.
func shareOf(layouts []model.Layout, shares []optim.Share, i int) optim.Share {
	if shares == nil {
		return optim.Whole(layouts[i])
	}
	return shares[i]
}

// SetPool sets the pool for later updates. No update may be under way.
func (s *Store) SetPool(pool *parallel.Pool) {
	for _, l := range s.Layers {
		l.pool = pool
	}
}

// SetRoundingSeed sets the seed of stochastic rounding for weights without lower halves (model.Layout.BF16Master).
// The initial seed is 0.
func (s *Store) SetRoundingSeed(seed uint64) {
	for _, l := range s.Layers {
		l.seed = seed
	}
}

// SetEMA sets the decay of the exponential moving averages of the weights (optim.Average.With). Initially there are none.
func (s *Store) SetEMA(by optim.Average) {
	for _, l := range s.Layers {
		l.means = by.Means(l.Planes)
	}
}

// Names of the arenas for weights. Other arenas have the names of planes.
const (
	tileArena = "/tile"
	loArena   = "/lo"
)

// free has the part of each arena that is not given to a layer yet, by the arena's name.
type free map[string][]byte

// take returns the next bytes of an arena, for one layer. The part for the following layer begins
// at a page boundary.
func (f free) take(arena string, bytes int64) []byte {
	b := f[arena][:bytes:bytes]
	f[arena] = f[arena][optim.Pages(bytes):]
	return b
}

// newArenas makes one arena for all tiles, one for all lower halves and one for each plane.
func (s *Store) newArenas(layouts []model.Layout, planes optim.Planes, shares []optim.Share, pool *parallel.Pool) (free, error) {
	names, pieces := []string{tileArena, loArena}, map[string][]int64{}
	for i, l := range layouts {
		share := shareOf(layouts, shares, i)
		if !s.tier.hasTile(i) {
			pieces[tileArena] = append(pieces[tileArena], optim.Pages(l.TileBytes))
		}
		if s.tier.has(i) {
			continue
		}
		pieces[loArena] = append(pieces[loArena], optim.Pages(optim.LoBytes(l, share)))
		for _, p := range planes.Of(l) {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
			pieces[p.Name] = append(pieces[p.Name], optim.Pages(p.ShareBytes(l, share)))
		}
	}
	purposes, arenas := map[string]accounts.Purpose{tileArena: accounts.Weights, loArena: accounts.LoPlanes}, free{}
	for _, name := range names {
		purpose, ok := purposes[name]
		if !ok {
			purpose = accounts.Planes
		}
		var need int64
		for _, bytes := range pieces[name] {
			need += bytes
		}
		a, err := newArena(purpose, need, pieces[name], pool)
		if err != nil {
			return nil, err
		}
		s.arenas, arenas[name] = append(s.arenas, a), a.Bytes()
	}
	if s.tier.StateOnDisk == nil {
		return arenas, nil
	}
	return arenas, s.takeSlots(s.tier.slotBytes(layouts, planes, shares), pool)
}

// Close releases the memory. The layers must not be used afterwards.
func (s *Store) Close() error {
	var errs []error
	for _, a := range s.arenas {
		errs = append(errs, a.Close())
	}
	s.arenas, s.Layers = nil, nil
	return errors.Join(errs...)
}

// StoreBytes returns the memory of a NewStore with these layouts and planes in bytes, by purpose.
func StoreBytes(layouts []model.Layout, planes optim.Planes) (bytes [accounts.NumPurposes]int64) {
	return ShareBytes(layouts, planes, nil)
}

// ShareBytes returns the memory of a NewShareStore in bytes, by purpose.
func ShareBytes(layouts []model.Layout, planes optim.Planes, shares []optim.Share) (bytes [accounts.NumPurposes]int64) {
	return tieredBytes(layouts, planes, shares, Tier{})
}

// tieredBytes returns the memory of a NewTieredStore in bytes, by purpose.
func tieredBytes(layouts []model.Layout, planes optim.Planes, shares []optim.Share, tier Tier) (bytes [accounts.NumPurposes]int64) {
	for i, l := range layouts {
		if !tier.hasTile(i) {
			bytes[accounts.Weights] += optim.Pages(l.TileBytes)
		}
		if tier.has(i) {
			continue
		}
		share := shareOf(layouts, shares, i)
		bytes[accounts.LoPlanes] += optim.Pages(optim.LoBytes(l, share))
		for _, p := range planes.Of(l) {
			bytes[accounts.Planes] += optim.Pages(p.ShareBytes(l, share))
		}
	}
	bytes[accounts.StateSlots] = int64(tier.Slots) * tier.slotBytes(layouts, planes, shares)
	return bytes
}

func needs(need [accounts.NumPurposes]int64) string {
	return fmt.Sprintf("%s %s, %s %s, %s %s", accounts.Weights, human.Bytes(need[accounts.Weights]),
		accounts.LoPlanes, human.Bytes(need[accounts.LoPlanes]), accounts.Planes, human.Bytes(need[accounts.Planes]))
}

// tensor returns the layout of tensor t. It panics if the tensor belongs to another layer, or if the tensor is split
// into halves but split is false, or the reverse.
func (l *LayerState) tensor(t int, split bool) model.TensorLayout {
	tl := l.owned(t)
	if tl.BF16 != split {
		panic(fmt.Sprintf("host: layer %d %s: split %t, wanted %t", l.Layout.Index, tl.Role, tl.BF16, split))
	}
	return tl
}

// owned returns the layout of tensor t. It panics if the tensor belongs to another layer.
func (l *LayerState) owned(t int) model.TensorLayout {
	tl := l.Layout.Tensors[t]
	if tl.Ref {
		panic(fmt.Sprintf("host: layer %d %s is the embedding's tensor and has no memory of its own", l.Layout.Index, tl.Role))
	}
	return tl
}

// HiPlane returns the bf16 high halves of tensor t (rows, cols), a view of the tile. The tensor must be split.
func (l *LayerState) HiPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return optim.View[uint16](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}

// LoPlane returns the lower halves of tensor t (rows, cols). The tensor must have lower halves, all of them in the
// store's share.
func (l *LayerState) LoPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return l.Lo[tl.Elem-l.Share.From:][:tl.Elems()]
}

// F32Plane returns tensor t (rows, cols), a view of the tile. The tensor must be stored as fp32, not split.
func (l *LayerState) F32Plane(t int) []float32 {
	tl := l.tensor(t, false)
	return optim.View[float32](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}

// Plane returns the memory of the plane with this name, for the store's share; nil: there is no such plane.
func (l *LayerState) Plane(name string) []byte {
	for _, p := range l.Planes {
		if p.Name == name {
			return p.Data
		}
	}
	return nil
}

// Tiled returns the indices of the layers with a tile in memory or on disk. A layer without weights of its own has
// none.
func (s *Store) Tiled() (layers []int) {
	for i, l := range s.Layers {
		if s.tier.hasTile(i) || len(l.Tile) > 0 {
			layers = append(layers, i)
		}
	}
	return layers
}
