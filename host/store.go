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

// Store holds the weights of a model, layer by layer, and the planes beside them.
// With AdamW that is 12 bytes for each parameter, with its moments in 8 bits 6.
type Store struct {
	Layers []*LayerState

	arenas []*Arena

	tier    Tier
	slots   [][]byte   // state slots
	slotOf  []int      // by layer, the state slot that it is in
	lending sync.Mutex // see WithLayer
}

// LayerState is the host memory of one layer, all of it zero at first. A tensor
// that is a reference (Layout.Tensors[t].Ref) has no memory here.
type LayerState struct {
	Layout model.Layout
	// Tile (Layout.TileBytes) is what streams to the device, aligned to 4 KiB: bf16
	// hi planes and plain fp32 planes. It is nil while it is on a disk (Tier).
	Tile []byte
	// Share is the part of the layer that Lo and Planes are of: all of it, unless there are
	// several ranks.
	Share optim.Share
	// Lo has the signed lower halves of split weights, in the layer's flat element space,
	// from Share.From on. It is nil where the layer has none, and while it is on a disk (Tier).
	Lo []uint16
	// Planes are the planes beside the weights, as Lo. On a disk they have no Data.
	Planes []optim.State
	// State is, of a layer whose state is on a disk while that is in memory, Lo and Planes as they are in its extent.
	State []byte

	// onCores calls f for each of the units, on all cores: onPool or, on several NUMA nodes, atNodes.
	onCores func(units []optim.Unit, f func(i int))

	pool  *parallel.Pool
	seed  uint64          // see Store.SetRoundingSeed
	means []optim.Mean    // see Store.SetEMA
	units []optim.Unit    // the units into which by cuts the layer
	by    optim.Optimizer // the optimizer of the last update

	absent  bool // its state is on its disk alone
	changed bool // by an update, since it was read from its disk or written there
}

// NewStore takes the memory for layers with the given layouts and for the planes
// that planes asks for. With nil there are weights alone, which serve for
// evaluation and generation and cannot be updated. The store uses pool (nil: the
// caller's thread alone) until Close. The error is an *OutOfMemory where there is
// not enough memory.
func NewStore(layouts []model.Layout, planes optim.Planes, pool *parallel.Pool) (*Store, error) {
	return NewShareStore(layouts, planes, nil, pool)
}

// NewShareStore is NewStore for one of several ranks: what streams is there whole, and all else
// of its share of each layer; nil: of all.
func NewShareStore(layouts []model.Layout, planes optim.Planes, shares []optim.Share, pool *parallel.Pool) (*Store, error) {
	return NewTieredStore(layouts, planes, shares, Tier{}, pool)
}

// NewTieredStore is NewShareStore with the state of some layers on disks. The extents are the caller's,
// as large as optim.ExtentBytes says, and those of tiles as optim.Pages(Layout.TileBytes).
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

// shareOf is the share of layer i; where there are no shares it is the whole layer.
func shareOf(layouts []model.Layout, shares []optim.Share, i int) optim.Share {
	if shares == nil {
		return optim.Whole(layouts[i])
	}
	return shares[i]
}

// SetPool makes later updates run on pool. No update may be under way.
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

// The names of the arenas for weights. The other arenas have the names of planes.
const (
	tileArena = "/tile"
	loArena   = "/lo"
)

// free is what is left to take of each arena of a store, by the arena's name.
type free map[string][]byte

// take returns the next bytes of an arena. What is left of their last page is not
// given out.
func (f free) take(arena string, bytes int64) []byte {
	b := f[arena][:bytes:bytes]
	f[arena] = f[arena][optim.Pages(bytes):]
	return b
}

// newArenas makes one arena for the tiles, one for the lo planes and one for every
// plane.
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

// Close gives the memory back. The layers must not be used any more.
func (s *Store) Close() error {
	var errs []error
	for _, a := range s.arenas {
		errs = append(errs, a.Close())
	}
	s.arenas, s.Layers = nil, nil
	return errors.Join(errs...)
}

// StoreBytes is what NewStore takes for these layouts and planes, by purpose.
func StoreBytes(layouts []model.Layout, planes optim.Planes) (bytes [accounts.NumPurposes]int64) {
	return ShareBytes(layouts, planes, nil)
}

// ShareBytes is what NewShareStore takes, by purpose.
func ShareBytes(layouts []model.Layout, planes optim.Planes, shares []optim.Share) (bytes [accounts.NumPurposes]int64) {
	return tieredBytes(layouts, planes, shares, Tier{})
}

// tieredBytes is what NewTieredStore takes, by purpose.
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

// tensor is the layout of tensor t. The layer must own the tensor, which must be
// split or plain as split says.
func (l *LayerState) tensor(t int, split bool) model.TensorLayout {
	tl := l.owned(t)
	if tl.BF16 != split {
		panic(fmt.Sprintf("host: layer %d %s: split %t, wanted %t", l.Layout.Index, tl.Role, tl.BF16, split))
	}
	return tl
}

// owned is the layout of tensor t, which the layer must own: it may not be a
// reference.
func (l *LayerState) owned(t int) model.TensorLayout {
	tl := l.Layout.Tensors[t]
	if tl.Ref {
		panic(fmt.Sprintf("host: layer %d %s is the embedding's tensor and has no memory of its own", l.Layout.Index, tl.Role))
	}
	return tl
}

// HiPlane is the bf16 image of tensor t (rows, cols), as a view into the tile. The
// tensor must be split.
func (l *LayerState) HiPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return optim.View[uint16](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}

// LoPlane has the signed lower halves of tensor t (rows, cols), which must be
// split and have some, and the store's share must have all of it.
func (l *LayerState) LoPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return l.Lo[tl.Elem-l.Share.From:][:tl.Elems()]
}

// F32Plane is tensor t (rows, cols), as a view into the tile. The tensor must be
// plain fp32.
func (l *LayerState) F32Plane(t int) []float32 {
	tl := l.tensor(t, false)
	return optim.View[float32](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}

// Plane is the memory of the plane of that name, of the store's share; nil where there is none.
func (l *LayerState) Plane(name string) []byte {
	for _, p := range l.Planes {
		if p.Name == name {
			return p.Data
		}
	}
	return nil
}

// Tiled are the layers that have a tile in memory or on disks, and none whose weights are all another's.
func (s *Store) Tiled() (layers []int) {
	for i, l := range s.Layers {
		if s.tier.hasTile(i) || len(l.Tile) > 0 {
			layers = append(layers, i)
		}
	}
	return layers
}
