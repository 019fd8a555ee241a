package gemm

import (
	"unsafe"

	"mt/base/bf16"
)

// genericMR and genericNR are the rows and columns of the tile of D that a kernel in plain Go
// computes. Machines without assembly kernels use these kernels, and tests compare the assembly
// with them.
const (
	genericMR = 4
	genericNR = 8
)

var generic = &level{
	name: "generic",
	mr:   genericMR,
	rows: 224,
	nr:   genericNR,
	layout: layout{
		perStep:   1,
		kernels:   genericKernels(),
		packRows:  packRowsGeneric,
		packRowsT: packRowsTGeneric,
		packB: func(dst *float32, stride int, b operand, n, k int) {
			packPanels(dst, stride, genericNR, b, n, k)
		},
		packBT: func(dst *float32, stride int, b operand, n, k int, _ *rowOffsets) {
			packPanelsT(dst, stride, genericNR, b, n, k)
		},
	},
	widen:  widenGeneric,
	narrow: narrowGeneric,
	dot:    dotGeneric,
}

// genericKernels returns the kernels for tiles of 1 to genericMR rows; the index is the number of rows.
func genericKernels() []kernelFunc {
	kernels := make([]kernelFunc, genericMR+1)
	for h := 1; h <= genericMR; h++ {
		kernels[h] = func(k int, a *float32, lda int, b, c *float32, ldc int, d *float32, ldd int, mask uint32, _, _, _, _ uintptr) {
			for r := range h {
				row := rowProduct(unsafe.Slice(at(a, r*lda), k), unsafe.Slice(b, k*genericNR))
				if c == nil {
					storeRow(&row, nil, at(d, r*ldd), mask)
				} else {
					storeRow(&row, at(c, r*ldc), at(d, r*ldd), mask)
				}
			}
		}
	}
	return kernels
}

// rowProduct returns the product of one row of A and a packed panel of B: a row of genericNR sums.
func rowProduct(a, b []float32) [genericNR]float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for i, x := range a {
		p := (*[genericNR]float32)(b[i*genericNR:])
		s0 += x * p[0]
		s1 += x * p[1]
		s2 += x * p[2]
		s3 += x * p[3]
		s4 += x * p[4]
		s5 += x * p[5]
		s6 += x * p[6]
		s7 += x * p[7]
	}
	return [genericNR]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}

// storeRow writes row, plus c unless c is nil, to the columns of d whose bit in mask is set.
func storeRow(row *[genericNR]float32, c, d *float32, mask uint32) {
	for j, v := range row {
		if mask>>j&1 == 0 {
			continue
		}
		if c != nil {
			v += *at(c, j)
		}
		*at(d, j) = v
	}
}

// at returns the address i floats after p.
func at(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*i))
}

func packRowsGeneric(dst *float32, a operand, rows, k int) {
	for r := range rows {
		copyRow(unsafe.Slice(at(dst, r*rowStride), k), a.at(r, 0))
	}
}

func packRowsTGeneric(dst *float32, a operand, rows, k int, _ *rowOffsets) {
	transposeTo(dst, rowStride, a, k, rows)
}

// packPanels packs a matrix src of k rows and n columns into panels of w columns. Panels are stride floats apart;
// within a panel the rows follow one another.
func packPanels(dst *float32, stride, w int, src operand, n, k int) {
	for j := 0; j < n; j += w {
		out := unsafe.Slice(at(dst, j/w*stride), k*w)
		cols := min(w, n-j)
		for i := range k {
			row, from := out[i*w:], src.at(i, j)
			switch {
			case cols == 16 && !src.bf16: // the two most frequent cases avoid a call
				*(*[16]float32)(row) = *(*[16]float32)(from.p)
			case cols == 8 && !src.bf16:
				*(*[8]float32)(row) = *(*[8]float32)(from.p)
			default:
				copyRow(row[:cols], from)
			}
		}
	}
}

// packPanelsT packs a matrix into panels as packPanels does, but src is stored transposed.
func packPanelsT(dst *float32, stride, w int, src operand, n, k int) {
	for j := 0; j < n; j += w {
		transposeTo(at(dst, j/w*stride), w, src.at(j, 0), min(w, n-j), k)
	}
}

// transposeTo transposes a matrix of rows rows and n columns: row r of src becomes column r of dst. The n rows of dst
// are stride floats apart.
func transposeTo(dst *float32, stride int, src operand, rows, n int) {
	r := 0
	if !src.bf16 {
		for ; r+4 <= rows; r += 4 {
			x0, x1 := src.at(r, 0).f32(n), src.at(r+1, 0).f32(n)
			x2, x3 := src.at(r+2, 0).f32(n), src.at(r+3, 0).f32(n)
			for i := range x0 {
				*(*[4]float32)(unsafe.Pointer(at(dst, i*stride+r))) = [4]float32{x0[i], x1[i], x2[i], x3[i]}
			}
		}
	}
	for ; r < rows; r++ {
		for i := range n {
			*at(dst, i*stride+r) = src.at(r, 0).value(i)
		}
	}
}

// copyRow fills dst with the first elements of src, converted to fp32.
func copyRow(dst []float32, src operand) {
	if !src.bf16 {
		copy(dst, src.f32(len(dst)))
		return
	}
	for i, v := range src.u16(len(dst)) {
		dst[i] = bf16.Widen(v)
	}
}

func widenGeneric(dst *float32, src *uint16, n int) {
	out := unsafe.Slice(dst, n)
	for i, v := range unsafe.Slice(src, n) {
		out[i] = bf16.Widen(v)
	}
}

func narrowGeneric(dst *uint16, src *float32, n int) {
	out := unsafe.Slice(dst, n)
	for i, v := range unsafe.Slice(src, n) {
		out[i] = bf16.Round(v)
	}
}

func dotGeneric(d *[4]float32, x *float32, b operand, offsets *[4]int, k int) {
	in := unsafe.Slice(x, k)
	for r, off := range offsets {
		row := b
		row.p = unsafe.Add(b.p, off)
		var even, odd float32
		for i := 0; i+1 < k; i += 2 {
			even += in[i] * row.value(i)
			odd += in[i+1] * row.value(i+1)
		}
		if k%2 == 1 {
			even += in[k-1] * row.value(k-1)
		}
		d[r] = even + odd
	}
}

// value returns the element of o that is i elements after the address p, as fp32.
func (o operand) value(i int) float32 {
	if o.bf16 {
		return bf16.Widen(*(*uint16)(unsafe.Add(o.p, 2*i)))
	}
	return *(*float32)(unsafe.Add(o.p, 4*i))
}
