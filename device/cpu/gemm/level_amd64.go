//go:build !noasm

package gemm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// levels lists the levels (kernels for one instruction set each) that this machine can run, the fastest first.
func levels() []*level {
	var all []*level
	x := &cpu.X86
	if x.HasAVX512F && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512BW && x.HasBMI2 {
		if madeByAMD() && pairsWork() {
			all = append(all, avx512bf16)
		}
		all = append(all, avx512)
	}
	if x.HasAVX2 && x.HasFMA {
		all = append(all, avx2)
	}
	return append(all, generic)
}

const nr512 = 32

var avx512 = &level{
	name: "avx512",
	mr:   14,
	rows: 224,
	nr:   nr512,
	layout: layout{
		perStep: 1,
		kernels: []kernelFunc{nil,
			kernel512x1, kernel512x2, kernel512x3, kernel512x4, kernel512x5, kernel512x6, kernel512x7,
			kernel512x8, kernel512x9, kernel512x10, kernel512x11, kernel512x12, kernel512x13, kernel512x14,
		},
		packRows:  packRows512,
		packRowsT: packRowsT512,
		packB:     packB512,
		packBT:    packBT512,
	},
	widen:  widen512,
	narrow: narrow512,
	dot:    dot512,

	peak: peakAVX512, peakElements: peakSums * 16,
}

func packRows512(dst *float32, a operand, rows, k int) {
	for r := range rows {
		src := a.at(r, 0)
		if a.bf16 {
			widen512(at(dst, r*rowStride), (*uint16)(src.p), k)
		} else {
			copy(unsafe.Slice(at(dst, r*rowStride), k), src.f32(k))
		}
	}
}

// packRowsT512 is layout.packRowsT for AVX-512: it packs 16 elements of K at a time. A row that
// ends earlier is filled up with its last element; kernels do not read these repetitions.
func packRowsT512(dst *float32, a operand, rows, k int, s *rowOffsets) {
	for j := 0; j < k; j += 16 {
		transpose16(at(dst, j), rowStride, a.at(j, 0), k-j, rows, s)
	}
}

// transpose16 transposes n columns of up to 16 rows of src into rows of 16 floats, stride floats apart. If there are
// fewer than 16 rows, it repeats the last.
func transpose16(dst *float32, stride int, src operand, rows, n int, s *rowOffsets) {
	offsets := (*[16]int)(s.first(16, src, rows))
	if src.bf16 {
		transpose512BF16(dst, stride, (*uint16)(src.p), offsets, n)
	} else {
		transpose512F32(dst, stride, (*float32)(src.p), offsets, n)
	}
}

// first returns the byte offsets of the first n rows of src, which has rows rows. If there are fewer, the last one is
// repeated.
func (s *rowOffsets) first(n int, src operand, rows int) []int {
	offsets := s[:n]
	for i := range offsets {
		offsets[i] = min(i, rows-1) * src.ld * src.size()
	}
	return offsets
}

func packB512(dst *float32, stride int, b operand, n, k int) {
	panels := ceil(n, nr512)
	last := lowBits(n - (panels-1)*nr512)
	if b.bf16 {
		packB512BF16(dst, stride, (*uint16)(b.p), b.ld, panels, k, last)
	} else {
		packB512F32(dst, stride, (*float32)(b.p), b.ld, panels, k, last)
	}
}

// packBT512 is layout.packBT for AVX-512: it packs 16 columns at a time. If there are fewer, it
// repeats the last one. Products of repeated columns are not stored.
func packBT512(dst *float32, stride int, b operand, n, k int, s *rowOffsets) {
	for j := 0; j < n; j += 16 {
		transpose16(at(dst, j/nr512*stride+j%nr512), nr512, b.at(j, 0), n-j, k, s)
	}
}

func dot512(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	if b.bf16 {
		dot512BF16(&d[0], x, (*uint16)(b.p), offsets, k)
	} else {
		dot512F32(&d[0], x, (*float32)(b.p), offsets, k)
	}
}

// lowBits returns a mask with the n lowest bits set.
func lowBits(n int) uint32 { return uint32(1<<n - 1) }
