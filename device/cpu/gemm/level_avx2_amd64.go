//go:build !noasm

package gemm

const nr256 = 16

// avx2 is the level for processors with AVX2. Its kernels are assembly, but plain Go packs the
// operands, at almost the rate of memory.
var avx2 = &level{
	name: "avx2",
	mr:   6,
	nr:   nr256,
	layout: layout{
		perStep:   1,
		kernels:   []kernelFunc{nil, kernel256x1, kernel256x2, kernel256x3, kernel256x4, kernel256x5, kernel256x6},
		packRows:  packRowsOf(widenOf(widen256)),
		packRowsT: packRowsTGeneric,
		packB: func(dst *float32, stride int, b operand, n, k int) {
			packPanels(dst, stride, nr256, b, n, k)
		},
		packBT: func(dst *float32, stride int, b operand, n, k int, _ *rowOffsets) {
			packPanelsT(dst, stride, nr256, b, n, k)
		},
	},
	widen:  widenOf(widen256),
	narrow: narrowOf(narrow256),
	dot:    dot256,
}

func dot256(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	if b.bf16 {
		dot256BF16(&d[0], x, (*uint16)(b.p), offsets, k)
	} else {
		dot256F32(&d[0], x, (*float32)(b.p), offsets, k)
	}
	addDots(d, x, b, offsets, k&^15, k)
}
