package optim

import (
	"testing"

	"mt/model"
)

// odd returns a layer with two tensors of its own and a reference to another layer's table. The
// first tensor has more elements than a unit.
func odd(bf16 bool) model.Layout {
	table := model.Param{Role: model.RoleEmbed, Rows: 50, Cols: 19, Dims: 2}
	l := model.Layer{Kind: model.Head, Tied: true, Params: []model.Param{
		{Role: model.RoleDown, Rows: 1001, Cols: 67, Dims: 2}, {Role: model.RoleFinalNorm, Rows: 19, Cols: 1, Dims: 1}}}
	return model.NewLayout(l, bf16, table)
}

// TestUnitsCoverALayer: every element that the layer owns is in exactly one unit.
func TestUnitsCoverALayer(t *testing.T) {
	l := odd(true)
	for name, o := range map[string]Optimizer{"adamw": AdamW{}, "adamw 8-bit": Quantised{By: AdamW{}, Bits: 8}, "adamw 4-bit": Quantised{By: AdamW{}, Bits: 4},
		"lion 8-bit": Quantised{By: Lion{}, Bits: 8}} {
		at := make([]int64, len(l.Tensors))
		for _, u := range o.Units(l) {
			if u.At != at[u.Tensor] || u.N <= 0 || u.N > pieceElems {
				t.Errorf("%s: unit %+v behind element %d", name, u, at[u.Tensor])
			}
			at[u.Tensor] += u.N
		}
		for i, tl := range l.Tensors {
			if want := tl.Elems(); tl.Ref && at[i] != 0 || !tl.Ref && at[i] != want {
				t.Errorf("%s: %s: %d elements in units, of %d; reference %t", name, tl.Role, at[i], want, tl.Ref)
			}
		}
	}
}

// TestStepNeedsItsPlanes: an update of weights without their planes panics.
func TestStepNeedsItsPlanes(t *testing.T) {
	l := odd(false)
	w := Weight{Layout: &l, Tile: bytesOf(make([]float32, l.TileBytes/4))}
	g := gradOf(l.Tensors[0].Elems(), false, 1, mean)
	u := AdamW{}.Units(l)[0]
	some := []State{NewState(Planes(AdamW{}.Planes).Of(l)[0], l, Whole(l), func(n int64) []byte { return bytesOf(make([]float32, n/4)) })}
	mustPanic(t, func() { AdamW{}.At(Rate{Step: 1}).Step(u, w, some, g) })
}
