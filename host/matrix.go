package host

import (
	"fmt"

	"mt/host/optim"
)

// matrixPiece is the number of matrix elements that a core processes at a time.
const matrixPiece = 1 << 15

// PrepareMatrix does the first half of a Muon update of matrix m. It updates the momentum of m by its part of g, the
// gradient of the whole layer. Then it writes the matrix to orthogonalize to u (m.Rows, m.Cols). `by` is the update's
// arithmetic. PrepareMatrix returns when the work is complete.
func (l *LayerState) PrepareMatrix(m optim.Matrix, g, u optim.Grad, by *optim.MatrixUpdate) {
	g.Check(fmt.Sprintf("prepare a matrix of layer %d", l.Layout.Index), l.Layout.Elems)
	first := l.owned(m.Tensor).Elem + m.At
	l.pieces(m, func(at, n int64) {
		by.Prepare(m, at, n, l.weight(), l.Planes, g.Part(first+at, n), u.Part(at, n))
	})
}

// ApplyMatrix does the second half of a Muon update: it updates the weights of matrix m by o (m.Rows, m.Cols), the
// orthogonalized u of PrepareMatrix.
func (l *LayerState) ApplyMatrix(m optim.Matrix, o optim.Grad, by *optim.MatrixUpdate) {
	l.owned(m.Tensor)
	l.pieces(m, func(at, n int64) { by.Apply(m, at, n, l.weight(), o.Part(at, n)) })
}

// pieces cuts matrix m into pieces of at most matrixPiece elements and calls f once for each piece,
// on all cores. A piece has n elements and begins with element `at` of the matrix.
func (l *LayerState) pieces(m optim.Matrix, f func(at, n int64)) {
	l.changed = true
	elems := m.Elems()
	l.pool.Run(int((elems+matrixPiece-1)/matrixPiece), func(i int) {
		at := int64(i) * matrixPiece
		f(at, min(matrixPiece, elems-at))
	})
}
