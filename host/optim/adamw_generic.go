package optim

import (
	"math"
	"unsafe"
)

// adamPlain updates n elements by AdamW in plain Go, for weights stored as one array of fp32. A nil
// g means that all gradients are zero.
func adamPlain[E float32 | uint16](w, m, v *float32, g []E, n int, c *coefs) {
	ws, ms, vs := unsafe.Slice(w, n), unsafe.Slice(m, n), unsafe.Slice(v, n)
	for i := range ws {
		var x float32
		if g != nil {
			x = value(g[i])
		}
		ws[i], ms[i], vs[i] = adam(ws[i], ms[i], vs[i], x, c)
	}
}

// adamSplit is adamPlain for split weights: hi has the bf16 halves, lo the lower halves.
func adamSplit[E float32 | uint16](hi, lo *uint16, m, v *float32, g []E, n int, c *coefs) {
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

// adam updates one element. It returns the new weight and moments. c has the factors that AdamW.arithmetic lists.
func adam(w, m, v, g float32, c *coefs) (float32, float32, float32) {
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

// expMask selects the exponent bits of an fp32 number. They are all 0 in zero and in subnormal numbers.
//
// Updates set subnormal moments to 0, because subnormal numbers make the update of a table ten times as slow (measured
// with AVX-512). The moment of a rare embedding row, for example, becomes subnormal after some 800 steps without a
// gradient. It would stay subnormal for good, because 0.9 times the smallest number rounds to the same number.
const expMask = 0x7f800000
