package optim

import (
	"sync"
	"unsafe"

	"mt/base/bf16"
)

// This file makes kernels in plain Go from an optimizer's formula for one element in fp32 (the
// rule). A kernel takes strips, which are runs of at most 512 elements. It converts weights and
// gradients of a strip to fp32, applies the rule, and converts the weights back.

// strip applies a rule to one strip: it updates weights w and their moment m by the gradients g. All three have the
// same length, but m is nil if the rule has no moment. c has the rule's factors.
type strip func(w, m, g []float32, c *coefs)

// stripElems is the largest number of elements in a strip.
const stripElems = 512

// wides caches memory for the gradients and weights of one strip in fp32.
var wides = sync.Pool{New: func() any { return new([2][stripElems]float32) }}

// plainStrips makes the kernels of the rule in by for fp32 weights: one kernel for each kind of gradient.
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

// splitStrips makes the kernels of the rule in by for split weights, which are stored as a bf16 high half and a lower
// half. There is one kernel for each kind of gradient.
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

// momentsAt returns n of the moments at address m, from number `at` on; nil if m is nil, because
// the rule has no moment.
func momentsAt(m *float32, at, n int) []float32 {
	if m == nil {
		return nil
	}
	return unsafe.Slice(skip(m, at), n)
}

// widen converts len(to) gradients at address grad to fp32, writes them to `to` and returns it. If
// all gradients are zero, they are not in memory (kind says so), and widen writes zeros.
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

// prepareStrips makes the plain Go kernel that updates Muon's momentum, for gradients of type kind and a matrix to
// orthogonalize of type to.
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
