package cpu

import "mt/device/cpu/vec"

// This file has the parts of the gated delta rule and of the state space scan that are the same: products of a chunk's
// matrices, and copies of states.

// packBuffer is the scratch buffer in which product has an operand in panels.
const packBuffer = 0

// product computes C (m, n) = A (m, k)·B (k, n), and with adds it adds the product to C. cs, as and bs are the
// distances between rows. aCols: A is stored transposed. bRows: B is stored transposed.
func (s *scratch) product(c []float32, cs int, a []float32, as int, aCols bool, b []float32, bs int, bRows bool, m, n, k int, adds bool) {
	pack := s.f32(packBuffer, panels(n)*vec.Panel*k)
	if bRows {
		vec.Transpose(pack, b, bs, n, k)
	} else {
		packPanels(pack, b, bs, k, n)
	}
	vec.Tile(m, k, a, as, aCols, pack, k*vec.Panel, c, cs, panels(n), adds)
}

// copyPadded copies a matrix (n, width) between dense, which has no padding, and rows, whose rows are stride floats
// apart. load: from dense to rows; otherwise from rows to dense.
func copyPadded(dense, rows []float32, n, width, stride int, load bool) {
	for i := range n {
		if d, r := dense[i*width:][:width], rows[i*stride:]; load {
			copy(r, d)
		} else {
			copy(d, r)
		}
	}
}
