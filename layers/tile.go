package layers

import (
	"fmt"

	"mt/device"
	"mt/model"
)

// Tile is what is fetched, bound and offloaded at once: a layer, or a part of one. The
// layer's kind makes it; whoever moves it need not know the kind.
type Tile struct {
	Layer, Part int
	// Layout is where its tensors lie in a slot and in a gradient buffer.
	Layout model.Layout
	// Copies bring it from the host into a slot.
	Copies []Copy
	// Grad brings its gradient from a gradient buffer into the layer's slab; see Ranges,
	// which is what to use.
	Grad []Range
	row  int64 // elements of a row of the gradient, where it has a row for every unique id of a batch; else 0
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
func Tiles(layouts []model.Layout, spec Spec) []Tile {
	var out []Tile
	for _, l := range layouts {
		kind := KindOf(l.Kind)
		for k := range kind.Parts(spec, l) {
			out = append(out, kind.Part(spec, l, k))
		}
	}
	return out
}

// Bytes is what Copies move.
func (t Tile) Bytes() (n int64) {
	for _, c := range t.Copies {
		n += c.Bytes
	}
	return n
}

// Ranges is Grad for a batch of so many unique ids: the embedding's gradient has a row for
// each of them.
func (t Tile) Ranges(ids int) []Range {
	if t.row > 0 {
		return []Range{{Elems: int64(ids) * t.row}}
	}
	return t.Grad
}

// GradElems is the size of its gradient in a buffer, in elements, for a batch of so
// many unique ids.
func (t Tile) GradElems(ids int) int64 {
	if t.row > 0 {
		return int64(ids) * t.row
	}
	return t.Layout.GradElems
}

// BindWeights views the tensors of layout in slot, a device buffer of at least
// layout.SlotBytes.
func BindWeights(layout model.Layout, slot device.Mem) Weights {
	w := Weights{}
	for _, t := range layout.Tensors {
		dt := device.F32
		if t.BF16 {
			dt = device.BF16
		}
		w[t.Role] = slot.Tensor(dt, t.TileOff, t.Elems())
	}
	return w
}

// BindInPlace views the tensors of layout where they lie on the host, for a unified device.
// host returns the memory there of so many bytes, from byte off of what would be their slot.
func BindInPlace(layout model.Layout, dev device.Device, host func(off, bytes int64) []byte) Weights {
	w := Weights{}
	for _, t := range layout.Tensors {
		dt := device.F32
		if t.BF16 {
			dt = device.BF16
		}
		w[t.Role] = dev.BindHost(host(t.TileOff, t.TileBytes())).Tensor(dt, 0, t.Elems())
	}
	return w
}

// BindGrads views the gradient of the tile in buf, its gradient buffer, for a batch of so many unique ids.
func (t Tile) BindGrads(buf device.Mem, ids int) Grads {
	if t.row > 0 {
		return Grads{t.Layout.Tensors[0].Role: buf.Tensor(device.F32, 0, int64(ids)*t.row)}
	}
	return BindGrads(t.Layout, buf)
}

// BindGrads views the gradients of layout in buf, fp32 in the flat element
// space (layout.GradElems elements). What is frozen has none.
func BindGrads(layout model.Layout, buf device.Mem) Grads {
	g := Grads{}
	for _, t := range layout.Tensors {
		if t.Frozen {
			continue
		}
		g[t.Role] = buf.Tensor(device.F32, 4*t.Elem, t.Elems())
	}
	return g
}

// BindSlab views the gradient of the tile where it goes in slab, the fp32 slab of its layer. A tensor whose gradient another part
// has is left out.
func (t Tile) BindSlab(slab device.Mem, ids int) Grads {
	if t.row > 0 {
		return t.BindGrads(slab, ids)
	}
	g := Grads{}
	for _, x := range t.Layout.Tensors {
		if at, ok := t.Slab(x.Elem); ok && !x.Frozen {
			g[x.Role] = slab.Tensor(device.F32, 4*at, x.Elems())
		}
	}
	return g
}

// Host says where byte off of the slot comes from: from which layer's tile on the host, and
// from which byte of it.
func (t Tile) Host(off int64) (layer int, at int64) {
	for _, c := range t.Copies {
		if off >= c.To && off < c.To+c.Bytes {
			return c.Layer, c.From + off - c.To
		}
	}
	panic(fmt.Sprintf("layers: nothing is copied to byte %d of the slot of layer %d part %d", off, t.Layer, t.Part))
}

// Slab says to which element of the layer's slab element elem of the gradient buffer goes,
// if it goes there at all.
func (t Tile) Slab(elem int64) (at int64, ok bool) {
	for _, r := range t.Grad {
		if elem >= r.From && elem < r.From+r.Elems {
			return r.To + elem - r.From, true
		}
	}
	return 0, false
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
