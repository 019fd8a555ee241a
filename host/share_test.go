package host

import (
	"bytes"
	"fmt"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// wide returns an embedding, a block and a head. The embedding is so large that units (of 32768
// elements) cut its rows.
func wide(hidden int, bf16 bool) []model.Layout {
	embed := model.Param{Role: model.RoleEmbed, Rows: 157, Cols: hidden, Dims: 2}
	var out []model.Layout
	for i, l := range []model.Layer{
		{Kind: model.Embedding, Params: []model.Param{embed}},
		{Kind: model.Block, Params: []model.Param{{Role: model.RoleAttnNorm, Rows: 1, Cols: hidden, Dims: 1}, {Role: model.RoleGateUp, Rows: 211, Cols: hidden, Dims: 2}}},
		{Kind: model.Head, Params: []model.Param{{Role: model.RoleFinalNorm, Rows: 1, Cols: hidden, Dims: 1}}},
	} {
		l.Index = i
		out = append(out, model.NewLayout(l, bf16, embed))
	}
	return out
}

// TestShares: for any number of ranks, their shares cover every element of a layer once, in order,
// and the shares' ranges of the tile cover the tile. The ranks' updates together give the bits of a
// single rank, for dense gradients and gradients of some rows.
func TestShares(t *testing.T) {
	cut := false
	for _, hidden := range []int{64, 576, 896} {
		for _, bf16 := range []bool{false, true} {
			for ranks := 1; ranks <= 5; ranks++ {
				t.Run(fmt.Sprintf("hidden %d bf16 %t ranks %d", hidden, bf16, ranks), func(t *testing.T) {
					l := wide(hidden, bf16)
					whole := newStore(t, l, poolOf(t, 2))
					fillStore(whole, 9, mean)
					shares := make([][]optim.Share, len(l))
					for i := range l {
						shares[i] = optim.Shares(l[i], recipe.Units(l[i]), ranks)
						checkShares(t, l[i], shares[i])
					}
					var stores []*Store
					for r := range ranks {
						var own []optim.Share
						for i := range l {
							own = append(own, shares[i][r])
						}
						stores = append(stores, shareOfStore(t, whole, own))
					}
					table := l[0].Tensors[0]
					ids := []int32{0, 3, 4, 56, 57, 58, 59, 155, 156}
					rows, dense := gradOf(int64(len(ids)*table.Cols), bf16, 5, mean), gradOf(l[1].Elems, !bf16, 6, mean)
					whole.Layers[0].UpdateRows(ids, rows, recipe, rate)
					whole.Layers[1].Update(dense, recipe, rate)
					for r, s := range stores {
						cut = cut || shares[0][r].From%int64(hidden) != 0
						s.Layers[0].UpdateRows(ids, rows, recipe, rate)
						own := shares[1][r]
						s.Layers[1].Update(dense.Part(own.From, own.Elems()), recipe, rate)
						for i := range l {
							sameShare(t, whole.Layers[i], s.Layers[i])
						}
					}
				})
			}
		}
	}
	if !cut {
		t.Error("no share began inside a row")
	}
}

func checkShares(t *testing.T, l model.Layout, shares []optim.Share) {
	t.Helper()
	at, tile := int64(0), int64(0)
	for r, s := range shares {
		from, to := s.Tile(l)
		if s.From != at || s.To < s.From || from != tile || to < from {
			t.Fatalf("rank %d has elements %d to %d and bytes %d to %d of the tile, behind %d and %d", r, s.From, s.To, from, to, at, tile)
		}
		if n := s.Elems() - l.Elems/int64(len(shares)); n > 1<<15 || n < -1<<15 {
			t.Errorf("rank %d has %d of %d elements", r, s.Elems(), l.Elems)
		}
		at, tile = s.To, to
	}
	if at != l.Elems || tile != l.TileBytes {
		t.Fatalf("all ranks have %d of %d elements, and %d of %d bytes of the tile", at, l.Elems, tile, l.TileBytes)
	}
}

// shareOfStore returns a store of these shares with the content of whole, which it copies row by
// row, as loading a model does.
func shareOfStore(t *testing.T, whole *Store, shares []optim.Share) *Store {
	t.Helper()
	var l []model.Layout
	for _, layer := range whole.Layers {
		l = append(l, layer.Layout)
	}
	s := testkit.Must(NewShareStore(l, recipe.Planes, shares, poolOf(t, 2)))(t)
	t.Cleanup(func() { _ = s.Close() })
	for i, layer := range whole.Layers {
		for n, tl := range layer.Layout.Tensors {
			row := make([]float32, tl.Cols)
			for r := range tl.Rows {
				layer.ReadRows(n, r, 1, row)
				s.Layers[i].WriteRows(n, r, 1, row)
			}
		}
		for _, p := range s.Layers[i].Planes {
			copy(p.Data, layer.Plane(p.Name)[4*shares[i].From:4*shares[i].To])
		}
	}
	return s
}

// sameShare compares one rank's share of a layer with the whole layer: its part of the tile, its
// lower halves and its planes.
func sameShare(t *testing.T, whole, part *LayerState) {
	t.Helper()
	own := part.Share
	from, to := own.Tile(whole.Layout)
	if !bytes.Equal(whole.Tile[from:to], part.Tile[from:to]) {
		t.Errorf("layer %d: bytes %d to %d of the tile differ", whole.Layout.Index, from, to)
	}
	for i, lo := range part.Lo {
		if lo != whole.Lo[own.From+int64(i)] {
			t.Fatalf("layer %d: lower half %d of %d differs", whole.Layout.Index, i, len(part.Lo))
		}
	}
	for _, p := range part.Planes {
		if int64(len(p.Data)) != 4*own.Elems() || !bytes.Equal(p.Data, whole.Plane(p.Name)[4*own.From:4*own.To]) {
			t.Errorf("layer %d: %s differs", whole.Layout.Index, p.Name)
		}
	}
}

// TestShareBytes: a store of one rank's shares allocates as many bytes as ShareBytes says. That is
// 2 bytes for each weight of the tile, and its share of the 10 bytes for each weight's lower half
// and moments.
func TestShareBytes(t *testing.T) {
	l, before := wide(576, true), Usage()
	var own []optim.Share
	var params int64
	for _, layout := range l {
		own = append(own, optim.Shares(layout, recipe.Units(layout), 3)[1])
		params += layout.Layer.Elems()
	}
	s := testkit.Must(NewShareStore(l, recipe.Planes, own, nil))(t)
	var held, planned int64
	for p, n := range ShareBytes(l, recipe.Planes, own) {
		held += Usage().Now[p] - before.Now[p]
		planned += n
	}
	if want := 2*params + 10*params/3; held != planned || held < want*8/10 || held > want*12/10 {
		t.Errorf("%d bytes, planned %d, wanted about %d", held, planned, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
