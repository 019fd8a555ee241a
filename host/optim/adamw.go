package optim

import (
	"fmt"
	"math"
	"unsafe"

	"mt/model"
)

// AdamW is PyTorch's: decoupled decay, bias-corrected moments m and v, which are
// its planes. With g the gradient times Clip, for every element
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
	Beta1, Beta2, Eps, WeightDecay float64
}

// The planes of AdamW.
var (
	firstMoment  = Plane{Name: "m", DType: F32, Kind: "moments", Of: "AdamW"}
	secondMoment = Plane{Name: "v", DType: F32, Kind: "moments", Of: "AdamW"}
	moments      = []Plane{firstMoment, secondMoment}
)

// Planes implements Optimizer.
func (AdamW) Planes(Piece) []Plane { return moments }

// coefs are the factors of an update, in the order in which kernels read them:
// clip, decay, 1−β1, β2, 1−β2, lr/bc1, √bc2, eps.
type coefs [8]float32

// adamUpdate has the factors for tensors that do not decay in [0], and for those
// that do in [1].
type adamUpdate [2]coefs

// At implements Optimizer.
func (a AdamW) At(r Rate) Update {
	if r.Step < 1 {
		panic(fmt.Sprintf("optim: AdamW step %d: the first is 1", r.Step))
	}
	bc1 := 1 - math.Pow(a.Beta1, float64(r.Step))
	bc2 := 1 - math.Pow(a.Beta2, float64(r.Step))
	c := coefs{r.Clip, 1, float32(1 - a.Beta1), float32(a.Beta2), float32(1 - a.Beta2),
		float32(r.LR / bc1), float32(math.Sqrt(bc2)), float32(a.Eps)}
	both := &adamUpdate{c, c}
	both[1][1] = float32(1 - r.LR*a.WeightDecay)
	return both
}

// of picks the factors for p.
func (both *adamUpdate) of(p *model.Param) *coefs {
	if p.Decay() {
		return &both[1]
	}
	return &both[0]
}

// pieceElems is how many elements one unit has at most.
const pieceElems = 1 << 15

// Units implements Optimizer.
func (AdamW) Units(l model.Layout) []Unit {
	var units []Unit
	for t, tl := range l.Tensors {
		if tl.Ref {
			continue
		}
		for at := int64(0); at < tl.Elems(); at += pieceElems {
			units = append(units, Unit{Tensor: t, At: at, N: min(pieceElems, tl.Elems()-at)})
		}
	}
	return units
}

// Step implements Update.
func (both *adamUpdate) Step(u Unit, w Weight, planes []State, grad Grad) {
	tl := &w.Layout.Tensors[u.Tensor]
	s := adamStep{weight: w, tensor: u.Tensor, m: find(planes, firstMoment.Name, F32), v: find(planes, secondMoment.Name, F32), c: both.of(&tl.Param)}
	if !grad.Sparse {
		s.move(u.At, u.N, grad.kind(), grad.at(0))
		return
	}
	cols, end := int64(tl.Cols), u.At+u.N
	for at, r := range runs(grad.IDs, int(u.At/cols), int((end+cols-1)/cols)) {
		row := int64(r.row) * cols // the unit may begin and end inside a row
		from, to := max(row, u.At), min(row+int64(r.n)*cols, end)
		if at < 0 {
			s.move(from, to-from, gradZero, nil)
		} else {
			s.move(from, to-from, grad.kind(), grad.at(int64(at)*cols+from-row))
		}
	}
}

// adamStep is what an update of elements of one tensor needs.
type adamStep struct {
	weight Weight
	tensor int
	m, v   *State
	c      *coefs
}

// move updates n > 0 elements from element at on. grad points to the gradient of
// the first.
func (s *adamStep) move(at, n int64, kind gradKind, grad *byte) {
	tl := &s.weight.Layout.Tensors[s.tensor]
	m, v := &s.m.floats(s.tensor, at, n)[0], &s.v.floats(s.tensor, at, n)[0]
	k, count := active, int(n)
	announceWrite(m, count)
	announceWrite(v, count)
	announceGrad(kind, grad, count)
	if tl.BF16 {
		hi := (*uint16)(unsafe.Pointer(&s.weight.Tile[tl.TileOff+2*at]))
		lo := &s.weight.Lo[tl.Elem+at-s.weight.From]
		announceWrite(hi, count)
		announceWrite(lo, count)
		k.adamSplit(kind, hi, lo, m, v, grad, count, s.c)
		return
	}
	w := (*float32)(unsafe.Pointer(&s.weight.Tile[tl.TileOff+4*at]))
	announceWrite(w, count)
	k.adamPlain(kind, w, m, v, grad, count, s.c)
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
