package host

import (
	"fmt"

	"mt/host/optim"
)

// matrixPiece is the number of matrix elements that a core processes at a time.
const matrixPiece = 1 << 15

// PrepareMatrix is the host's first half of a Muon update. It updates the momentum of matrix m by g, the gradient of
// the whole layer, and writes the matrix to orthogonalize to u (m.Rows, m.Cols). It returns when the work is complete.
func (l *LayerState) PrepareMatrix(m optim.Matrix, g, u optim.Grad, by *optim.MatrixUpdate) {
	g.Check(fmt.Sprintf("prepare a matrix of layer %d", l.Layout.Index), l.Layout.Elems)
	first := l.owned(m.Tensor).Elem + m.At
	l.pieces(m, func(at, n int64) {
		by.Prepare(m, at, n, l.weight(), l.Planes, g.Part(first+at, n), u.Part(at, n))
	})
}

// ApplyMatrix is the second half: it updates the weights of matrix m by o (m.Rows, m.Cols), which is u after the
// orthogonalization.
func (l *LayerState) ApplyMatrix(m optim.Matrix, o optim.Grad, by *optim.MatrixUpdate) {
	l.owned(m.Tensor)
	l.pieces(m, func(at, n int64) { by.Apply(m, at, n, l.weight(), o.Part(at, n)) })
}

// pieces cuts matrix m into pieces and calls f for each on all cores: n elements from element at. Each element is in
// exactly one piece.
func (l *LayerState) pieces(m optim.Matrix, f func(at, n int64)) {
	l.changed = true
	elems := m.Elems()
	l.pool.Run(int((elems+matrixPiece-1)/matrixPiece), func(i int) {
		at := int64(i) * matrixPiece
		f(at, min(matrixPiece, elems-at))
	})
}
