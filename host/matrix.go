package host

import (
	"fmt"

	"mt/host/optim"
)

// matrixPiece is how many elements of a matrix a core takes at a time.
const matrixPiece = 1 << 15

// PrepareMatrix moves the momentum of matrix m by g, the gradient of the whole layer, and writes
// what is to be orthogonalised to u (m.Rows, m.Cols). It returns when everything is done.
func (l *LayerState) PrepareMatrix(m optim.Matrix, g, u optim.Grad, by *optim.MatrixUpdate) {
	g.Check(fmt.Sprintf("prepare a matrix of layer %d", l.Layout.Index), l.Layout.Elems)
	first := l.owned(m.Tensor).Elem + m.At
	l.pieces(m, func(at, n int64) {
		by.Prepare(m, at, n, l.weight(), l.Planes, g.Part(first+at, n), u.Part(at, n))
	})
}

// ApplyMatrix moves the weights of matrix m by o (m.Rows, m.Cols), which the device has made of u.
func (l *LayerState) ApplyMatrix(m optim.Matrix, o optim.Grad, by *optim.MatrixUpdate) {
	l.owned(m.Tensor)
	l.pieces(m, func(at, n int64) { by.Apply(m, at, n, l.weight(), o.Part(at, n)) })
}

// pieces calls f on all cores for pieces of a matrix, of which it has every element once.
func (l *LayerState) pieces(m optim.Matrix, f func(at, n int64)) {
	l.changed = true
	elems := m.Elems()
	l.pool.Run(int((elems+matrixPiece-1)/matrixPiece), func(i int) {
		at := int64(i) * matrixPiece
		f(at, min(matrixPiece, elems-at))
	})
}
