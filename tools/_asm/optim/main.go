// Command optim generates the assembly of package optim, each function for AVX-512 and AVX2. It covers the updates of
// plain and split weights by each rule, Muon's momentum, quantized moments, rounding to bf16 and the sum of squares.
// Run it with go generate.
package main

import (
	. "github.com/mmcloughlin/avo/build"

	. "mt/tools/asm/isa"
)

func main() {
	ConstraintExpr("!noasm")
	for _, v := range []isa{{AVX512}, {AVX2}} {
		for _, split := range []bool{false, true} {
			for _, grad := range []string{"F32", "BF16", "Zero"} {
				adam(v, split, grad)
				lion(v, split, grad)
				sgd(v, false, split, grad)
				sgd(v, true, split, grad)
				if grad != "Zero" {
					apply(v, split, grad)
				}
			}
			average(v, split)
		}
		for _, grad := range []string{"F32", "BF16"} {
			prepare(v, grad, "F32")
			prepare(v, grad, "BF16")
		}
		decode(v)
		decode16(v)
		encode(v, 8)
		if v.Wide() {
			encode16Wide(v)
		} else {
			encode(v, 4)
		}
		greatest(v)
		widen(v)
		round(v)
		sum(v, "F32")
		sum(v, "BF16")
	}
	decodeVBMI()
	encodeVBMI()
	Generate()
}
