// Command gemm generates the assembly of package gemm: matrix product kernels for every number of
// rows, and dot products for a few rows. It also generates the packing of both operands and the
// conversion of results to bf16. Run it with go generate.
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
	column256()
	peak(AVX512, ZMMs)
	peak(AVX2, YMMs)
	packRowPairs512()
	packPairs512()
	transposePairs512()
	transposeRowPairs512()
	maker()
	for _, bf16 := range []bool{false, true} {
		packB512(bf16)
		transpose512(bf16)
		packB256(bf16)
		transpose256(bf16)
		packTiles256(bf16)
		dot512(bf16)
		dot256(bf16)
	}
	widen512()
	narrow512()
	widen256()
	narrow256()
	Generate()
}

// suffix returns the end of a function's name, which says whether its elements are bf16 or fp32.
func suffix(bf16 bool) string {
	if bf16 {
		return "BF16"
	}
	return "F32"
}

// size is the number of bytes of an element.
func size(bf16 bool) int {
	if bf16 {
		return 2
	}
	return 4
}

// load512 reads 16 elements at m into z as fp32. Elements outside mask k are not read and become 0. A nil k reads all
// elements.
func load512(bf16 bool, m Mem, z, k reg.Register) {
	if bf16 {
		LoadBF16(m, z, k)
	} else {
		AVX512.Load(m, z, k)
	}
}
