package optim

import (
	"math"
	"unsafe"

	"mt/internal/bfloat"
)

// generic is the implementation in plain Go; every other one gives the same bits.
// float32(x*y) keeps the compiler from fusing a product with a sum.
var generic = kernels{
	name:  "generic",
	lanes: 1,
	plain: [gradKinds]plainKernel{
		func(w, m, v *float32, grad *byte, n int, c *[8]float32) {
			plainGeneric(w, m, v, grads[float32](grad, n), n, c)
		},
		func(w, m, v *float32, grad *byte, n int, c *[8]float32) {
			plainGeneric(w, m, v, grads[uint16](grad, n), n, c)
		},
		func(w, m, v *float32, _ *byte, n int, c *[8]float32) {
			plainGeneric[float32](w, m, v, nil, n, c)
		},
	},
	split: [gradKinds]splitKernel{
		func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32) {
			splitGeneric(hi, lo, m, v, grads[float32](grad, n), n, c)
		},
		func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *[8]float32) {
			splitGeneric(hi, lo, m, v, grads[uint16](grad, n), n, c)
		},
		func(hi, lo *uint16, m, v *float32, _ *byte, n int, c *[8]float32) {
			splitGeneric[float32](hi, lo, m, v, nil, n, c)
		},
	},
	sum: [gradKinds]sumKernel{
		func(x *byte, n int, lanes *[sumLanes]float64) { sumGeneric(grads[float32](x, n), lanes) },
		func(x *byte, n int, lanes *[sumLanes]float64) { sumGeneric(grads[uint16](x, n), lanes) },
	},
	codes: codeKernels{decodeGeneric, encodeGeneric, greatestGeneric},
}

// grads is the n gradients at p.
func grads[E float32 | uint16](p *byte, n int) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(p)), n)
}

// value is a gradient as fp32.
func value[E float32 | uint16](x E) float32 {
	switch x := any(x).(type) {
	case uint16:
		return bfloat.Widen(x)
	case float32:
		return x
	}
	panic("optim: not a gradient")
}

// plainGeneric updates n elements of an fp32 plane. Where g is nil, all gradients
// are zero.
func plainGeneric[E float32 | uint16](w, m, v *float32, g []E, n int, c *[8]float32) {
	ws, ms, vs := unsafe.Slice(w, n), unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i := range ws {
		var x float32
		if g != nil {
			x = value(g[i])
		}
		ws[i], ms[i], vs[i] = adam(ws[i], ms[i], vs[i], x, c)
	}
}

// splitGeneric is plainGeneric for a weight in two planes.
func splitGeneric[E float32 | uint16](hi, lo *uint16, m, v *float32, g []E, n int, c *[8]float32) {
	his, los := unsafe.Slice(hi, n), unsafe.Slice(lo, n)
	ms, vs := unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i := range his {
		var w, x float32
		if g != nil {
			x = value(g[i])
		}
		w, ms[i], vs[i] = adam(math.Float32frombits(Join(his[i], los[i])), ms[i], vs[i], x, c)
		his[i], los[i] = Split(math.Float32bits(w))
	}
}

// adam updates one element. For c see coefs.
func adam(w, m, v, g float32, c *[8]float32) (float32, float32, float32) {
	clip, decay, beta1c, beta2, beta2c, step, rootbc2, eps := c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
	g = float32(g * clip)
	m += float32(float32(g-m) * beta1c)
	if math.Float32bits(m)&expMask == 0 {
		m = 0
	}
	v = float32(v*beta2) + float32(float32(beta2c*g)*g)
	root := float32(math.Sqrt(float64(v)))
	w = float32(w*decay) - float32(float32(step*m)/float32(float32(root/rootbc2)+eps))
	return w, m, v
}

// expMask has the bits of an fp32 exponent set. In a zero they are all 0, and in
// numbers so small that the update of a table of them takes ten times as long
// (measured with AVX-512). Without the mask, a moment that decays and gets no
// gradients, as that of a rare row of the embedding, would be such a number after
// some 800 steps, and for good: 0.9 times the smallest number rounds to that
// number.
const expMask = 0x7f800000

// sumGeneric adds the squares of x to lanes: element i to lane i % sumLanes.
func sumGeneric[E float32 | uint16](x []E, lanes *[sumLanes]float64) {
	for i, e := range x {
		f := float64(value(e))
		lanes[i%sumLanes] += float64(f * f)
	}
}
