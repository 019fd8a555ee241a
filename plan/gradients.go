package plan

import "mt/layers"

// Gradient describes the location and content of a layer's gradient when the layer is updated.
type Gradient struct {
	// In is the layer whose slab has the gradient with which the layer is updated, beginning at
	// element From. It is the layer itself or, with tied embeddings, the layer that shares the
	// table.
	In   int
	From int64
	// Row is the row length in elements of a gradient that has only the batch's rows of the
	// embedding table. If Row is 0, the layer's own gradient has all the layer's tensors.
	Row int64
	// Tensors has the ranges of the tensors' gradients in the layer's own slab, if Row is 0.
	Tensors []layers.Range
	// Table is the size of the shared table in elements, if In is another layer.
	Table int64
}

// OfRows reports whether layer l, the owner of g, is updated row by row: only the rows of the
// embedding table that the batch uses. With tied embeddings it is false: the rows are added to the
// whole table's gradient in the head's slab.
func (g Gradient) OfRows(l int) bool { return g.Row > 0 && g.In == l }

// Ranges returns the ranges of the layer's own slab whose squares count for the gradient norm. ids is the number of
// unique ids in the batch. Only To and Elems of the ranges are set.
func (g Gradient) Ranges(ids int) []layers.Range {
	if g.Row > 0 {
		return []layers.Range{{Elems: int64(ids) * g.Row}}
	}
	return g.Tensors
}

// Gradients returns, by layer, where each layer's update finds its gradient.
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
			if t.Ref && !t.Frozen { // a reference to the embedding's table
				out[0].In, out[0].From, out[0].Table = l, t.Elem, t.Elems()
			}
		}
	}
	return out
}
