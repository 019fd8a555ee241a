package model

import (
	"fmt"
	"slices"
	"sort"
)

// ElemAlign is the alignment, in elements, of every tensor in a layer's flat element space: 256 bytes in a bf16 plane,
// 512 in an fp32 plane.
const ElemAlign = 128

// tileAlign is the alignment in bytes of every tensor in a tile.
const tileAlign = 256

// TensorLayout says where one parameter lies in its layer's tile, device slot and gradient.
type TensorLayout struct {
	Param
	// BF16 says that the fp32 weight is split in two halves. The tile has the upper half as bf16,
	// and the lower half is kept apart (but see Layout.BF16Master). false: the tile has the fp32
	// weight.
	BF16 bool
	// TileOff is the offset in bytes of the tensor in the tile and in the device slot.
	TileOff int64
	// Elem is the tensor's first element in the layer's flat element space. Lower halves, the
	// optimizer's planes and gradients are all arrays over this space. A frozen tensor has no
	// elements in it.
	Elem int64
	// Ref says that the tensor is a tied lm_head, which belongs to the embedding and its tile. The
	// head's device slot and gradient have room for it; the head's own tile, lower halves and
	// planes do not. References come last in Layout.Tensors.
	Ref bool
}

// TileBytes returns the size of the tensor in the tile.
func (t TensorLayout) TileBytes() int64 {
	if t.BF16 {
		return 2 * t.Elems()
	}
	return 4 * t.Elems()
}

// Layout is the memory layout of one layer. The tile, in host memory, has the layer's own tensors; the slot, on the
// device, has the tile followed by references. The flat element space numbers the elements of tensors that are not
// frozen.
type Layout struct {
	Layer
	Tensors   []TensorLayout
	TileBytes int64 // bytes of the tile in host memory, own tensors only
	SlotBytes int64 // bytes of the slot on the device: TileBytes and the references
	Elems     int64 // flat element space of own tensors, padding included
	GradElems int64 // flat element space including references
	// BF16Master says that no tensor has a lower half: the streamed bf16 weight is the master weight. Frozen tensors
	// never have a lower half.
	BF16Master bool
}

// HasLo says whether tensor t of the layer has a lower half.
func (l Layout) HasLo(t TensorLayout) bool { return t.BF16 && !t.Ref && !t.Frozen && !l.BF16Master }

// Split says whether any tensor of the layer has a lower half, so that its weight is split in two.
func (l Layout) Split() bool {
	for _, t := range l.Tensors {
		if l.HasLo(t) {
			return true
		}
	}
	return false
}

// AllElems returns the number of elements that the layer's gradient would have if no tensor were frozen (compare
// GradElems).
func (l Layout) AllElems() (n int64) {
	for _, t := range l.Tensors {
		n = roundUp(n+t.Elems(), ElemAlign)
	}
	return n
}

// NewLayout lays out l. With bf16, tensors of two or more dimensions are split into a bf16 upper half and a lower half,
// unless their F32 is set. All others stay fp32. A tied head refers to embed, the embedding's table; other layers
// ignore embed.
func NewLayout(l Layer, bf16 bool, embed Param) Layout {
	out := Layout{Layer: l}
	add := func(p Param, ref bool) {
		t := TensorLayout{Param: p, BF16: bf16 && p.Dims >= 2 && !p.F32, TileOff: out.SlotBytes, Elem: out.GradElems, Ref: ref}
		out.Tensors = append(out.Tensors, t)
		out.SlotBytes = roundUp(t.TileOff+t.TileBytes(), tileAlign)
		if !p.Frozen {
			out.GradElems = roundUp(t.Elem+t.Elems(), ElemAlign)
		}
	}
	for _, p := range l.Params {
		add(p, false)
	}
	out.TileBytes, out.Elems = out.SlotBytes, out.GradElems
	if l.Tied {
		ref := embed
		ref.Role = RoleLMHead
		add(ref, true)
	}
	return out
}

// Tensor returns the layout of the parameter with role r; the zero value if there is none.
func (l Layout) Tensor(r Role) TensorLayout {
	for _, t := range l.Tensors {
		if t.Role == r {
			return t
		}
	}
	return TensorLayout{}
}

// PartRange is the contiguous range of one part of a layer, without references. TileOff and
// TileBytes are in bytes of the tile, Elem and Elems in elements of the flat element space.
type PartRange struct {
	TileOff, TileBytes int64
	Elem, Elems        int64
}

// span returns the range [from, to) of l.Tensors that belongs to part k. It finds the range by
// binary search, because tensors are in the order of their parts. References, which belong to
// another layer, come after all parts.
func (l Layout) span(k int) (from, to int) {
	owned := len(l.Tensors)
	for owned > 0 && l.Tensors[owned-1].Ref {
		owned--
	}
	from = sort.Search(owned, func(i int) bool { return l.Tensors[i].Part >= k })
	to = from + sort.Search(owned-from, func(i int) bool { return l.Tensors[from+i].Part > k })
	return from, to
}

// PartRange returns the range that part k of the layer takes in the tile and in the flat element
// space.
func (l Layout) PartRange(k int) PartRange {
	from, to := l.span(k)
	if from == to {
		panic(fmt.Sprintf("model: part %d of layer %d, which has %d", k, l.Index, l.Parts()))
	}
	r := PartRange{TileOff: l.Tensors[from].TileOff, TileBytes: l.TileBytes, Elem: l.Tensors[from].Elem, Elems: l.Elems}
	if to < len(l.Tensors) && !l.Tensors[to].Ref {
		r.TileBytes, r.Elems = l.Tensors[to].TileOff, l.Tensors[to].Elem
	}
	r.TileBytes -= r.TileOff
	r.Elems -= r.Elem
	return r
}

// Part returns the layout of part k alone, whose tile, slot and elements start at 0. For a layer of one part it is the
// layer's layout.
func (l Layout) Part(k int) Layout {
	if l.Parts() == 1 && k == 0 {
		return l
	}
	at := l.PartRange(k)
	from, to := l.span(k)
	out := Layout{Layer: l.Layer, Tensors: slices.Clone(l.Tensors[from:to]), TileBytes: at.TileBytes, SlotBytes: at.TileBytes,
		Elems: at.Elems, GradElems: at.Elems, BF16Master: l.BF16Master}
	out.Params = nil
	for i := range out.Tensors {
		t := &out.Tensors[i]
		t.TileOff -= at.TileOff
		t.Elem -= at.Elem
		out.Params = append(out.Params, t.Param)
	}
	return out
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
