//go:build !noasm

package gemm

import "unsafe"

const nr256 = 16

// avx2 packs in plain Go, whose speed is close to that of memory.
var avx2 = &level{
	name:      "avx2",
	mr:        6,
	nr:        nr256,
	kernels:   []kernelFunc{nil, kernel256x1, kernel256x2, kernel256x3, kernel256x4, kernel256x5, kernel256x6},
	packRows:  packRows256,
	packRowsT: packRowsTGeneric,
	packB: func(dst *float32, stride int, b operand, n, k int) {
		packPanels(dst, stride, nr256, b, n, k)
	},
	packBT: func(dst *float32, stride int, b operand, n, k int, _ *rowOffsets) {
		packPanelsT(dst, stride, nr256, b, n, k)
	},
	widen:  widenAll256,
	narrow: narrowAll256,
	dot:    dot256,
}

func packRows256(dst *float32, a operand, rows, k int) {
	for r := range rows {
		src := a.at(r, 0)
		if a.bf16 {
			widenAll256(at(dst, r*rowStride), (*uint16)(src.p), k)
		} else {
			copy(unsafe.Slice(at(dst, r*rowStride), k), src.f32(k))
		}
	}
}

func widenAll256(dst *float32, src *uint16, n int) {
	whole := n &^ 7
	widen256(dst, src, whole)
	if n > whole {
		widenGeneric(at(dst, whole), (*uint16)(unsafe.Add(unsafe.Pointer(src), 2*whole)), n-whole)
	}
}

func narrowAll256(dst *uint16, src *float32, n int) {
	whole := n &^ 7
	narrow256(dst, src, whole)
	if n > whole {
		narrowGeneric((*uint16)(unsafe.Add(unsafe.Pointer(dst), 2*whole)), at(src, whole), n-whole)
	}
}

func dot256(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	if b.bf16 {
		dot256BF16(&d[0], x, (*uint16)(b.p), offsets, k)
	} else {
		dot256F32(&d[0], x, (*float32)(b.p), offsets, k)
	}
	in := unsafe.Slice(x, k)
	for r, off := range offsets {
		row := b
		row.p = unsafe.Add(b.p, off)
		for i := k &^ 15; i < k; i++ {
			d[r] += in[i] * row.value(i)
		}
	}
}
