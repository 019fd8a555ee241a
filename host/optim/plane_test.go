package optim

import (
	"bytes"
	"slices"
	"testing"

	"mt/model"
)

// stacked returns a layer with two parameters and a reference to another layer's table. The first
// parameter stacks three PyTorch tensors of 300, 128 and 64 elements; the second has 512 elements.
func stacked() model.Layout {
	name := func(row, rows int) model.Stored { return model.Stored{Name: "t", Row: row, Rows: rows} }
	l := model.Layer{Kind: model.Head, Tied: true, Params: []model.Param{
		{Role: model.RoleQKV, Rows: 123, Cols: 4, Dims: 2, Stored: []model.Stored{name(0, 75), name(75, 32), name(107, 16)}},
		{Role: model.RoleFinalNorm, Rows: 7, Cols: 1, Dims: 1},
		{Role: model.RoleDown, Rows: 128, Cols: 4, Dims: 2}}}
	return model.NewLayout(l, true, model.Param{Role: model.RoleEmbed, Rows: 9, Cols: 4, Dims: 2})
}

// TestPlanesOfALayer: Planes.Of lists each plane of a layer once, in order. A plane has values for
// exactly the pieces that need it, and none for references to other layers' tensors.
func TestPlanesOfALayer(t *testing.T) {
	l := stacked()
	codes, scales, all := Plane{Name: "codes", DType: U8}, Plane{Name: "scales", DType: F32, Block: 128}, Plane{Name: "all", DType: F32}
	half := Plane{Name: "half", DType: U4, Block: 100}
	planes := Planes(func(p Piece) []Plane {
		switch {
		case p.Param.Role == model.RoleEmbed:
			return []Plane{{Name: "of a reference"}}
		case p.Elems()%128 == 0:
			return []Plane{codes, scales, all}
		case p.Elems() == 300:
			return []Plane{half, all}
		}
		return []Plane{all}
	})
	type place struct{ first, n int64 }
	for i, want := range []struct {
		Plane
		places        [][]place
		values, bytes int64
	}{
		{half, [][]place{{{0, 4}, {}, {}}, {{}}, {{}}}, 128, 64},
		{all, [][]place{{{0, 300}, {300, 128}, {428, 64}}, {{512, 7}}, {{640, 512}}}, 1152, 4608},
		{codes, [][]place{{{}, {0, 128}, {}}, {{}}, {{128, 512}}}, 640, 640},
		{scales, [][]place{{{}, {0, 1}, {}}, {{}}, {{128, 4}}}, 256, 1024},
	} {
		got := planes.Of(l)[i]
		if got.Plane != want.Plane || got.Values != want.values || got.Bytes() != want.bytes {
			t.Fatalf("plane %d: %v of %d values, %d bytes, want %+v", i, got.Plane, got.Values, got.Bytes(), want)
		}
		for tensor, pieces := range want.places {
			for k, at := range pieces {
				if first, n := got.Piece(l, tensor, k); (place{first, n}) != at {
					t.Errorf("%s of tensor %d, piece %d: %d values from %d on, want %v", want.Name, tensor, k, n, first, at)
				}
			}
		}
	}
	if n, want := planes.Bytes(l), int64(64+4608+640+1024); n != want || planes.UpdateBytes(l) != 2*(4*l.Elems+want) {
		t.Errorf("planes of %d bytes, an update of %d", n, planes.UpdateBytes(l))
	}
	if Planes(nil).Of(l) != nil || Planes(nil).UpdateBytes(l) != 8*l.Elems {
		t.Error("without planes there are some")
	}
}

// TestPlanesOfShares: the ranks' parts of a plane, one after the other, are the plane. Each rank's
// part has the values of the units in its share.
func TestPlanesOfShares(t *testing.T) {
	l := stacked()
	some := Plane{Name: "some", DType: U4}
	blocks := Plane{Name: "blocks", DType: F32, Block: 32}
	planes := Planes(func(p Piece) []Plane {
		if p.Elems()%128 == 0 { // not the last of the first parameter
			return []Plane{some, blocks}
		}
		return nil
	})
	var units []Unit // of 32 elements, as blocks have, cut at pieces
	for k, tl := range l.Tensors {
		for _, p := range Pieces(tl.Param) {
			for at := int64(0); at < p.Elems() && !tl.Ref; at += 32 {
				units = append(units, Unit{Tensor: k, At: p.At() + at, N: min(32, p.Elems()-at)})
			}
		}
	}
	for n := 1; n <= 40; n++ {
		shares := Shares(l, units, n)
		for _, p := range planes.Of(l) {
			whole := NewState(p, l, Whole(l), func(n int64) []byte { return make([]byte, n) })
			for i := range whole.Data {
				whole.Data[i] = byte(i*7 + i>>8)
			}
			var joined []byte
			for _, s := range shares {
				from, _ := p.Range(l, s)
				part := NewState(p, l, s, func(n int64) []byte { return slices.Clone(whole.Data[p.DType.Bytes(from):][:n]) })
				joined = append(joined, part.Data...)
				for _, u := range units {
					if own := s.Has(l.Tensors[u.Tensor].Elem + u.At); own && !bytes.Equal(part.Of(&l, u), whole.Of(&l, u)) {
						t.Fatalf("%d ranks: %s of unit %+v in share %v", n, p.Name, u, s)
					}
				}
			}
			if !bytes.Equal(joined, whole.Data) {
				t.Fatalf("%d ranks: their parts of %s are not the plane", n, p.Name)
			}
		}
	}
	first := planes.Of(l)[0]
	whole := NewState(first, l, Whole(l), func(n int64) []byte { return make([]byte, n) })
	if whole.Of(&l, units[0]) != nil {
		t.Error("a piece that asked for no values has some")
	}
	if got := whole.Of(&l, Unit{Tensor: 2, At: 64, N: 32}); len(got) != 16 || &got[0] != &whole.Data[(128+64)/2] {
		t.Errorf("%d bytes of a unit of 32 codes of 4 bits", len(got))
	}
}
