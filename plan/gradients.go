package plan

import "mt/layers"

// Gradient says where the gradient of a layer is, and what it is of, when the layer
// is updated.
type Gradient struct {
	// In is the layer in whose slab the gradient is, from element From on: the layer
	// itself or, where it shares its table with another layer, the other.
	In   int
	From int64
	// Row is the size of a row, in elements, where the layer's own gradient has only the
	// rows of its table that a batch uses; 0: it has all the layer's tensors.
	Row int64
	// Tensors say where in the layer's own slab its tensors are, where Row is 0.
	Tensors []layers.Range
	// Table is the size of the shared table in elements, where In is another layer.
	Table int64
}

// OfRows says whether layer l, whose gradient g is, is updated by rows alone. It is not where
// its rows are merged into another layer's gradient of the whole table.
func (g Gradient) OfRows(l int) bool { return g.Row > 0 && g.In == l }

// Ranges are the ranges of the layer's own slab that are measured, for a batch of so many
// unique ids. Only To and Elems of a range are used.
func (g Gradient) Ranges(ids int) []layers.Range {
	if g.Row > 0 {
		return []layers.Range{{Elems: int64(ids) * g.Row}}
	}
	return g.Tensors
}

// Gradients says where the gradients of all layers are, by layer.
func (r *Run) Gradients() []Gradient {
	out := make([]Gradient, len(r.Layouts))
	for l, layout := range r.Layouts {
		out[l].In, out[l].Row = l, r.Kind(l).RowElems(layout)
		for _, t := range layout.Tensors {
			if t.Frozen {
				continue
			}
			out[l].Tensors = append(out[l].Tensors, layers.Range{To: t.Elem, Elems: t.Elems()})
		}
	}
	for l, layout := range r.Layouts {
		for _, t := range layout.Tensors {
			if t.Ref && !t.Frozen { // to the embedding's
				out[0].In, out[0].From, out[0].Table = l, t.Elem, t.Elems()
			}
		}
	}
	return out
}
