// Command optim writes the assembly of package optim: AdamW over plain and split
// weights, codes of moments and the sum of squares, each for AVX-512 and for AVX2. It is run by
// go generate.
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
			}
		}
		decode(v)
		encode(v)
		greatest(v)
		sum(v, "F32")
		sum(v, "BF16")
	}
	Generate()
}
