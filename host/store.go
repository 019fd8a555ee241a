package host

import (
	"errors"
	"fmt"
	"unsafe"

	"mt/internal/parallel"
	"mt/model"
)

// Store holds the parameters and moments of a model, layer by layer: 12 bytes a
// parameter.
type Store struct {
	Layers []*LayerState

	pool   *parallel.Pool
	arenas []*Arena
}

// LayerState is the host's memory of one layer. All of it is zero at first. A
// tensor that is a reference (Layout.Tensors[t].Ref) has no memory here.
type LayerState struct {
	Layout model.Layout
	// Tile (Layout.TileBytes) is what streams to the device, aligned to 4 KiB:
	// hi planes (bf16) and plain fp32 planes.
	Tile []byte
	// Lo (Layout.Elems) are the signed lower halves of split weights, in the
	// layer's flat element space. Nil where the layer has no bf16 tensor.
	Lo []uint16
	// M, V (Layout.Elems) are AdamW's moments, in the flat element space.
	M, V []float32

	pool   *parallel.Pool
	pieces []piece // owned tensors, cut for the threads
}

// NewStore takes the memory for layers with the given layouts. The store uses
// pool (nil: the caller's thread alone) until Close. The error is an
// *OutOfMemory where memory is what lacks.
func NewStore(layouts []model.Layout, pool *parallel.Pool) (*Store, error) {
	return makeStore(layouts, pool, true)
}

// NewWeights is NewStore without moments (M and V are nil): for evaluation and
// generation. Nothing in it can be updated.
func NewWeights(layouts []model.Layout, pool *parallel.Pool) (*Store, error) {
	return makeStore(layouts, pool, false)
}

func makeStore(layouts []model.Layout, pool *parallel.Pool, moments bool) (*Store, error) {
	s := &Store{pool: pool}
	need := StoreBytes(layouts)
	if !moments {
		need[ForMoments] = 0
	}
	if err := checkAvailable("the model ("+needs(need)+")", need[ForWeights]+need[ForLoPlanes]+need[ForMoments]); err != nil {
		return nil, err
	}
	var free [NumPurposes][]byte
	for _, p := range []Purpose{ForWeights, ForLoPlanes, ForMoments} {
		a, err := NewArena(p, need[p], pool)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.arenas, free[p] = append(s.arenas, a), a.Bytes()
	}
	take := func(p Purpose, bytes int64) []byte {
		b := free[p][:bytes:bytes]
		free[p] = free[p][pages(bytes):]
		return b
	}
	for _, l := range layouts {
		tile, lo, moment := stateBytes(l)
		if !moments {
			moment = 0
		}
		s.Layers = append(s.Layers, &LayerState{
			Layout: l,
			Tile:   take(ForWeights, tile),
			Lo:     view[uint16](take(ForLoPlanes, lo)),
			M:      view[float32](take(ForMoments, moment)),
			V:      view[float32](take(ForMoments, moment)),
			pool:   pool,
			pieces: cut(l),
		})
	}
	return s, nil
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

// stateBytes are the sizes of a layer's tile, lo plane and one of its moments.
func stateBytes(l model.Layout) (tile, lo, moment int64) {
	for _, t := range l.Tensors {
		if t.BF16 && !t.Ref {
			lo = 2 * l.Elems
		}
	}
	return l.TileBytes, lo, 4 * l.Elems
}

// StoreBytes is what NewStore takes for these layouts, by purpose.
func StoreBytes(layouts []model.Layout) (bytes [NumPurposes]int64) {
	for _, l := range layouts {
		tile, lo, moment := stateBytes(l)
		bytes[ForWeights] += pages(tile)
		bytes[ForLoPlanes] += pages(lo)
		bytes[ForMoments] += 2 * pages(moment)
	}
	return bytes
}

func needs(need [NumPurposes]int64) string {
	return fmt.Sprintf("%s %s, %s %s, %s %s", ForWeights, size(need[ForWeights]),
		ForLoPlanes, size(need[ForLoPlanes]), ForMoments, size(need[ForMoments]))
}

// pages rounds bytes up to whole pages.
func pages(bytes int64) int64 { return (bytes + pageBytes - 1) / pageBytes * pageBytes }

// view sees b as elements of type E. It panics when b is not aligned for them.
func view[E uint16 | float32](b []byte) []E {
	var e E
	size := int(unsafe.Sizeof(e))
	if len(b) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%uintptr(size) != 0 || len(b)%size != 0 {
		panic(fmt.Sprintf("host: %d bytes at %#x are not elements of %d bytes", len(b), uintptr(p), size))
	}
	return unsafe.Slice((*E)(p), len(b)/size)
}

// tensor is the layout of tensor t, which must be owned and, as split says,
// split or plain.
func (l *LayerState) tensor(t int, split bool) model.TensorLayout {
	tl := l.owned(t)
	if tl.BF16 != split {
		panic(fmt.Sprintf("host: layer %d %s: split %t, wanted %t", l.Layout.Index, tl.Role, tl.BF16, split))
	}
	return tl
}

// owned is the layout of tensor t, which must not be a reference.
func (l *LayerState) owned(t int) model.TensorLayout {
	tl := l.Layout.Tensors[t]
	if tl.Ref {
		panic(fmt.Sprintf("host: layer %d %s is the embedding's tensor and has no memory of its own", l.Layout.Index, tl.Role))
	}
	return tl
}

// HiPlane is the bf16 image of tensor t, a view into the tile (rows, cols). The
// tensor must be split.
func (l *LayerState) HiPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return view[uint16](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}

// LoPlane is the signed lower halves of tensor t (rows, cols), which must be
// split.
func (l *LayerState) LoPlane(t int) []uint16 {
	tl := l.tensor(t, true)
	return l.Lo[tl.Elem : tl.Elem+tl.Elems()]
}

// F32Plane is tensor t, a view into the tile (rows, cols). The tensor must be
// plain fp32.
func (l *LayerState) F32Plane(t int) []float32 {
	tl := l.tensor(t, false)
	return view[float32](l.Tile[tl.TileOff : tl.TileOff+tl.TileBytes()])
}
