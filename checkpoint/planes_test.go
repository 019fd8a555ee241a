package checkpoint

import (
	"bytes"
	"slices"
	"testing"

	"mt/host/optim"
	"mt/model"
)

// TestNamesOfState: what AdamW keeps has these names and types in the optimizer's
// files, in this order, since there have been any.
func TestNamesOfState(t *testing.T) {
	l := small(t).Layouts(true)[2] // the head: its norm
	for d, want := range map[DType][]string{
		BF16: {"F32 m.model.norm.weight", "F32 v.model.norm.weight", "U16 lo.model.norm.weight"},
		F32:  {"F32 m.model.norm.weight", "F32 v.model.norm.weight"},
	} {
		var got []string
		for _, e := range optimizerFile(2, l, planes.Of(l), d, false).entries {
			got = append(got, e.dtype+" "+e.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestPlanesByName: a plane of any name comes back as it was saved, and it is an error
// where the layers have other planes than were saved.
func TestPlanesByName(t *testing.T) {
	c := small(t)
	both := []optim.Plane{{Name: "another", DType: optim.F32}, {Name: "average", DType: optim.F32}}
	kept := optim.Planes(func(model.Param) []optim.Plane { return both })
	layersOf := func(fills ...byte) []Layer {
		layers := newLayers(c, true)
		for i, l := range layers {
			layers[i].Planes = nil
			for k, p := range both {
				layers[i].Planes = append(layers[i].Planes, optim.State{Plane: p, Data: bytes.Repeat([]byte{fills[k]}, int(p.Bytes(l.Layout)))})
			}
		}
		return layers
	}
	layers, out := layersOf(3, 5), t.TempDir()
	o := options(c, layers, BF16)
	o.Planes = kept
	w, err := NewWriter(out, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range layers {
		if err := w.WriteLayer(i, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(testState, nil); err != nil {
		t.Fatal(err)
	}
	to := layersOf(0, 0)
	if _, err := Load(out+"/checkpoint-20", to, nil); err != nil {
		t.Fatal(err)
	}
	for i, l := range to {
		for _, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			for k, fill := range []byte{3, 5} {
				if got := l.Planes[k].Data[4*tl.Elem:][:4*tl.Elems()]; bytes.Count(got, []byte{fill}) != len(got) {
					t.Errorf("layer %d: %s of the %s is not what it was", i, tl.Role, l.Planes[k].Name)
				}
			}
		}
	}
	if _, err := Load(out+"/checkpoint-20", newLayers(c, true), nil); err == nil {
		t.Error("a checkpoint without m and v is resumed from")
	}
}
