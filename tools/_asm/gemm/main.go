// Command gemm writes the assembly of package gemm: the micro-kernels of every
// height, the packing of both operands, the conversion of results to bf16 and the
// dot products for a few rows. It is run by go generate.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	. "mt/tools/asm/isa"
)

func main() {
	ConstraintExpr("!noasm")
	machine512.kernels()
	machine256.kernels()
	machinePairs.kernels()
	packRowPairs512()
	packPairs512()
	transposePairs512()
	transposeRowPairs512()
	maker()
	for _, bf16 := range []bool{false, true} {
		packB512(bf16)
		transpose512(bf16)
		dot512(bf16)
		dot256(bf16)
	}
	widen512()
	narrow512()
	widen256()
	narrow256()
	Generate()
}

// suffix names the element type of what a function reads.
func suffix(bf16 bool) string {
	if bf16 {
		return "BF16"
	}
	return "F32"
}

// size is the bytes of an element.
func size(bf16 bool) int {
	if bf16 {
		return 2
	}
	return 4
}

// load512 reads 16 elements at m into z as fp32; under mask k, unless it is
// nil, elements that are masked out are not read and become 0.
func load512(bf16 bool, m Mem, z, k reg.Register) {
	if bf16 {
		LoadBF16(m, z, k)
	} else {
		AVX512.Load(m, z, k)
	}
}
