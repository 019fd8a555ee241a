package host

import (
	"bytes"
	"testing"

	"mt/host/optim"
	"mt/model"
)

// Blocks that are alike have one memory; an embedding, a head and a block of another
// width have their own.
func TestAliased(t *testing.T) {
	layers := []model.Layer{embedding(67, 19), block(1, 19, 8), block(2, 19, 8), block(3, 19, 9), block(4, 19, 8), tiedHead(5, 19)}
	var ls []model.Layout
	for _, l := range layers {
		ls = append(ls, model.NewLayout(l, true, layers[0].Params[0]))
	}
	recipe := optim.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	s, err := NewAliased(ls, recipe.Planes, poolOf(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Aliased() || len(s.Layers) != 6 || len(s.Distinct()) != 4 {
		t.Fatalf("aliased %v, %d layers, %d of them distinct", s.Aliased(), len(s.Layers), len(s.Distinct()))
	}
	for i, l := range s.Layers {
		if l.Layout.Index != i {
			t.Errorf("layer %d has the layout of %d", i, l.Layout.Index)
		}
	}
	own := func(i int) byte { return s.Layers[i].Tile[0] + s.Layers[i].Plane("m")[0] }
	for i := range s.Layers {
		s.Layers[i].Tile[0], s.Layers[i].Plane("m")[0] = byte(10*i), byte(i)
	}
	if own(1) != own(4) || own(2) != own(4) || own(3) != 33 || own(0) != 0 || own(5) != 55 {
		t.Errorf("%d %d %d %d %d %d", own(0), own(1), own(2), own(3), own(4), own(5))
	}
	four, _ := aliases(ls)
	if whole, taken := StoreBytes(ls, recipe.Planes), AliasedBytes(ls, recipe.Planes); taken != StoreBytes(four, recipe.Planes) || taken == whole || len(four) != 4 {
		t.Errorf("takes %v of %v", taken, whole)
	}
	g := optim.Grad{Data: bytes.Repeat([]byte{0x3c}, int(4*ls[2].Elems)), Elems: ls[2].Elems}
	before := bytes.Clone(s.Layers[4].Plane("v"))
	s.Layers[2].Update(g, recipe, optim.Rate{LR: 1, Step: 1, Clip: 1})
	if bytes.Equal(before, s.Layers[4].Plane("v")) {
		t.Error("an update of block 2 did not change block 4")
	}
	plain, err := NewStore(ls, recipe.Planes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if plain.Aliased() || len(plain.Distinct()) != 6 {
		t.Errorf("a plain store: aliased %v, %d distinct", plain.Aliased(), len(plain.Distinct()))
	}
}
