package vec

// Panel is the width in columns of a panel. Tile reads the second operand of a product in panels:
// groups of columns, stored row by row.
const Panel = 32

// Tile computes C (m, Panel·panels) = A (m, k)·B (k, Panel·panels). With acc it adds the product to C instead.
//
//	a: element (r, i) at r·astride + i; with cols at i·astride + r
//	b: panels of k rows of Panel floats each, bpanel floats apart
//	c: element (r, j) at r·cstride + j
func Tile(m, k int, a []float32, astride int, cols bool, b []float32, bpanel int, c []float32, cstride, panels int, acc bool) {
	if m == 0 || panels == 0 {
		return
	}
	step, funcs := astride, chosen.tileRows
	if cols {
		step, funcs = 1, chosen.tileCols
	}
	if k > 0 { // checks that all reads and writes are inside the slices
		last := (m-1)*astride + k - 1
		if cols {
			last = (k-1)*astride + m - 1
		}
		_, _ = a[last], b[(panels-1)*bpanel+k*Panel-1]
	}
	_ = c[(m-1)*cstride+panels*Panel-1]
	parts := (m + len(funcs) - 1) / len(funcs)
	for p, r := 0, 0; p < parts; p++ {
		h := (m - r) / (parts - p) // the heights are nearly equal, the larger ones last
		f := funcs[h-1]
		f(k, first(a[r*step:]), 4*astride, first(b), 4*bpanel, first(c[r*cstride:]), 4*cstride, panels, acc)
		r += h
	}
}

// Transpose writes the n rows of k elements of src, stride floats apart, as panels of k rows of Panel floats. Row r
// of src becomes column r%Panel of panel r/Panel. dst holds whole panels. Columns of the last panel beyond the n keep
// their value.
func Transpose(dst, src []float32, stride, n, k int) {
	const side = 16
	r := 0
	if chosen.transpose != nil {
		for ; r+side <= n; r += side {
			d := dst[r/Panel*Panel*k+r%Panel:]
			s := src[r*stride:]
			if blocks := k / side; blocks > 0 {
				_ = s[(side-1)*stride+side*blocks-1]
				_ = d[(side*blocks-1)*Panel+side-1]
				chosen.transpose(first(d), first(s), 4*stride, blocks)
			}
			for i := k &^ (side - 1); i < k; i++ {
				for j := range side {
					d[i*Panel+j] = s[j*stride+i]
				}
			}
		}
	}
	for ; r < n; r++ {
		d := dst[r/Panel*Panel*k+r%Panel:]
		for i, x := range src[r*stride : r*stride+k] {
			d[i*Panel] = x
		}
	}
}
