package optim

import (
	"slices"
	"testing"

	"mt/model"
)

// odd is a layer that has a reference and owns two tensors, the first of which has
// more elements than a unit.
func odd(bf16 bool) model.Layout {
	table := model.Param{Role: model.RoleEmbed, Rows: 50, Cols: 19, Dims: 2}
	l := model.Layer{Kind: model.Head, Tied: true, Params: []model.Param{
		{Role: model.RoleDown, Rows: 1001, Cols: 67, Dims: 2}, {Role: model.RoleFinalNorm, Rows: 19, Cols: 1, Dims: 1}}}
	return model.NewLayout(l, bf16, table)
}

// TestUnitsCoverALayer: every element that the layer owns is in exactly one unit.
func TestUnitsCoverALayer(t *testing.T) {
	l := odd(true)
	at := make([]int64, len(l.Tensors))
	for _, u := range (AdamW{}).Units(l) {
		if u.At != at[u.Tensor] || u.N <= 0 || u.N > pieceElems {
			t.Errorf("unit %+v behind element %d", u, at[u.Tensor])
		}
		at[u.Tensor] += u.N
	}
	for i, tl := range l.Tensors {
		if want := tl.Elems(); tl.Ref && at[i] != 0 || !tl.Ref && at[i] != want {
			t.Errorf("%s: %d elements in units, of %d; reference %t", tl.Role, at[i], want, tl.Ref)
		}
	}
}

// TestPlanesOfALayer: each plane is listed once, in order, for all elements.
// References have none, and neither has a layer none of whose parameters asks for
// one.
func TestPlanesOfALayer(t *testing.T) {
	l := odd(false)
	other := Plane{Name: "other", DType: F32}
	planes := Planes(func(p model.Param) []Plane {
		switch p.Role {
		case model.RoleDown:
			return []Plane{secondMoment, other}
		case model.RoleFinalNorm:
			return []Plane{firstMoment, secondMoment}
		}
		return []Plane{{Name: "of a reference"}}
	})
	if got, want := planes.Of(l), []Plane{secondMoment, other, firstMoment}; !slices.Equal(got, want) {
		t.Errorf("planes %v, want %v", got, want)
	}
	// In numbers: 4 bytes an element for each plane; an update reads and writes them and the
	// weight.
	if got, want := planes.Bytes(l), 12*l.Elems; got != want {
		t.Errorf("planes of %d bytes, want %d", got, want)
	}
	if got, want := planes.UpdateBytes(l), 32*l.Elems; got != want {
		t.Errorf("an update of %d bytes, want %d", got, want)
	}
	if Planes(nil).Of(l) != nil || Planes(nil).UpdateBytes(l) != 8*l.Elems {
		t.Error("without planes there are some")
	}
}

// TestStepNeedsItsPlanes: an update of weights without their planes panics.
func TestStepNeedsItsPlanes(t *testing.T) {
	l := odd(false)
	w := Weight{Layout: &l, Tile: bytesOf(make([]float32, l.TileBytes/4))}
	g := gradOf(l.Tensors[0].Elems(), false, 1, mean)
	u := AdamW{}.Units(l)[0]
	some := []State{{Plane: firstMoment, Data: bytesOf(make([]float32, l.Elems))}}
	mustPanic(t, func() { AdamW{}.At(Rate{Step: 1}).Step(u, w, some, g) })
}
