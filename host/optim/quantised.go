package optim

import (
	"sync"

	"mt/model"
)

// Quantised updates weights like the optimizer in field By, but stores the moments in codes, with a scale for each
// block of elements. A block has 256 elements with 8 bits and 128 with 4 bits. An update decodes the moments, updates
// moments and weights in fp32, and encodes the moments. Moments stay in fp32 for pieces of fewer than 4,096 elements or
// a partial block. Zero codes and scales mean zero moments. Sources: torchao's AdamW8bit and AdamW4bit;
// arXiv:2110.02861, arXiv:2309.01507.
type Quantised struct {
	By   Elementwise
	Bits int // 8 or 4
}

// leastQuantised is the smallest number of elements of a piece whose moments are quantized.
const leastQuantised = 4096

// coded reports whether the moments of piece p are quantized: p must be large enough and consist of whole blocks.
func (q Quantised) coded(p Piece) bool {
	n := p.Elems()
	return n >= leastQuantised && n%schemes[q.Bits].block == 0
}

// codesOf and scalesOf return the two planes in which a quantized moment is stored: its codes, and a scale for each
// block.
func (q Quantised) codesOf(m moment) Plane {
	return Plane{Name: m.Name + "_codes", DType: schemes[q.Bits].codes, Kind: m.Kind, Of: m.Of}
}

func (q Quantised) scalesOf(m moment) Plane {
	return Plane{Name: m.Name + "_scales", DType: F32, Block: schemes[q.Bits].block, Kind: m.Kind, Of: m.Of}
}

// stateOf returns the codes and scales of moment m for unit u of layer l, as views of the memory in planes.
func (q Quantised) stateOf(m moment, planes []State, l *model.Layout, u Unit) (codes []byte, scales []float32) {
	k, f := q.codesOf(m), q.scalesOf(m)
	return find(planes, k.Name, k.DType).Of(l, u), View[float32](find(planes, f.Name, f.DType).Of(l, u))
}

// Planes implements Optimizer.
func (q Quantised) Planes(p Piece) []Plane {
	if !q.coded(p) {
		return q.By.Planes(p)
	}
	var out []Plane
	for _, m := range q.By.moments() {
		out = append(out, q.codesOf(m), q.scalesOf(m))
	}
	return out
}

// Units implements Optimizer. No unit crosses the end of a piece, because blocks do not.
func (q Quantised) Units(l model.Layout) []Unit {
	var units []Unit
	for t, tl := range l.Tensors {
		if tl.Ref || tl.Frozen {
			continue
		}
		for _, p := range Pieces(tl.Param) {
			for at := int64(0); at < p.Elems(); at += pieceElems {
				units = append(units, Unit{Tensor: t, At: p.At() + at, N: min(pieceElems, p.Elems()-at)})
			}
		}
	}
	return units
}

// At implements Optimizer.
func (q Quantised) At(r Rate) Update {
	return &codedUpdate{q, elementUpdate{q.By.moments(), q.By.arithmetic(r), r.Step}}
}

// codedUpdate is the Update of an optimizer with quantized moments. Pieces whose moments are not quantized are updated
// by the field f32.
type codedUpdate struct {
	of  Quantised
	f32 elementUpdate
}

// stripCoded is the number of elements that are decoded at a time. It is a multiple of the block size.
const stripCoded = 2048

// rooms caches the scratch memory of updates between calls.
var rooms = sync.Pool{New: func() any { return new(room) }}

// Step implements Update.
func (c *codedUpdate) Step(u Unit, w Weight, planes []State, grad Grad) {
	if !c.of.coded(pieceOf(w.Layout.Tensors[u.Tensor].Param, u.At)) {
		c.f32.Step(u, w, planes, grad)
		return
	}
	s, ms := schemes[c.of.Bits], c.f32.moments
	var codes [2][]byte
	var scales [2][]float32
	for i, m := range ms {
		codes[i], scales[i] = c.of.stateOf(m, planes, w.Layout, u)
	}
	r := rooms.Get().(*room)
	defer rooms.Put(r)
	x := elements{weight: &w, tensor: u.Tensor, by: c.f32.by, step: c.f32.step}
	for at := int64(0); at < u.N; at += stripCoded {
		n := min(stripCoded, u.N-at)
		x.from = u.At + at
		part := func(i int) ([]float32, []byte, []float32) {
			return r.moments[i][:n], codes[i][s.codes.Bytes(at):s.codes.Bytes(at+n)], scales[i][at/s.block : (at+n)/s.block]
		}
		for i, m := range ms {
			values, codes, scales := part(i)
			s.decode(s.book(m.signed), values, codes, scales)
			x.moments[i] = values
		}
		x.walk(x.from, n, u.At, grad)
		for i, m := range ms {
			values, codes, scales := part(i)
			s.encode(s.book(m.signed), values, codes, scales)
		}
	}
}

// pieceOf returns the piece (a tensor as in PyTorch) of parameter p that contains element at.
func pieceOf(p model.Param, at int64) Piece {
	s, _ := storedAt(p, at)
	return Piece{p, s.Row, s.Rows}
}
