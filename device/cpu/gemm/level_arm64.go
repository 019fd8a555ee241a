//go:build !noasm

package gemm

import "unsafe"

// levels lists the levels (kernels for one instruction set each) that this machine can run, the fastest first. Every
// arm64 processor that Go supports has NEON.
func levels() []*level { return []*level{neon, generic} }

const (
	mrNEON = 6
	nrNEON = 16
)

// neon is the level for arm64. Its kernels are assembly, but plain Go packs the operands.
var neon = &level{
	name: "neon",
	mr:   mrNEON,
	rows: 222,
	nr:   nrNEON,
	layout: layout{
		perStep:   1,
		kernels:   neonKernels(),
		packRows:  packRowsOf(widenOf(widenNEON)),
		packRowsT: packRowsTGeneric,
		packB: func(dst *float32, stride int, b operand, n, k int) {
			packPanels(dst, stride, nrNEON, b, n, k)
		},
		packBT: func(dst *float32, stride int, b operand, n, k int, _ *rowOffsets) {
			packPanelsT(dst, stride, nrNEON, b, n, k)
		},
	},
	widen:  widenOf(widenNEON),
	narrow: narrowOf(narrowNEON),
	dot:    dotNEON,
}

// neonKernels returns the kernels for tiles of 1 to mrNEON rows; the index is the number of rows.
func neonKernels() []kernelFunc {
	kernels := make([]kernelFunc, mrNEON+1)
	for h := 1; h <= mrNEON; h++ {
		kernels[h] = func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32, panel, block, across, down uintptr) {
			if mask == 1<<nrNEON-1 {
				kernelNEON(h, k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
				return
			}
			// The assembly always writes tiles with all nrNEON columns. If mask selects fewer, the
			// tile is computed in a local buffer and the selected columns are copied.
			var whole [mrNEON * nrNEON]float32
			kernelNEON(h, k, a, lda, b, nil, 0, &whole[0], nrNEON, panel, block, across, down)
			for r := range h {
				for j, sum := range whole[r*nrNEON:][:nrNEON] {
					if mask>>j&1 == 0 {
						continue
					}
					if c != nil {
						sum += *at(c, r*ldc+j)
					}
					*at(d, r*ldd+j) = sum
				}
			}
		}
	}
	return kernels
}

// kernelNEON runs the kernel for tiles of h rows. It calls each kernel by its name instead of through a table, so the
// compiler sees that no pointer escapes to the heap.
func kernelNEON(h, k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, panel, block, across, down uintptr) {
	switch h {
	case 1:
		kernelNEONx1(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	case 2:
		kernelNEONx2(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	case 3:
		kernelNEONx3(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	case 4:
		kernelNEONx4(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	case 5:
		kernelNEONx5(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	case 6:
		kernelNEONx6(k, a, lda, b, c, ldc, d, ldd, panel, block, across, down)
	}
}

func dotNEON(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	if b.bf16 {
		dotNEONBF16(&d[0], x, (*uint16)(b.p), offsets, k)
	} else {
		dotNEONF32(&d[0], x, (*float32)(b.p), offsets, k)
	}
	addDots(d, x, b, offsets, k&^7, k)
}

// packRowsOf returns a layout.packRows function in plain Go that uses widen, an instruction set's
// conversion from bf16 to fp32.
func packRowsOf(widen func(dst *float32, src *uint16, n int)) func(dst *float32, a operand, rows, k int) {
	return func(dst *float32, a operand, rows, k int) {
		for r := range rows {
			src := a.at(r, 0)
			if a.bf16 {
				widen(at(dst, r*rowStride), (*uint16)(src.p), k)
			} else {
				copy(unsafe.Slice(at(dst, r*rowStride), k), src.f32(k))
			}
		}
	}
}
