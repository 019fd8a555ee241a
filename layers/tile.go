package layers

import (
	"fmt"
	"slices"

	"mt/device"
	"mt/model"
)

// Tile is the unit of fetching, binding and offloading: a layer or a part of one. The layer's kind (Kind) makes its
// tiles; code that moves tiles need not know the kind.
type Tile struct {
	Layer, Part int
	// Layout is the layout of its tensors in a slot and in a gradient buffer.
	Layout model.Layout
	// Copies are the copies from the host into a slot.
	Copies []Copy
	// Grad lists the copies of the tile's gradient from a gradient buffer into the layer's slab. It
	// does not cover the embedding; Ranges does.
	Grad []Range
	row  int64 // elements of a row of the gradient, if it has one row per unique id of a batch; 0: it does not
}

// Like reports whether t and o are parts of one layer with equal tensors, as two experts are.
func (t Tile) Like(o Tile) bool {
	return t.Layer == o.Layer && slices.EqualFunc(t.Layout.Tensors, o.Layout.Tensors, func(a, b model.TensorLayout) bool {
		return a.Role == b.Role && a.Rows == b.Rows && a.Cols == b.Cols && a.Dims == b.Dims && a.BF16 == b.BF16 && a.TileOff == b.TileOff && a.Elem == b.Elem &&
			a.Ref == b.Ref && a.Frozen == b.Frozen
	})
}

// Copy is a range of bytes to copy: from byte From of a layer's tile on the host to byte To of the slot.
type Copy struct {
	Layer           int
	From, To, Bytes int64
}

// Range is a range of a gradient, in elements: from element From of the gradient buffer to element To of the layer's
// slab.
type Range struct{ From, To, Elems int64 }

// Tiles returns the tiles of a model in the order of layers and parts, as schedule.Visit.Tile numbers them.
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

// Bytes returns the total bytes of Copies.
func (t Tile) Bytes() (n int64) {
	for _, c := range t.Copies {
		n += c.Bytes
	}
	return n
}

// Ranges returns the ranges to copy from a gradient buffer to the slab: Grad or, for the embedding, one row for each of
// the ids unique ids of the batch.
func (t Tile) Ranges(ids int) []Range {
	if t.row > 0 {
		return []Range{{Elems: int64(ids) * t.row}}
	}
	return t.Grad
}

// GradElems returns the elements of the gradient in a buffer, for a batch with ids unique ids.
func (t Tile) GradElems(ids int) int64 {
	if t.row > 0 {
		return int64(ids) * t.row
	}
	return t.Layout.GradElems
}

// BindWeights views the tensors of layout in slot, a device buffer of at least layout.SlotBytes.
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

// BindInPlace views the tensors of layout in host memory, for a unified device, which needs no copy. host returns the
// host memory for a range of the slot: bytes bytes from byte off on.
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

// BindGrads views the gradients of the tile's tensors in buf, a gradient buffer. ids is the number of unique ids in the
// batch, which only the embedding needs.
func (t Tile) BindGrads(buf device.Mem, ids int) Grads {
	if t.row > 0 {
		return Grads{t.Layout.Tensors[0].Role: buf.Tensor(device.F32, 0, int64(ids)*t.row)}
	}
	return BindGrads(t.Layout, buf)
}

// BindGrads views the gradients of layout in buf, which has layout.GradElems fp32 elements; TensorLayout.Elem says
// where each tensor begins. Frozen tensors have no gradient.
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

// BindSlab views the gradient of the tile in slab, the fp32 slab of its layer, on a device that
// sums gradients there. For the embedding, ids is the number of unique ids in the batch. A tensor
// whose gradient belongs to another part of the layer is left out.
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

// Host says from where byte off of the slot is copied: from byte `at` of this layer's tile on the
// host. It panics if nothing is copied to that byte.
func (t Tile) Host(off int64) (layer int, at int64) {
	for _, c := range t.Copies {
		if off >= c.To && off < c.To+c.Bytes {
			return c.Layer, c.From + off - c.To
		}
	}
	panic(fmt.Sprintf("layers: nothing is copied to byte %d of the slot of layer %d part %d", off, t.Layer, t.Part))
}

// Slab returns the element of the layer's slab to which element elem of the gradient buffer is
// copied. ok is false if elem is not copied.
func (t Tile) Slab(elem int64) (at int64, ok bool) {
	for _, r := range t.Grad {
		if elem >= r.From && elem < r.From+r.Elems {
			return r.To + elem - r.From, true
		}
	}
	return 0, false
}

// Sources returns the layers that the tile is copied from. The tile is up to date when these layers are.
func (t Tile) Sources() []int {
	out := []int{t.Layer}
	for _, c := range t.Copies {
		if c.Layer != t.Layer {
			out = append(out, c.Layer)
		}
	}
	return out
}
