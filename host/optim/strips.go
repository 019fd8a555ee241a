package optim

import (
	"sync"
	"unsafe"

	"mt/base/bf16"
)

// This file makes plain Go kernels from rules in fp32. It converts short strips of weights and gradients to fp32,
// applies the rule, and converts the weights back.

// strip updates weights w and their moment m by the gradients g, all of the same length. m is nil if the rule has no
// moment.
type strip func(w, m, g []float32, c *coefs)

// stripElems is the number of elements widened to fp32 at a time.
const stripElems = 512

// wides caches memory for stripElems gradients and weights.
var wides = sync.Pool{New: func() any { return new([2][stripElems]float32) }}

// plainStrips returns the kernels of a rule for plain weights.
func plainStrips(by strip) (out [gradKinds]plainKernel) {
	for kind := range gradKinds {
		out[kind] = func(w, m, _ *float32, grad *byte, n int, c *coefs) {
			for at := 0; at < n; at += stripElems {
				k := min(stripElems, n-at)
				wide := wides.Get().(*[2][stripElems]float32)
				by(unsafe.Slice(skip(w, at), k), momentsAt(m, at, k), widen(wide[0][:k], kind, skipGrad(kind, grad, at)), c)
				wides.Put(wide)
			}
		}
	}
	return out
}

// splitStrips returns the kernels of a rule for split weights.
func splitStrips(by strip) (out [gradKinds]splitKernel) {
	for kind := range gradKinds {
		out[kind] = func(hi, lo *uint16, m, _ *float32, grad *byte, n int, c *coefs) {
			for at := 0; at < n; at += stripElems {
				k := min(stripElems, n-at)
				wide := wides.Get().(*[2][stripElems]float32)
				w, his, los := wide[1][:k], unsafe.Slice(skip(hi, at), k), unsafe.Slice(skip(lo, at), k)
				JoinRow(w, his, los)
				by(w, momentsAt(m, at, k), widen(wide[0][:k], kind, skipGrad(kind, grad, at)), c)
				SplitRow(his, los, w)
				wides.Put(wide)
			}
		}
	}
	return out
}

// momentsAt returns n moments from the at-th on; nil if m is nil.
func momentsAt(m *float32, at, n int) []float32 {
	if m == nil {
		return nil
	}
	return unsafe.Slice(skip(m, at), n)
}

// widen converts the gradients at address grad to fp32. It stores and returns them in its first argument.
func widen(to []float32, kind gradKind, grad *byte) []float32 {
	switch kind {
	case gradF32:
		copy(to, grads[float32](grad, len(to)))
	case gradBF16:
		for i, e := range grads[uint16](grad, len(to)) {
			to[i] = bf16.Widen(e)
		}
	default:
		clear(to)
	}
	return to
}

// prepareStrips returns the plain Go kernel for Muon's momentum, for one type of gradient and one type of output.
func prepareStrips(kind, to gradKind) prepareKernel {
	return func(m *float32, grad, out *byte, n int, c *coefs) {
		for at := 0; at < n; at += stripElems {
			k := min(stripElems, n-at)
			wide := wides.Get().(*[2][stripElems]float32)
			made := wide[1][:k]
			prepareStrip(unsafe.Slice(skip(m, at), k), widen(wide[0][:k], kind, skipGrad(kind, grad, at)), made, c)
			if to == gradF32 {
				copy(grads[float32](skipGrad(to, out, at), k), made)
			} else {
				for i, x := range made {
					grads[uint16](skipGrad(to, out, at), k)[i] = bf16.Round(x)
				}
			}
			wides.Put(wide)
		}
	}
}
