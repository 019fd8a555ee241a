package optim

import (
	"fmt"
	"slices"

	"mt/model"
)

// DType is the type of a plane's values.
type DType uint8

// The types that planes have.
const (
	F32 DType = iota
	U8        // a code of 8 bits
	U4        // a code of 4 bits; of two in a byte the lower half is the first
)

// Bytes is the size of n values. Where two values share a byte n is even.
func (d DType) Bytes(n int64) int64 { return n * [...]int64{F32: 8, U8: 2, U4: 1}[d] / 2 }

func (d DType) String() string { return [...]string{F32: "fp32", U8: "8-bit", U4: "4-bit"}[d] }

// Plane is what an optimizer keeps beside weights: a value for every element of a piece, or for
// every block of elements.
type Plane struct {
	Name  string // unique among the planes of a layer, and used in checkpoints: "m"; "lo" is the weight's
	DType DType
	Block int64  // how many elements share a value, where more than one do
	Kind  string // what such planes are called where memory is listed for people: "moments"
	Of    string // who keeps it: "AdamW"
}

// values is how many values the plane has for n elements, the first of a piece or of one of its blocks.
func (p Plane) values(n int64) int64 {
	if p.Block > 1 {
		n = (n + p.Block - 1) / p.Block
	}
	if p.DType == U4 {
		n = (n + 1) / 2 * 2
	}
	return n
}

// Piece is a tensor as PyTorch has it: rows of a parameter, which may be several such tensors
// stacked, as q_proj, k_proj and v_proj are.
type Piece struct {
	Param     model.Param
	Row, Rows int
}

// Elems is how many elements the piece has, and At the first of them in the parameter.
func (p Piece) Elems() int64 { return int64(p.Rows) * int64(p.Param.Cols) }

// At is the first element of the piece in its parameter.
func (p Piece) At() int64 { return int64(p.Row) * int64(p.Param.Cols) }

// Pieces are the pieces of a parameter, in order. One that is in no checkpoint is a single piece.
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

// PageBytes is the alignment in bytes, in host memory, of every layer's tile and of
// each of its planes.
const PageBytes = 4096

// Pages rounds bytes up to whole pages. That is how much host memory a tile or a
// plane of that size takes.
func Pages(bytes int64) int64 { return (bytes + PageBytes - 1) / PageBytes * PageBytes }

// Planes says which planes are kept beside a piece. Planes with the same name
// are the same. With nil none are kept, and weights cannot be updated.
type Planes func(Piece) []Plane

// Placed is a plane of one layer. Its values are those of the pieces that ask for it, in order.
type Placed struct {
	Plane
	Values int64     // how many there are, padding included
	first  [][]int64 // by tensor and piece the place of its first value; -1 where it has none
	at     [][]int64 // by tensor and piece its first element in the tensor
}

// Bytes is the size of the plane.
func (p *Placed) Bytes() int64 { return p.DType.Bytes(p.Values) }

// Piece says where the values of piece i of a tensor of layer l begin, and how many there are: 0 where
// the piece did not ask for any.
func (p *Placed) Piece(l model.Layout, tensor, i int) (first, n int64) {
	if first = p.first[tensor][i]; first < 0 {
		return 0, 0
	}
	return first, p.values(Pieces(l.Tensors[tensor].Param)[i].Elems())
}

// Range is where the values of a share of layer l begin and end. Those of all ranks follow each
// other and make the whole plane.
func (p *Placed) Range(l model.Layout, s Share) (from, to int64) {
	return p.after(l, s.From), p.after(l, s.To)
}

// ShareBytes is the size of the part of the plane that belongs to a share of layer l.
func (p *Placed) ShareBytes(l model.Layout, s Share) int64 {
	from, to := p.Range(l, s)
	return p.DType.Bytes(to - from)
}

// after is the place of the first value that belongs to element e of the flat element space or to a
// later one, where e begins a unit or is behind the last.
func (p *Placed) after(l model.Layout, e int64) int64 {
	if e == 0 {
		return 0
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

// Of lists the planes of a layer. Each is listed once, in the order in which the pieces of the
// parameters that the layer owns and trains ask for them.
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

// absent says for each piece of layer l that it has no values, and where it begins in its tensor.
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

// Bytes is the size of all planes of a layer.
func (f Planes) Bytes(l model.Layout) (bytes int64) {
	for _, p := range f.Of(l) {
		bytes += p.Bytes()
	}
	return bytes
}

// UpdateBytes is how many bytes an update of layer l reads and writes: the weights
// and all planes beside them.
func (f Planes) UpdateBytes(l model.Layout) int64 { return 2 * (MasterBytes(l) + f.Bytes(l)) }

// MasterBytes is the size of the master weights of layer l: 4 bytes an element, but where they are bf16 as much as streams.
func MasterBytes(l model.Layout) int64 {
	if l.BF16Master {
		return l.TileBytes
	}
	return 4 * l.Elems
}

// State is the memory of a plane of one layer.
type State struct {
	Placed
	From int64  // the place of the first value that is there: the first of the rank's share
	Data []byte // of the rank's share, or the whole layer, aligned to its values
}

// NewState is the plane p of a share of layer l in the memory that take gives for so many bytes.
func NewState(p Placed, l model.Layout, s Share, take func(bytes int64) []byte) State {
	from, _ := p.Range(l, s)
	return State{Placed: p, From: from, Data: take(p.ShareBytes(l, s))}
}

// Part is the memory of n values from place on.
func (s *State) Part(place, n int64) []byte {
	at := s.DType.Bytes(place - s.From)
	return s.Data[at:][:s.DType.Bytes(n)]
}

// Of is the memory of the values of the elements of unit u of layer l; nil where its
// piece has none.
func (s *State) Of(l *model.Layout, u Unit) []byte {
	for i, p := range Pieces(l.Tensors[u.Tensor].Param) {
		if at := u.At - p.At(); at >= 0 && at < p.Elems() && s.first[u.Tensor][i] >= 0 {
			return s.Part(s.first[u.Tensor][i]+s.values(at), s.values(u.N))
		}
	}
	return nil
}

// find is the plane of that name and type, which must be there.
func find(planes []State, name string, d DType) *State {
	for i := range planes {
		if p := &planes[i]; p.Name == name && p.DType == d {
			return p
		}
	}
	panic(fmt.Sprintf("optim: an update of weights without the plane %q", name))
}

// Floats are n values, fp32, of elements of one tensor from element at on. All of the pieces that
// these are in must have them.
func (s *State) Floats(tensor int, at, n int64) []float32 {
	i := len(s.at[tensor]) - 1
	for i > 0 && s.at[tensor][i] > at {
		i--
	}
	return View[float32](s.Part(s.first[tensor][i]+at-s.at[tensor][i], n))
}
