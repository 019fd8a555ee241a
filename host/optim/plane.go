package optim

import (
	"fmt"
	"slices"

	"mt/model"
)

// DType is the type of the values of a plane.
type DType uint8

// Types of the values of planes.
const (
	F32 DType = iota
	U8        // 8-bit code
	U4        // 4-bit code; the lower half of a byte is the first of two
)

// Bytes returns the size of n values. n must be even for U4, because two values share a byte.
func (d DType) Bytes(n int64) int64 { return n * [...]int64{F32: 8, U8: 2, U4: 1}[d] / 2 }

func (d DType) String() string { return [...]string{F32: "fp32", U8: "8-bit", U4: "4-bit"}[d] }

// Plane is optimizer state beside the weights: one value for every element of a piece, or for every block of elements.
type Plane struct {
	Name  string // unique in a layer, used in checkpoints: "m"; "lo" is reserved for the weights' lower halves
	DType DType
	Block int64  // elements that share a value; 0 or 1: one value an element
	Kind  string // name in memory listings for people: "moments"
	Of    string // owner of the plane: "AdamW"
}

// values returns how many values the plane has for n elements, which begin at the start of a piece or of a block.
func (p Plane) values(n int64) int64 {
	if p.Block > 1 {
		n = (n + p.Block - 1) / p.Block
	}
	if p.DType == U4 {
		n = (n + 1) / 2 * 2
	}
	return n
}

// Piece is a tensor as in PyTorch: a range of rows of a parameter. A parameter may stack several such tensors, such as
// q_proj, k_proj and v_proj.
type Piece struct {
	Param     model.Param
	Row, Rows int
}

// Elems returns the number of elements of the piece.
func (p Piece) Elems() int64 { return int64(p.Rows) * int64(p.Param.Cols) }

// At returns the first element of the piece in its parameter.
func (p Piece) At() int64 { return int64(p.Row) * int64(p.Param.Cols) }

// Pieces returns the pieces of a parameter, in order. A parameter that is stored in no checkpoint, and so is not
// divided into tensors, is a single piece.
func Pieces(p model.Param) []Piece {
	if len(p.Stored) == 0 {
		return []Piece{{p, 0, p.Rows}}
	}
	var out []Piece
	for _, s := range p.Stored {
		out = append(out, Piece{p, s.Row, s.Rows})
	}
	return out
}

// PageBytes is the alignment, in host memory, of every layer's tile and of each of its planes.
const PageBytes = 4096

// Pages rounds bytes up to whole pages, the host memory that a tile or plane of this size takes.
func Pages(bytes int64) int64 { return (bytes + PageBytes - 1) / PageBytes * PageBytes }

// Planes returns the planes that an optimizer keeps for a piece. A nil Planes keeps none; weights cannot be updated then.
// If several pieces of a layer have equal planes, their values are in one plane of the layer.
type Planes func(Piece) []Plane

// Placed is a plane of one layer: a plane, and the position of each piece's values in it. It has
// values only for the pieces of the layer that need the plane, in order.
type Placed struct {
	Plane
	Values int64     // number of values, including padding
	first  [][]int64 // index of the first value by tensor and piece; -1: no values
	at     [][]int64 // first element in the tensor by tensor and piece
}

// Bytes returns the size of the plane.
func (p *Placed) Bytes() int64 { return p.DType.Bytes(p.Values) }

// Piece returns the index in the plane of the first value of a piece, and the number of the piece's values. i is the
// number of the piece in a tensor of layer l. The number of values is 0 if the piece does not have the plane.
func (p *Placed) Piece(l model.Layout, tensor, i int) (first, n int64) {
	if first = p.first[tensor][i]; first < 0 {
		return 0, 0
	}
	return first, p.values(Pieces(l.Tensors[tensor].Param)[i].Elems())
}

// Range returns the range [from, to) of the plane's values that belong to share s (a rank's part) of layer l. The
// ranges of all ranks are adjacent and cover the plane.
func (p *Placed) Range(l model.Layout, s Share) (from, to int64) {
	return p.after(l, s.From), p.after(l, s.To)
}

// ShareBytes returns the size of the part of the plane that belongs to share s (a rank's part) of layer l.
func (p *Placed) ShareBytes(l model.Layout, s Share) int64 {
	from, to := p.Range(l, s)
	return p.DType.Bytes(to - from)
}

// after returns the index of the plane's first value for element e or a later one. e counts over all tensors of the
// layer one after the other. It must be the start of a unit or the end of the layer.
func (p *Placed) after(l model.Layout, e int64) int64 {
	switch e {
	case 0:
		return 0
	case l.Elems:
		return p.Values
	}
	for t, tl := range l.Tensors {
		if tl.Ref || tl.Frozen || e >= tl.Elem+tl.Elems() {
			continue
		}
		for i, piece := range Pieces(tl.Param) {
			first, at := p.first[t][i], e-tl.Elem-piece.At()
			if first >= 0 && at < piece.Elems() {
				return first + p.values(max(at, 0))
			}
		}
	}
	return p.Values
}

// Of lists the planes of a layer, each once, in the order in which the parameters use them. Only parameters that the
// layer owns and trains have planes.
func (f Planes) Of(l model.Layout) []Placed {
	var out []Placed
	for t, tl := range l.Tensors {
		if f == nil || tl.Ref || tl.Frozen {
			continue
		}
		pieces := Pieces(tl.Param)
		for i := range out { // tensors are aligned in planes as in the flat element space
			out[i].Values = roundUp(out[i].Values, model.ElemAlign)
		}
		for k, piece := range pieces {
			for _, p := range f(piece) {
				i := slices.IndexFunc(out, func(have Placed) bool { return have.Plane == p })
				if i < 0 {
					first, at := absent(l)
					i, out = len(out), append(out, Placed{Plane: p, first: first, at: at})
				}
				out[i].first[t][k] = out[i].Values
				out[i].Values += p.values(piece.Elems())
			}
		}
	}
	for i := range out {
		out[i].Values = roundUp(out[i].Values, model.ElemAlign)
	}
	return out
}

// absent makes two tables for a new plane of layer l, indexed by tensor and piece. first has −1 everywhere: no piece
// has values yet. at has the first element of each piece in its tensor.
func absent(l model.Layout) (first, at [][]int64) {
	first, at = make([][]int64, len(l.Tensors)), make([][]int64, len(l.Tensors))
	for t, tl := range l.Tensors {
		for _, p := range Pieces(tl.Param) {
			first[t], at[t] = append(first[t], -1), append(at[t], p.At())
		}
	}
	return first, at
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// Bytes returns the size of all planes of a layer.
func (f Planes) Bytes(l model.Layout) (bytes int64) {
	for _, p := range f.Of(l) {
		bytes += p.Bytes()
	}
	return bytes
}

// UpdateBytes returns how many bytes an update of layer l moves: it reads and writes the weights and all planes.
func (f Planes) UpdateBytes(l model.Layout) int64 { return 2 * (MasterBytes(l) + f.Bytes(l)) }

// MasterBytes returns the size of the master weights of layer l: 4 bytes for each element. If the master weights are
// bf16, it is the size of the tile.
func MasterBytes(l model.Layout) int64 {
	if l.BF16Master {
		return l.TileBytes
	}
	return 4 * l.Elems
}

// State is the memory of one plane of a layer: of the whole plane, or of the part that belongs to the rank's share.
type State struct {
	Placed
	From int64  // index in the plane of the first value in Data: the start of the rank's share
	Data []byte // the values of the rank's share or of the whole layer, aligned to the value size
}

// NewState returns the memory of plane p for share s (a rank's part) of layer l. take allocates memory of a given size.
func NewState(p Placed, l model.Layout, s Share, take func(bytes int64) []byte) State {
	from, _ := p.Range(l, s)
	return State{Placed: p, From: from, Data: take(p.ShareBytes(l, s))}
}

// Part returns the memory of n values of the plane. place is the index of the first one in the whole plane.
func (s *State) Part(place, n int64) []byte {
	at := s.DType.Bytes(place - s.From)
	return s.Data[at:][:s.DType.Bytes(n)]
}

// Of returns the memory of the values for unit u of layer l; nil if the unit's piece of a tensor has no values in the
// plane.
func (s *State) Of(l *model.Layout, u Unit) []byte {
	for i, p := range Pieces(l.Tensors[u.Tensor].Param) {
		if at := u.At - p.At(); at >= 0 && at < p.Elems() && s.first[u.Tensor][i] >= 0 {
			return s.Part(s.first[u.Tensor][i]+s.values(at), s.values(u.N))
		}
	}
	return nil
}

// find returns the plane among planes with this name and type. It panics if there is none.
func find(planes []State, name string, d DType) *State {
	for i := range planes {
		if p := &planes[i]; p.Name == name && p.DType == d {
			return p
		}
	}
	panic(fmt.Sprintf("optim: an update of weights without the plane %q", name))
}

// Floats returns the fp32 values of the plane for the elements [at, at+n) of a tensor. All pieces to which these
// elements belong must have the plane.
func (s *State) Floats(tensor int, at, n int64) []float32 {
	i := len(s.at[tensor]) - 1
	for i > 0 && s.at[tensor][i] > at {
		i--
	}
	return View[float32](s.Part(s.first[tensor][i]+at-s.at[tensor][i], n))
}
