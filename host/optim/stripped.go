package optim

import (
	"sync"
	"unsafe"

	"mt/internal/bfloat"
)

// stripped is the arithmetic of a rule that takes weights and gradients as fp32 and has one moment,
// or none.
type stripped struct {
	clip float32
	by   interface {
		step(w, m, g []float32, decays bool)
	}
}

// wideElems is how many elements are made fp32 at a time.
const wideElems = 512

// wides are memory for the gradients and weights of so many elements.
var wides = sync.Pool{New: func() any { return new([2][wideElems]float32) }}

func (s *stripped) move(x weightAt, m, _ *float32, kind gradKind, grad *byte, n int, decays bool) {
	wide := wides.Get().(*[2][wideElems]float32)
	defer wides.Put(wide)
	for at := 0; at < n; at += wideElems {
		k := min(wideElems, n-at)
		g := wide[0][:k]
		switch kind {
		case gradF32:
			for i, e := range grads[float32](skipGrad(kind, grad, at), k) {
				g[i] = float32(e * s.clip)
			}
		case gradBF16:
			for i, e := range grads[uint16](skipGrad(kind, grad, at), k) {
				g[i] = float32(bfloat.Widen(e) * s.clip)
			}
		default:
			clear(g)
		}
		var ms []float32
		if m != nil {
			ms = unsafe.Slice(skip(m, at), k)
		}
		if x.hi == nil {
			s.by.step(unsafe.Slice(skip(x.w, at), k), ms, g, decays)
			continue
		}
		w, hi, lo := wide[1][:k], unsafe.Slice(skip(x.hi, at), k), unsafe.Slice(skip(x.lo, at), k)
		JoinRow(w, hi, lo)
		s.by.step(w, ms, g, decays)
		SplitRow(hi, lo, w)
	}
}
