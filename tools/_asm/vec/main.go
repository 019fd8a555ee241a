// Command vec writes the assembly of package vec: every kernel twice, for
// AVX-512 and for AVX2 with FMA, from one description over the type isa. It is
// run by go generate.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	ConstraintExpr("!noasm")
	for _, v := range []isa{avx512, avx2} {
		widen(v)
		narrow(v)
		add(v)
		scale(v)
		shift(v)
		scaleMul(v)
		dot(v)
		sumOf(v)
		dot3(v)
		normGrad(v, false)
		normGrad(v, true)
		rotate(v)
		maxOf(v)
		expSum(v, true)
		expSum(v, false)
		softmaxStrip(v)
		gradStrip(v)
		for _, kind := range []string{swiglu, geglu, erfglu} {
			glu(v, kind)
			gluGrad(v, kind, false)
			gluGrad(v, kind, true)
		}
		for h := 1; h <= v.tileRows; h++ {
			tile(v, h, false)
			tile(v, h, true)
		}
	}
	transpose(avx512)
	Generate()
}
