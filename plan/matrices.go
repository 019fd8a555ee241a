package plan

import (
	"mt/host/optim"
	"mt/layers"
)

// This file has what matrices take that are updated whole, by way of the device (optim.Muon).

// matrixBuffers is how many matrices a lane has under way: one that the host prepares or applies, one on
// its way, one that the device works on.
const matrixBuffers = 3

// MatrixBytes is the size of a matrix buffer: that of the largest matrix, in the compute dtype. It is 0
// where there are none.
func (r *Run) MatrixBytes() (most int64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			most = max(most, m.Elems()*r.Spec.Act.Size())
		}
	}
	return most
}

// MatrixWorkspaceBytes is the workspace of the iterations on one matrix, the largest of all.
func (r *Run) MatrixWorkspaceBytes() (most int64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			most = max(most, layers.NewtonSchulzBytes(r.Spec.Act, m.Rows, m.Cols))
		}
	}
	return most
}

// PrepareBytes is how many bytes of host memory it takes to move the momentum of a matrix of layer l: momentum both
// ways, the gradient, and what is to be orthogonalized.
func (r *Run) PrepareBytes(l int, m optim.Matrix) int64 {
	bytes := m.Elems() * (r.GradBytes() + r.Spec.Act.Size())
	for i, piece := range optim.Pieces(r.Layouts[l].Tensors[m.Tensor].Param) {
		for _, p := range r.placed(l) {
			if _, n := p.Piece(r.Layouts[l], m.Tensor, i); piece.At() == m.At {
				bytes += 2 * p.DType.Bytes(n)
			}
		}
	}
	return bytes
}

// ApplyBytes is the same of moving its weights: these both ways, and what has come back.
func (r *Run) ApplyBytes(m optim.Matrix) int64 { return m.Elems() * (2*4 + r.Spec.Act.Size()) }

// UnitBytes is how many bytes the update of layer l reads and writes without that of its matrices.
func (r *Run) UnitBytes(l int, g Gradient) float64 {
	bytes := r.UpdateBytes(l, g)
	for _, m := range r.Matrices(l) {
		bytes -= float64(r.PrepareBytes(l, m) + r.ApplyBytes(m))
	}
	return bytes
}

// matrixTraffic is what all matrices together take of the device: operations, and bytes each way.
func (r *Run) matrixTraffic() (flops, bytes float64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			flops += layers.NewtonSchulzFLOPs(m.Rows, m.Cols, r.NSSteps)
			bytes += float64(m.Elems() * r.Spec.Act.Size())
		}
	}
	return flops, bytes
}
