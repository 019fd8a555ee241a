//go:build !noasm

package gemm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// avx512bf16 is the level avx512 with other kernels for products of bf16 by bf16: they use
// VDPBF16PS, an instruction for pairs of bf16.
var avx512bf16 = func() *level {
	l := *avx512
	l.name = "avx512bf16"
	l.pairs = &layout{
		perStep: 2,
		kernels: []kernelFunc{nil,
			kernelPairsx1, kernelPairsx2, kernelPairsx3, kernelPairsx4, kernelPairsx5, kernelPairsx6, kernelPairsx7,
			kernelPairsx8, kernelPairsx9, kernelPairsx10, kernelPairsx11, kernelPairsx12, kernelPairsx13, kernelPairsx14,
		},
		packRows:  packRowPairs,
		packRowsT: packRowPairsT,
		packB:     packPairs,
		packBT:    packPairsT,
	}
	return &l
}()

// pairsWork reports whether this processor, which has AVX-512, has VDPBF16PS and adds pairs in the expected order.
func pairsWork() bool { return cpu.X86.HasAVX512BF16 && addsInOrder(kernelPairsx1) }

// madeByAMD reports whether AMD made the processor. On AMD, VDPBF16PS was measured to be as fast as the fp32
// instruction that does half the work. On Xeons, VDPBF16PS takes twice as long, so it gains nothing.
func madeByAMD() bool {
	const auth, enti, camd = 0x68747541, 0x69746e65, 0x444d4163 // "Auth", "enti", "cAMD"
	ebx, ecx, edx := maker()
	return ebx == auth && edx == enti && ecx == camd
}

func packRowPairs(dst *float32, a operand, rows, k int) {
	for r := range rows {
		packRowPairs512(at(dst, r*rowStride), (*uint16)(a.at(r, 0).p), k)
	}
}

// packRowPairsT packs rows of A, 32 elements of K at a time, as pairs of bf16. A row that ends earlier is filled up
// with its last element. Kernels do not read these repetitions. The one exception completes the last pair, and is set
// to 0.
func packRowPairsT(dst *float32, a operand, rows, k int, s *rowOffsets) {
	for j := 0; j < k; j += 32 {
		for i := range s {
			s[i] = min(i, k-j-1) * a.ld * a.size()
		}
		transposeRowPairs512(at(dst, j/2), rowStride, (*uint16)(a.at(j, 0).p), (*[32]int)(s), rows)
	}
	if k%2 == 1 {
		for r := range rows {
			clearLower(at(dst, r*rowStride+k/2), 1)
		}
	}
}

func packPairs(dst *float32, stride int, b operand, n, k int) {
	panels := ceil(n, nr512)
	last := lowBits(n - (panels-1)*nr512)
	if k >= 2 {
		packPairs512(dst, stride, (*uint16)(b.p), b.ld, panels, k/2, last)
	}
	if k%2 == 0 {
		return
	}
	end := at(dst, k/2*nr512)
	packPairs512(end, stride, (*uint16)(b.at(k-1, 0).p), 0, panels, 1, last) // the last row paired with itself
	for p := range panels {
		clearLower(at(end, p*stride), nr512)
	}
}

// packPairsT packs columns of B, 16 at a time, as pairs of bf16. If there are fewer columns, it
// repeats the last one. Products of repeated columns are not stored.
func packPairsT(dst *float32, stride int, b operand, n, k int, s *rowOffsets) {
	for j := 0; j < n; j += 16 {
		column := b.at(j, 0)
		transposePairs512(at(dst, j/nr512*stride+j%nr512), nr512, (*uint16)(column.p), (*[16]int)(s.first(16, column, n-j)), k)
	}
}

// clearLower sets the lower halves of n pairs to 0.
func clearLower(p *float32, n int) {
	for i := range n {
		half := (*uint32)(unsafe.Pointer(at(p, i)))
		*half &= 0xffff0000
	}
}
