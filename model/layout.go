package model

import (
	"fmt"
	"slices"
	"sort"
)

// ElemAlign is the alignment, in elements, of every tensor in a layer's flat
// element space: 256 bytes for the bf16 and the fp32 planes alike.
const ElemAlign = 128

// tileAlign is the alignment in bytes of every tensor in a tile.
const tileAlign = 256

// TensorLayout says where one parameter of a layer lies.
type TensorLayout struct {
	Param
	// BF16 says that the weight is split into planes: its upper half, hi, is streamed in
	// the tile, and lo is kept apart (but see Layout.BF16Master). Else the tile has the fp32 weight itself.
	BF16 bool
	// TileOff is its first byte in the tile and in the device slot.
	TileOff int64
	// Elem is its first element in the layer's flat element space, which lo, the
	// optimizer's planes and gradients share. A frozen tensor has no elements there.
	Elem int64
	// Ref says that the tensor belongs to the embedding's tile (a tied lm_head). It has a
	// place in the head's slot and gradient, and none in the head's own tile, lo or
	// planes. References come last.
	Ref bool
}

// TileBytes is the size of the tensor in the tile.
func (t TensorLayout) TileBytes() int64 {
	if t.BF16 {
		return 2 * t.Elems()
	}
	return 4 * t.Elems()
}

// Layout is the memory layout of one layer: its tile (the owned tensors, on the host), its
// slot (on the device: the tile, then references), and its flat element space.
type Layout struct {
	Layer
	Tensors   []TensorLayout
	TileBytes int64 // host bytes that travel, owned tensors only
	SlotBytes int64 // device bytes: TileBytes and the references
	Elems     int64 // flat element space of owned tensors, padding included
	GradElems int64 // flat element space with references
	// BF16Master says that tensors with BF16 set have no lower halves, as frozen ones never have: what streams is
	// their master weight.
	BF16Master bool
}

// HasLo says whether a tensor of the layer has a lower half: it is split, and what streams is not its master weight.
func (l Layout) HasLo(t TensorLayout) bool { return t.BF16 && !t.Ref && !t.Frozen && !l.BF16Master }

// Split says whether some of the layer's own weights are in two planes, and so have lower halves.
func (l Layout) Split() bool {
	for _, t := range l.Tensors {
		if l.HasLo(t) {
			return true
		}
	}
	return false
}

// AllElems is what GradElems would be if nothing were frozen.
func (l Layout) AllElems() (n int64) {
	for _, t := range l.Tensors {
		n = roundUp(n+t.Elems(), ElemAlign)
	}
	return n
}

// NewLayout lays out l. With bf16, tensors of two dimensions are split into
// planes unless their F32 is set; all others stay fp32. embed is the embedding's
// table parameter, which a tied head refers to; it is ignored for other layers.
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

// Tensor is the layout of the parameter with role r; the zero value where there is none.
func (l Layout) Tensor(r Role) TensorLayout {
	for _, t := range l.Tensors {
		if t.Role == r {
			return t
		}
	}
	return TensorLayout{}
}

// PartRange is where the owned tensors of one part of a layer lie: in the tile
// and in the flat element space.
type PartRange struct {
	TileOff, TileBytes int64
	Elem, Elems        int64
}

// span is the tensors of part k, references left out: Tensors[from:to]. They
// stand together, in the order of the parts.
func (l Layout) span(k int) (from, to int) {
	owned := len(l.Tensors)
	for owned > 0 && l.Tensors[owned-1].Ref {
		owned--
	}
	from = sort.Search(owned, func(i int) bool { return l.Tensors[i].Part >= k })
	to = from + sort.Search(owned-from, func(i int) bool { return l.Tensors[from+i].Part > k })
	return from, to
}

// PartRange is where part k of the layer lies.
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

// Part is the layout of part k by itself, in which tile, slot and elements start at 0. Where
// a layer has only one part, it is the layer's layout.
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
