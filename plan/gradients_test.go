package plan

import (
	"math/rand"
	"testing"

	"mt/model"
)

// TestGradientsLieInTheirSlabs: what a layer is updated by, and what is measured of
// its own gradient, are in the slabs; a table that the head shares is where the head
// has it.
func TestGradientsLieInTheirSlabs(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	tied := 0
	for range 40 {
		layouts, spec := randomModel(r)
		run := &Run{Layouts: layouts, Spec: spec, Clip: true, Limits: Limits{UniqueIDs: 5}}
		slab := func(l int) int64 { return run.SlabBytes()[l] / run.GradBytes() }
		head := run.Head()
		for l, g := range run.Gradients() {
			var own, end int64 // elements of what is measured; where the last range ends
			for _, x := range g.Ranges(5) {
				if x.To < end || x.To+x.Elems > slab(l) {
					t.Fatalf("layer %d: elements %d to %d are measured after %d in a slab of %d", l, x.To, x.To+x.Elems, end, slab(l))
				}
				own, end = own+x.Elems, x.To+x.Elems
			}
			shares := l == 0 && layouts[head].Tied
			switch {
			case l > 0 && (g.In != l || g.From != 0 || g.OfRows(l) || own != elems(layouts[l])):
				t.Errorf("layer %d: %+v, %d elements are measured", l, g, own)
			case l == 0 && (g.Row != int64(spec.Config.HiddenSize) || own != 5*g.Row || g.OfRows(0) == shares):
				t.Errorf("the embedding, shared %t: %+v, %d elements are measured", shares, g, own)
			case shares:
				tied++
				at, _ := layouts[head].Tensor(model.RoleLMHead)
				if g.In != head || g.From != at.Elem || g.Table != at.Elems() || g.From+layouts[0].Elems > slab(head) {
					t.Errorf("a shared table: %+v, the head has it at %d, %d elements", g, at.Elem, at.Elems())
				}
			}
		}
	}
	if tied == 0 {
		t.Error("no table was shared")
	}
}

// elems is how many a layer's gradient has, without padding.
func elems(l model.Layout) (n int64) {
	for _, t := range l.Tensors {
		n += t.Elems()
	}
	return n
}
