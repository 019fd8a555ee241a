//go:build !noasm

package gemm

const mr256, nr256 = 6, 16

// peakSums is how many registers the functions peak… sum to.
const peakSums = 12

// avx2 is the level for processors with AVX2.
var avx2 = &level{
	name: "avx2",
	mr:   mr256,
	rows: 48,
	nr:   nr256,
	layout: layout{
		perStep:   1,
		kernels:   []kernelFunc{nil, kernel256x1, kernel256x2, kernel256x3, kernel256x4, kernel256x5, kernel256x6},
		column:    column256,
		packTiles: packTiles256,
		packB:     packB256,
		packBT:    packBT256,
	},
	widen:  avx2Widen,
	narrow: narrowOf(narrow256),
	dot:    dot256,

	peak: peakAVX2, peakElements: peakSums * 8,
}

// packB256 is layout.packB for AVX2.
func packB256(dst *float32, stride int, b operand, n, k int) {
	panels := n / nr256
	switch {
	case panels == 0:
	case b.bf16:
		packB256BF16(dst, stride, (*uint16)(b.p), b.ld, panels, k)
	default:
		packB256F32(dst, stride, (*float32)(b.p), b.ld, panels, k)
	}
	if whole := panels * nr256; whole < n {
		packPanels(at(dst, panels*stride), stride, nr256, b.at(0, whole), n-whole, k)
	}
}

// packTiles256 is layout.packTiles for AVX2. Kernels do not read the elements of rows that a tile does not have.
func packTiles256(dst *float32, stride int, a operand, trans bool, h, rows, k int, s *rowOffsets) {
	whole := 0
	if trans && h == mr256 {
		if whole = rows / mr256; whole > 0 && a.bf16 {
			packTiles256BF16(dst, stride, (*uint16)(a.p), a.ld, whole, k)
		} else if whole > 0 {
			packTiles256F32(dst, stride, (*float32)(a.p), a.ld, whole, k)
		}
	}
	for i := whole; i*h < rows; i++ {
		tile, n := at(dst, i*stride), min(h, rows-i*h)
		if trans {
			packPanels(tile, 0, mr256, a.at(0, i*h), n, k)
		} else {
			transpose8(tile, mr256, a.at(i*h, 0), n, k, s)
		}
	}
}

// packBT256 is layout.packBT for AVX2: it packs 8 columns at a time. If there are fewer, it repeats the last one.
// Products of repeated columns are not stored.
func packBT256(dst *float32, stride int, b operand, n, k int, s *rowOffsets) {
	for j := 0; j < n; j += 8 {
		transpose8(at(dst, j/nr256*stride+j%nr256), nr256, b.at(j, 0), n-j, k, s)
	}
}

// transpose8 transposes n columns of up to 8 rows of src into rows of 8 floats, stride floats apart. If there are fewer
// than 8 rows, it repeats the last.
func transpose8(dst *float32, stride int, src operand, rows, n int, s *rowOffsets) {
	whole, offsets := n&^7, (*[8]int)(s.first(8, src, rows))
	ahead := uintptr(min(rows, 8) * src.ld * src.size()) // the next call's rows
	if src.bf16 {
		transpose256BF16(dst, stride, (*uint16)(src.p), offsets, whole, ahead)
	} else {
		transpose256F32(dst, stride, (*float32)(src.p), offsets, whole, ahead)
	}
	if whole < n {
		transposeTo(at(dst, whole*stride), stride, src.at(0, whole), min(rows, 8), n-whole)
	}
}

var avx2Widen = widenOf(widen256)

func dot256(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	if b.bf16 {
		dot256BF16(&d[0], x, (*uint16)(b.p), offsets, k)
	} else {
		dot256F32(&d[0], x, (*float32)(b.p), offsets, k)
	}
	addDots(d, x, b, offsets, k&^15, k)
}
