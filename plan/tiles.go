package plan

import (
	"fmt"

	"mt/layers"
	"mt/model"
)

// Tile is what is fetched, bound and offloaded at once: a layer, a range of the
// head's vocabulary, a router or one expert.
type Tile struct {
	Layer, Part int
	// Layout is where its tensors lie in a slot and in a gradient buffer.
	Layout model.Layout
	// Copies bring it from the host into a slot.
	Copies []Copy
	// Grad brings its gradient from a buffer into the layer's slab; see Ranges.
	Grad []Range
	row  int64 // elements of a row of the gradient, where as many rows as the batch has ids are sent
}

// Copy is a range of bytes: where it lies in the tile of a layer on the host, and
// where in the slot.
type Copy struct {
	Layer           int
	From, To, Bytes int64
}

// Range is a range of a gradient, in elements: where it lies in the buffer, and
// where it goes in the slab.
type Range struct{ From, To, Elems int64 }

// Tiles lists the tiles of a model in the order of the layers and their parts, as
// schedule.Visit.Tile numbers them.
func Tiles(layouts []model.Layout, spec layers.Spec) []Tile {
	var out []Tile
	for l, layout := range layouts {
		switch {
		case layout.Kind == model.Embedding:
			out = append(out, Tile{Layer: l, Layout: layout, row: int64(spec.Config.HiddenSize)})
		case layout.Kind == model.Head && spec.Shards() > 1:
			for k := range spec.Shards() {
				out = append(out, headPart(layout, spec, k))
			}
		default:
			for k := range layout.Parts() {
				out = append(out, layerPart(layout, k))
			}
		}
	}
	return out
}

// layerPart is the tile of part k of a layer, or of a layer that has no other: its
// own bytes in one piece, and what it refers to in the embedding's.
func layerPart(layout model.Layout, k int) Tile {
	t := Tile{Layer: layout.Index, Part: k, Layout: layout.Part(k)}
	at := model.PartRange{TileBytes: layout.TileBytes}
	if layout.Parts() > 1 {
		at = layout.PartRange(k)
	}
	if at.TileBytes > 0 {
		t.Copies = append(t.Copies, Copy{Layer: t.Layer, From: at.TileOff, Bytes: at.TileBytes})
	}
	for _, r := range t.Layout.Tensors {
		if r.Ref {
			t.Copies = append(t.Copies, Copy{Layer: 0, To: r.TileOff, Bytes: r.TileBytes()})
		}
	}
	t.Grad = []Range{{To: at.Elem, Elems: t.Layout.GradElems}}
	return t
}

// headPart is the tile of part k of a head that is cut: its rows of lm_head, which
// may be the embedding's, and the norm, which travels with every part. The norm's
// gradient comes with the last part of the backward, which is part 0.
func headPart(head model.Layout, spec layers.Spec, k int) Tile {
	t := Tile{Layer: head.Index, Part: k, Layout: spec.ShardLayout(head, k)}
	for _, to := range t.Layout.Tensors {
		whole, _ := head.Tensor(to.Role)
		from := Copy{Layer: t.Layer, From: whole.TileOff, To: to.TileOff, Bytes: to.TileBytes()}
		if whole.Ref {
			from.Layer, from.From = 0, 0 // the table is the only tensor of the embedding's tile
		}
		grad := Range{From: to.Elem, To: whole.Elem, Elems: to.Elems()}
		rows := to.Role == model.RoleLMHead
		if rows {
			first := int64(spec.Shard(k).From)
			from.From += first * (whole.TileBytes() / int64(whole.Rows))
			grad.To += first * int64(whole.Cols)
		}
		t.Copies = append(t.Copies, from)
		if rows || k == 0 {
			t.Grad = append(t.Grad, grad)
		}
	}
	return t
}

// Bytes is what Copies move.
func (t Tile) Bytes() (n int64) {
	for _, c := range t.Copies {
		n += c.Bytes
	}
	return n
}

// Ranges is Grad for a batch of so many unique ids, which are the rows of the
// embedding's gradient.
func (t Tile) Ranges(ids int) []Range {
	if t.row > 0 {
		return []Range{{Elems: int64(ids) * t.row}}
	}
	return t.Grad
}

// Host is where byte off of the slot comes from: a layer's tile, and where in it.
func (t Tile) Host(off int64) (layer int, at int64) {
	for _, c := range t.Copies {
		if off >= c.To && off < c.To+c.Bytes {
			return c.Layer, c.From + off - c.To
		}
	}
	panic(fmt.Sprintf("plan: nothing is copied to byte %d of the slot of layer %d part %d", off, t.Layer, t.Part))
}

// Slab is where element elem of the gradient buffer goes in the layer's slab, if
// it goes anywhere.
func (t Tile) Slab(elem int64) (at int64, ok bool) {
	for _, r := range t.Grad {
		if elem >= r.From && elem < r.From+r.Elems {
			return r.To + elem - r.From, true
		}
	}
	return 0, false
}

// SummedIn says for every layer in which layer's gradient its own is summed: itself,
// or of an embedding whose table is the head's too, the head.
func (r *Run) SummedIn() []int {
	out := make([]int, len(r.Layouts))
	for l := range out {
		out[l] = l
	}
	if r.Layouts[r.Head()].Tied {
		out[0] = r.Head()
	}
	return out
}

// Sources are the layers that the tile is copied from: it is up to date when they
// are.
func (t Tile) Sources() []int {
	out := []int{t.Layer}
	for _, c := range t.Copies {
		if c.Layer != t.Layer {
			out = append(out, c.Layer)
		}
	}
	return out
}
