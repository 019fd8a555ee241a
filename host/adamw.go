package host

import (
	"fmt"
	"math"
	"unsafe"

	"mt/model"
)

// AdamW is one update's arithmetic, PyTorch's: decoupled decay, bias-corrected
// moments. With g the gradient times Clip, for every element
//
//	w = w·(1 − LR·WeightDecay)          where the parameter decays
//	m = m + (g − m)·(1 − Beta1)         0 once it is below the smallest normal number
//	v = v·Beta2 + (1 − Beta2)·g·g
//	w = w − (LR/bc1)·m / (√v/√bc2 + Eps),    bcᵢ = 1 − Betaᵢ^Step
//
// in fp32, each operation rounded; the factors are computed in float64 and
// rounded once. Source: arXiv:1711.05101; the order of operations is that of
// torch.optim.AdamW (lerp, addcmul, addcdiv).
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Step                               int64   // updates made, this one included: 1 is the first
	Clip                               float32 // the gradient's factor; 1 leaves it as it is
}

// Grad is a gradient in host memory: a layer's flat element space, one tensor,
// or rows of one.
type Grad struct {
	Data  []byte // Elems elements, aligned to their size
	BF16  bool   // bf16, else fp32
	Elems int64
}

// size is the number of bytes of an element.
func (g Grad) size() int64 {
	if g.BF16 {
		return 2
	}
	return 4
}

// kind is the kind of kernel that reads g.
func (g Grad) kind() gradKind {
	if g.BF16 {
		return gradBF16
	}
	return gradF32
}

// check panics unless g has elems elements or more and the memory for them.
func (g Grad) check(what string, elems int64) {
	if g.Elems < elems || int64(len(g.Data)) < g.Elems*g.size() {
		panic(fmt.Sprintf("host: %s: gradient of %d elements in %d bytes, wanted %d elements", what, g.Elems, len(g.Data), elems))
	}
	if p := unsafe.Pointer(unsafe.SliceData(g.Data)); uintptr(p)%uintptr(g.size()) != 0 {
		panic(fmt.Sprintf("host: %s: gradient at %#x is not aligned", what, uintptr(p)))
	}
}

// at points to element i.
func (g Grad) at(i int64) *byte { return &g.Data[i*g.size()] }

// coefs are the factors of an update, in the order in which kernels read them:
// clip, decay, 1−β1, β2, 1−β2, lr/bc1, √bc2, eps.
type coefs [8]float32

// coefs are the factors for tensors without [0] and with [1] decay.
func (a AdamW) coefs() *[2]coefs {
	if a.Step < 1 {
		panic(fmt.Sprintf("host: AdamW step %d: the first is 1", a.Step))
	}
	bc1 := 1 - math.Pow(a.Beta1, float64(a.Step))
	bc2 := 1 - math.Pow(a.Beta2, float64(a.Step))
	c := coefs{a.Clip, 1, float32(1 - a.Beta1), float32(a.Beta2), float32(1 - a.Beta2),
		float32(a.LR / bc1), float32(math.Sqrt(bc2)), float32(a.Eps)}
	both := &[2]coefs{c, c}
	both[1][1] = float32(1 - a.LR*a.WeightDecay)
	return both
}

// of are the factors for p.
func of(both *[2]coefs, p model.Param) *coefs {
	if p.Decay() {
		return &both[1]
	}
	return &both[0]
}

// pieceElems is how many elements one call of a parallel loop deals with.
const pieceElems = 1 << 15

// piece is a run of elements of one tensor.
type piece struct {
	tensor int
	at, n  int64
}

// cut cuts the owned tensors of l into pieces.
func cut(l model.Layout) []piece {
	var pieces []piece
	for t, tl := range l.Tensors {
		if tl.Ref {
			continue
		}
		for at := int64(0); at < tl.Elems(); at += pieceElems {
			pieces = append(pieces, piece{tensor: t, at: at, n: min(pieceElems, tl.Elems()-at)})
		}
	}
	return pieces
}

// Update moves all tensors that a layer owns by their gradient, which lies in g
// as in the layer's flat element space (references, if any, are skipped). On
// return everything is done. Updates of different layers may run at the same
// time.
func (s *Store) Update(layer int, g Grad, a AdamW) {
	l := s.Layers[layer]
	g.check(fmt.Sprintf("update layer %d", layer), l.Layout.Elems)
	both := a.coefs()
	run(s.pool, len(l.pieces), func(i int) {
		p := l.pieces[i]
		tl := &l.Layout.Tensors[p.tensor]
		l.step(tl, p.at, p.n, g.kind(), g.at(tl.Elem+p.at), of(both, tl.Param))
	})
}

// UpdateTensor moves one tensor by its gradient, which is all of g: for a tied
// table, whose gradient lies in the head's slab.
func (s *Store) UpdateTensor(layer, tensor int, g Grad, a AdamW) {
	l := s.Layers[layer]
	tl := l.owned(tensor)
	if g.Elems != tl.Elems() {
		panic(fmt.Sprintf("host: update layer %d %s: gradient of %d elements for %d", layer, tl.Role, g.Elems, tl.Elems()))
	}
	g.check(fmt.Sprintf("update layer %d %s", layer, tl.Role), tl.Elems())
	both := a.coefs()
	run(s.pool, int((tl.Elems()+pieceElems-1)/pieceElems), func(i int) {
		at := int64(i) * pieceElems
		l.step(&tl, at, min(pieceElems, tl.Elems()-at), g.kind(), g.at(at), of(both, tl.Param))
	})
}

// UpdateRows moves a layer's first tensor, the embedding's table (V, h): rows
// ids by their gradient, rows (len(ids), h), all others by a gradient of zero,
// as dense AdamW does. ids must rise strictly.
func (s *Store) UpdateRows(layer int, ids []int32, rows Grad, a AdamW) {
	l := s.Layers[layer]
	tl := l.owned(0)
	cols := int64(tl.Cols)
	checkIDs(fmt.Sprintf("update layer %d %s", layer, tl.Role), ids, tl.Rows)
	rows.check(fmt.Sprintf("update layer %d %s", layer, tl.Role), int64(len(ids))*cols)
	both := a.coefs()
	c := of(both, tl.Param)
	each := max(1, pieceElems/max(1, tl.Cols))
	run(s.pool, (tl.Rows+each-1)/each, func(i int) {
		row, end := i*each, min((i+1)*each, tl.Rows)
		for at, r := range runs(ids, row, end) {
			from, n := int64(r.row)*cols, int64(r.n)*cols
			if at < 0 {
				l.step(&tl, from, n, gradZero, nil, c)
			} else {
				l.step(&tl, from, n, rows.kind(), rows.at(int64(at)*cols), c)
			}
		}
	})
}

// step moves n elements of tensor tl from element at on. grad points to their
// gradient.
func (l *LayerState) step(tl *model.TensorLayout, at, n int64, kind gradKind, grad *byte, c *coefs) {
	if n == 0 {
		return
	}
	m, v := &l.M[tl.Elem+at], &l.V[tl.Elem+at]
	k, count := active, int(n)
	announceWrite(m, count)
	announceWrite(v, count)
	announceGrad(kind, grad, count)
	if tl.BF16 {
		hi := (*uint16)(unsafe.Pointer(&l.Tile[tl.TileOff+2*at]))
		lo := &l.Lo[tl.Elem+at]
		announceWrite(hi, count)
		announceWrite(lo, count)
		k.adamSplit(kind, hi, lo, m, v, grad, count, c)
		return
	}
	w := (*float32)(unsafe.Pointer(&l.Tile[tl.TileOff+4*at]))
	announceWrite(w, count)
	k.adamPlain(kind, w, m, v, grad, count, c)
}

// announceGrad tells the race detector that n gradients are read.
func announceGrad(kind gradKind, grad *byte, n int) {
	switch kind {
	case gradF32:
		announceRead(grad, 4*n)
	case gradBF16:
		announceRead(grad, 2*n)
	}
}
