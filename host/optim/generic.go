package optim

import (
	"unsafe"

	"mt/base/bf16"
)

// generic has the kernels in plain Go. All implementations of the kernels give the same bits. The conversion
// float32(x*y) in them keeps the compiler from fusing a product with a sum, which would round differently.
var generic = kernels{
	name:  "generic",
	lanes: 1,
	plain: [rules][gradKinds]plainKernel{
		adamRule: {
			func(w, m, v *float32, grad *byte, n int, c *coefs) {
				adamPlain(w, m, v, grads[float32](grad, n), n, c)
			},
			func(w, m, v *float32, grad *byte, n int, c *coefs) {
				adamPlain(w, m, v, grads[uint16](grad, n), n, c)
			},
			func(w, m, v *float32, _ *byte, n int, c *coefs) {
				adamPlain[float32](w, m, v, nil, n, c)
			},
		},
		lionRule:     plainStrips(lionStrip),
		sgdRule:      plainStrips(sgdStrip),
		momentumRule: plainStrips(momentumStrip),
		applyRule:    plainStrips(applyStrip),
		averageRule:  plainStrips(averageStrip),
	},
	split: [rules][gradKinds]splitKernel{
		adamRule: {
			func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *coefs) {
				adamSplit(hi, lo, m, v, grads[float32](grad, n), n, c)
			},
			func(hi, lo *uint16, m, v *float32, grad *byte, n int, c *coefs) {
				adamSplit(hi, lo, m, v, grads[uint16](grad, n), n, c)
			},
			func(hi, lo *uint16, m, v *float32, _ *byte, n int, c *coefs) {
				adamSplit[float32](hi, lo, m, v, nil, n, c)
			},
		},
		lionRule:     splitStrips(lionStrip),
		sgdRule:      splitStrips(sgdStrip),
		momentumRule: splitStrips(momentumStrip),
		applyRule:    splitStrips(applyStrip),
		averageRule:  splitStrips(averageStrip),
	},
	prepare: [gradZero][gradZero]prepareKernel{{prepareStrips(gradF32, gradF32), prepareStrips(gradF32, gradBF16)},
		{prepareStrips(gradBF16, gradF32), prepareStrips(gradBF16, gradBF16)}},
	sum: [gradKinds]sumKernel{
		func(x *byte, n int, lanes *[sumLanes]float64) { sumGeneric(grads[float32](x, n), lanes) },
		func(x *byte, n int, lanes *[sumLanes]float64) { sumGeneric(grads[uint16](x, n), lanes) },
	},
	codes:  codeKernels{decodeGeneric, decode16Generic, encodeGeneric, encode16Generic, greatestGeneric},
	rounds: roundKernels{widenGeneric, roundGeneric},
}

// grads returns the n gradients at address p as a slice of fp32 values or of the bits of bf16 values.
func grads[E float32 | uint16](p *byte, n int) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(p)), n)
}

// value returns the gradient x, fp32 or the bits of a bf16, as fp32.
func value[E float32 | uint16](x E) float32 {
	switch x := any(x).(type) {
	case uint16:
		return bf16.Widen(x)
	case float32:
		return x
	}
	panic("optim: not a gradient")
}

// sumGeneric adds the squares of x to partial sums: the square of element i goes to lanes[i % sumLanes].
func sumGeneric[E float32 | uint16](x []E, lanes *[sumLanes]float64) {
	for i, e := range x {
		f := float64(value(e))
		lanes[i%sumLanes] += float64(f * f)
	}
}
