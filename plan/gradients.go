package plan

import "mt/layers"

// Gradient says where the gradient of a layer is, and what it is of, when the layer
// is updated.
type Gradient struct {
	// In is the layer in whose slab it is: the layer itself or, where its table is
	// another layer's too, that one, from element From on.
	In   int
	From int64
	// Row is the size of a row, in elements, where the layer's own gradient is that of
	// the rows of its table which a batch uses; 0: it is that of all its tensors.
	Row int64
	// Tensors are where in the layer's own slab those are; without Row.
	Tensors []layers.Range
	// Table is the size of the table in elements, where In is another layer.
	Table int64
}

// OfRows says whether layer l, whose gradient g describes, is updated by rows: it is not
// where they are merged into another's gradient of the whole table.
func (g Gradient) OfRows(l int) bool { return g.Row > 0 && g.In == l }

// Ranges are what is measured of the layer's own gradient, for a batch of so many
// unique ids.
func (g Gradient) Ranges(ids int) []layers.Range {
	if g.Row > 0 {
		return []layers.Range{{Elems: int64(ids) * g.Row}}
	}
	return g.Tensors
}

// Gradients are those of all layers.
func (r *Run) Gradients() []Gradient {
	out := make([]Gradient, len(r.Layouts))
	for l, layout := range r.Layouts {
		out[l].In, out[l].Row = l, r.Kind(l).RowElems(layout)
		for _, t := range layout.Tensors {
			out[l].Tensors = append(out[l].Tensors, layers.Range{To: t.Elem, Elems: t.Elems()})
		}
	}
	for l, layout := range r.Layouts {
		for _, t := range layout.Tensors {
			if t.Ref { // to the embedding's
				out[0].In, out[0].From, out[0].Table = l, t.Elem, t.Elems()
			}
		}
	}
	return out
}
