package plan

import (
	"fmt"
	"math/rand"
	"testing"

	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// randomModel returns a small model. It may have experts, and its head may be tied, and may be
// whole or in parts.
func randomModel(r *rand.Rand) (layouts []model.Layout, spec layers.Spec) {
	c := config(1+r.Intn(3), r.Intn(2) == 0)
	c.VocabSize, c.HiddenSize, c.IntermediateSize, c.NumHeads, c.NumKVHeads, c.HeadDim = 37, 16, 24, 2, 1, 8
	if r.Intn(2) == 0 {
		c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep = 1+r.Intn(4), 1, 12, 1
	}
	return c.Layouts(r.Intn(2) == 0), layers.Spec{Config: c, HeadShards: r.Intn(5)}
}

// TestTilesCoverTheirSlots: the copies of a tile write every byte of the tile's tensors once, from
// the right byte on the host. The gradients of a layer's tiles together cover every element of the
// layer's tensors once.
func TestTilesCoverTheirSlots(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 60 {
		layouts, spec := randomModel(r)
		landed := map[string]int64{} // elements of a layer's tensor that have a gradient
		for _, tile := range layers.Tiles(layouts, spec) {
			if tile.Layer == 0 {
				continue // a batch's rows are gathered
			}
			for _, x := range tile.Layout.Tensors {
				checkCopies(t, layouts, spec, tile, x)
				whole, _ := owner(layouts, tile.Layer, x)
				for e := range x.Elems() {
					at, ok := tile.Slab(x.Elem + e)
					if !ok {
						continue
					}
					name := fmt.Sprintf("%d %s %d", tile.Layer, x.Role, x.Part)
					if want := whole.Elem + landed[name]; at != want {
						t.Fatalf("%s: element %d of the buffer goes to element %d of the slab, want %d", name, x.Elem+e, at, want)
					}
					landed[name]++
				}
			}
		}
		for _, l := range layouts[1:] {
			for _, x := range l.Tensors {
				if name := fmt.Sprintf("%d %s %d", l.Index, x.Role, x.Part); landed[name] != x.Elems() {
					t.Fatalf("%s: %d of %d elements have a gradient", name, landed[name], x.Elems())
				}
			}
		}
	}
}

// owner returns the whole layer's tensor from which x has all or some rows. Result on is the layer
// whose tile holds the tensor on the host: the embedding for a tied head.
func owner(layouts []model.Layout, layer int, x model.TensorLayout) (whole model.TensorLayout, on int) {
	for _, w := range layouts[layer].Tensors {
		if w.Role == x.Role && w.Part == x.Part {
			if w.Ref {
				return w, 0
			}
			return w, layer
		}
	}
	panic("no such tensor")
}

// checkCopies fails unless every byte of x in the slot is copied once, from the right byte of the
// right layer's tile.
func checkCopies(t *testing.T, layouts []model.Layout, spec layers.Spec, tile layers.Tile, x model.TensorLayout) {
	t.Helper()
	whole, on := owner(layouts, tile.Layer, x)
	from := whole.TileOff
	if whole.Ref {
		from = 0
	}
	if x.Rows != whole.Rows {
		from += int64(spec.Shard(tile.Part).From) * whole.TileBytes() / int64(whole.Rows)
	}
	for b := range x.TileBytes() {
		covered := 0
		for _, c := range tile.Copies {
			if off := x.TileOff + b; off >= c.To && off < c.To+c.Bytes {
				covered++
				if at := c.From + off - c.To; c.Layer != on || at != from+b {
					t.Fatalf("byte %d of %s comes from byte %d of layer %d, want %d of layer %d", b, x.Role, at, c.Layer, from+b, on)
				}
			}
		}
		if covered != 1 {
			t.Fatalf("byte %d of %s of layer %d part %d is copied %d times", b, x.Role, tile.Layer, tile.Part, covered)
		}
	}
}

// TestTilesAreThoseOfTheSchedule: layers.Tiles has a tile with the layer and part of every visit in
// the schedule.
func TestTilesAreThoseOfTheSchedule(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 20 {
		layouts, spec := randomModel(r)
		run := &Run{Layouts: layouts, Spec: spec, Experts: spec.Config.NumExperts, Depths: Depths{WeightSlots: 2, ActivationSlots: 40}}
		p := testkit.Must(schedule.New(run.Schedule(), []int{1}))(t)
		tiles := layers.Tiles(layouts, spec)
		for _, v := range p.Visits {
			if x := tiles[v.Tile]; x.Layer != v.Layer || x.Part != v.Part {
				t.Fatalf("tile %d is of layer %d part %d, and a visit to layer %d part %d takes it", v.Tile, x.Layer, x.Part, v.Layer, v.Part)
			}
		}
	}
}
