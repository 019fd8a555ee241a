package host

import (
	"mt/host/optim"
	"mt/internal/accounts"
	"mt/internal/parallel"
	"mt/model"
)

// NewAliased is NewStore for measurements of models that are larger than the host: layers
// that are alike (the blocks of a model) have one memory between them. Whoever works on
// such a store moves as many bytes as on another, but its numbers mean nothing: an update
// of one layer changes all that are like it, and it may do so while another is read.
func NewAliased(layouts []model.Layout, planes optim.Planes, pool *parallel.Pool) (*Store, error) {
	distinct, place := aliases(layouts)
	s, err := NewStore(distinct, planes, pool)
	if err != nil {
		return nil, err
	}
	own := s.Layers
	s.Layers, s.aliased = nil, true
	for i, l := range layouts {
		state := *own[place[i]]
		state.Layout = l
		s.Layers = append(s.Layers, &state)
	}
	return s, nil
}

// Aliased says whether layers share their memory, so that what the store holds is nothing
// to save.
func (s *Store) Aliased() bool { return s.aliased }

// Distinct are the layers that have a memory of their own, each once.
func (s *Store) Distinct() (layers []int) {
	seen := map[*byte]bool{}
	for i, l := range s.Layers {
		switch {
		case s.tier.hasTile(i): // none is shared there
			layers = append(layers, i)
		case len(l.Tile) > 0 && !seen[&l.Tile[0]]:
			seen[&l.Tile[0]] = true
			layers = append(layers, i)
		}
	}
	return layers
}

// AliasedBytes is what NewAliased takes for these layouts and planes, by purpose.
func AliasedBytes(layouts []model.Layout, planes optim.Planes) [accounts.NumPurposes]int64 {
	distinct, _ := aliases(layouts)
	return StoreBytes(distinct, planes)
}

// aliases are the layouts of which no two are alike, and which of them stands for each of
// all layouts.
func aliases(layouts []model.Layout) (distinct []model.Layout, place []int) {
	for _, l := range layouts {
		at := len(distinct)
		for k, d := range distinct {
			if alike(l, d) {
				at = k
				break
			}
		}
		if at == len(distinct) {
			distinct = append(distinct, l)
		}
		place = append(place, at)
	}
	return distinct, place
}

// alike says whether two layers have the same tensors at the same places.
func alike(a, b model.Layout) bool {
	if a.Kind != b.Kind || len(a.Tensors) != len(b.Tensors) || a.TileBytes != b.TileBytes || a.Elems != b.Elems || a.GradElems != b.GradElems {
		return false
	}
	for i, t := range a.Tensors {
		u := b.Tensors[i]
		if t.Role != u.Role || t.Rows != u.Rows || t.Cols != u.Cols || t.Dims != u.Dims || t.Part != u.Part || t.BF16 != u.BF16 ||
			t.Ref != u.Ref || t.TileOff != u.TileOff || t.Elem != u.Elem {
			return false
		}
	}
	return true
}
