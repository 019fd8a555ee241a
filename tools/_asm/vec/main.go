// Command vec generates the assembly of package vec. Each kernel is generated twice from one description over the type
// isa: for AVX-512 and for AVX2 with FMA. Run it with go generate.
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
		transpose(v)
	}
	Generate()
}
