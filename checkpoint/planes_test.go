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

// TestPlanesByName: a plane that nobody has heard of comes back, and where the
// layers keep others than were saved that is said.
func TestPlanesByName(t *testing.T) {
	c := small(t)
	average := optim.Plane{Name: "average", DType: optim.F32}
	kept := optim.Planes(func(model.Param) []optim.Plane { return []optim.Plane{average} })
	layersOf := func(fill byte) []Layer {
		layers := newLayers(c, true)
		for i, l := range layers {
			layers[i].Planes = []optim.State{{Plane: average, Data: bytes.Repeat([]byte{fill}, int(average.Bytes(l.Layout)))}}
		}
		return layers
	}
	layers, out := layersOf(3), t.TempDir()
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
	to := layersOf(0)
	if _, err := Load(out+"/checkpoint-20", to, nil); err != nil {
		t.Fatal(err)
	}
	for i, l := range to {
		for _, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			if got := l.Planes[0].Data[4*tl.Elem:][:4*tl.Elems()]; bytes.Count(got, []byte{3}) != len(got) {
				t.Errorf("layer %d: %s of the average is not what it was", i, tl.Role)
			}
		}
	}
	if _, err := Load(out+"/checkpoint-20", newLayers(c, true), nil); err == nil {
		t.Error("a checkpoint without m and v is resumed from")
	}
}
