//go:build !noasm && (amd64 || arm64)

package gemm

import "unsafe"

// This file extends kernels that take a multiple of 8 elements to any number of elements.

// widenOf extends eights, a conversion of bf16 numbers to fp32 for multiples of 8, to any number n.
// The rest is converted in plain Go.
func widenOf(eights func(dst *float32, src *uint16, n int)) func(dst *float32, src *uint16, n int) {
	return func(dst *float32, src *uint16, n int) {
		whole := n &^ 7
		eights(dst, src, whole)
		if n > whole {
			widenGeneric(at(dst, whole), (*uint16)(unsafe.Add(unsafe.Pointer(src), 2*whole)), n-whole)
		}
	}
}

// narrowOf extends eights, a conversion of fp32 numbers to bf16 for multiples of 8, to any number
// n. The rest is converted in plain Go.
func narrowOf(eights func(dst *uint16, src *float32, n int)) func(dst *uint16, src *float32, n int) {
	return func(dst *uint16, src *float32, n int) {
		whole := n &^ 7
		eights(dst, src, whole)
		if n > whole {
			narrowGeneric((*uint16)(unsafe.Add(unsafe.Pointer(dst), 2*whole)), at(src, whole), n-whole)
		}
	}
}

// addDots adds to d[r] the dot product of x and row r of b over the elements from … k−1, which the
// assembly leaves out. The offsets are the distances of the four rows from b's origin in bytes.
func addDots(d *[4]float32, x *float32, b operand, offsets *[4]int, from, k int) {
	in := unsafe.Slice(x, k)
	for r, off := range offsets {
		row := b
		row.p = unsafe.Add(b.p, off)
		for i := from; i < k; i++ {
			d[r] += in[i] * row.value(i)
		}
	}
}
