package optim

import (
	"unsafe"

	"mt/model"
)

// Elementwise is an optimizer that updates each element independently, from its weight, its gradient and at most two
// moments.
type Elementwise interface {
	Optimizer
	// moments lists the moments of an element. It applies to pieces of tensors whose moments are stored in fp32.
	moments() []moment
	// arithmetic returns how one element is updated at rate r.
	arithmetic(r Rate) *arithmetic
	// decaying returns the same optimizer, but with weight decay by.
	decaying(by float64) Elementwise
}

// moment is a plane of an element-wise optimizer, with one value for each element, such as AdamW's m.
type moment struct {
	Plane
	signed bool // false: never negative
}

// arithmetic says how to update an element: a rule (an optimizer's formula for one element) and its factors at one
// learning rate. There are two sets of factors, for parameters without (still) and with weight decay (decays).
type arithmetic struct {
	rule          rule
	still, decays coefs
	groups        []*arithmetic // by group of tensors (model.Stored.Group), from 1 on; nil: no groups, all elements use this arithmetic
}

// weightAt points to the first of some weights: to their halves (hi and lo) if they are split, otherwise to fp32 values
// (w).
type weightAt struct {
	hi, lo *uint16
	w      *float32
}

// skip returns x with all pointers moved n elements forward.
func (x weightAt) skip(n int) weightAt { return weightAt{skip(x.hi, n), skip(x.lo, n), skip(x.w, n)} }

// pieceElems is the maximum number of elements in a unit of an element-wise optimizer.
const pieceElems = 1 << 15

// elementUnits cuts a layer into units for an optimizer that updates each element independently.
func elementUnits(l model.Layout) []Unit {
	var units []Unit
	for t, tl := range l.Tensors {
		if tl.Ref || tl.Frozen {
			continue
		}
		for at := int64(0); at < tl.Elems(); at += pieceElems {
			units = append(units, Unit{Tensor: t, At: at, N: min(pieceElems, tl.Elems()-at)})
		}
	}
	return units
}

// elementUpdate is the Update of an element-wise optimizer whose moments are stored in fp32.
type elementUpdate struct {
	moments []moment
	by      *arithmetic
	step    int64 // see Rate
}

// Step implements Update.
func (e elementUpdate) Step(u Unit, w Weight, planes []State, grad Grad) {
	x := elements{weight: &w, tensor: u.Tensor, from: u.At, by: e.by, step: e.step}
	for i, m := range e.moments {
		x.moments[i] = find(planes, m.Name, F32).Floats(u.Tensor, u.At, u.N)
	}
	x.walk(u.At, u.N, u.At, grad)
}

// elements has everything that is the same for all elements of one tensor in an update: weights,
// moments and the formula.
type elements struct {
	weight  *Weight
	tensor  int
	from    int64        // the first element of moments
	moments [2][]float32 // nil: the optimizer has no such moment
	by      *arithmetic
	step    int64 // see Rate
}

// walk updates the elements [at, at+n) of the tensor. A dense grad begins with the gradient of element number first. A
// sparse grad has gradients of some rows; the elements of all other rows have zero gradients.
func (x *elements) walk(at, n, first int64, grad Grad) {
	if !grad.Sparse {
		x.move(at, n, grad.kind(), grad.at(at-first))
		return
	}
	cols, end := int64(x.weight.Layout.Tensors[x.tensor].Cols), at+n
	for i, r := range runs(grad.IDs, int(at/cols), int((end+cols-1)/cols)) {
		row := int64(r.row) * cols // the range of elements may begin and end inside a row
		from, to := max(row, at), min(row+int64(r.n)*cols, end)
		if i < 0 {
			x.move(from, to-from, gradZero, nil)
		} else {
			x.move(from, to-from, grad.kind(), grad.at(int64(i)*cols+from-row))
		}
	}
}

// move updates the elements [at, at+n) of the tensor, n > 0. Each element uses the learning rate and weight decay of
// its group of tensors. grad points to the first element's gradient.
func (x *elements) move(at, n int64, kind gradKind, grad *byte) {
	tl := &x.weight.Layout.Tensors[x.tensor]
	for first, end := at, at+n; first < end; {
		by, k := x.by, end-first
		if by.groups != nil {
			by, k = by.of(tl.Param, first)
			k = min(k, end-first)
		}
		x.moveBy(by, first, k, kind, skipGrad(kind, grad, int(first-at)))
		first += k
	}
	for _, m := range x.weight.Means {
		x.average(m, tl, at, n)
	}
}

// moveBy is move for elements that all use the arithmetic by.
func (x *elements) moveBy(by *arithmetic, at, n int64, kind gradKind, grad *byte) {
	tl, count := &x.weight.Layout.Tensors[x.tensor], int(n)
	m, v := x.moment(0, at), x.moment(1, at)
	for _, p := range [...]*float32{m, v} {
		if p != nil {
			announceWrite(p, count)
		}
	}
	announceGrad(kind, grad, count)
	c := &by.still
	if tl.Decay() {
		c = &by.decays
	}
	var w weightAt
	switch {
	case tl.BF16 && x.weight.Layout.BF16Master:
		x.moveRounded(by.rule, tl, at, m, v, kind, grad, count, c)
		return
	case tl.BF16:
		w.hi = (*uint16)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+2*at]))
		w.lo = &x.weight.Lo[tl.Elem+at-x.weight.From]
		announceWrite(w.hi, count)
		announceWrite(w.lo, count)
	default:
		w.w = (*float32)(unsafe.Pointer(&x.weight.Tile[tl.TileOff+4*at]))
		announceWrite(w.w, count)
	}
	active.move(by.rule, w, m, v, kind, grad, count, c)
}

// moment returns a pointer to the i-th moment of element at; nil if the optimizer has no such moment.
func (x *elements) moment(i int, at int64) *float32 {
	if x.moments[i] == nil {
		return nil
	}
	return &x.moments[i][at-x.from]
}

// announceGrad tells the race detector that assembly reads n gradients, which the race detector cannot see itself.
func announceGrad(kind gradKind, grad *byte, n int) {
	switch kind {
	case gradF32:
		announceRead(grad, 4*n)
	case gradBF16:
		announceRead(grad, 2*n)
	}
}
