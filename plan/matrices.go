package plan

import (
	"mt/host/optim"
	"mt/layers"
)

// This file sizes buffers and work for the matrices that the device orthogonalizes (optim.Muon).

// matrixBuffers is the automatic number of matrix buffers of a lane. The host prepares or applies one matrix, one is
// being copied, and the device orthogonalizes one.
const matrixBuffers = 3

// MatrixBytes returns the size of a matrix buffer: the largest matrix in the compute dtype; 0 without matrices.
func (r *Run) MatrixBytes() (most int64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			most = max(most, m.Elems()*r.Spec.Act.Size())
		}
	}
	return most
}

// MatrixWorkspaceBytes returns the device workspace that orthogonalizing the largest matrix needs
// (Newton-Schulz iterations).
func (r *Run) MatrixWorkspaceBytes() (most int64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			most = max(most, layers.NewtonSchulzBytes(r.Spec.Act, m.Rows, m.Cols))
		}
	}
	return most
}

// PrepareBytes returns the host memory traffic of updating the momentum of a matrix of layer l. It counts the momentum
// twice, the gradient, and the input of the orthogonalization.
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

// ApplyBytes returns the host memory traffic of updating the matrix's weights: the weights twice, and the
// orthogonalized update.
func (r *Run) ApplyBytes(m optim.Matrix) int64 { return m.Elems() * (2*4 + r.Spec.Act.Size()) }

// UnitBytes returns the host memory traffic, in bytes, of updating the weights of layer l that are in no orthogonalized
// matrix. g is the layer's gradient.
func (r *Run) UnitBytes(l int, g Gradient) float64 {
	bytes := r.UpdateBytes(l, g)
	for _, m := range r.Matrices(l) {
		bytes -= float64(r.PrepareBytes(l, m) + r.ApplyBytes(m))
	}
	return bytes
}

// matrixTraffic returns the device FLOPs that orthogonalize all matrices in a step, and the bytes copied for them in
// each direction.
func (r *Run) matrixTraffic() (flops, bytes float64) {
	for l := range r.Layouts {
		for _, m := range r.Matrices(l) {
			flops += layers.NewtonSchulzFLOPs(m.Rows, m.Cols, r.NSSteps)
			bytes += float64(m.Elems() * r.Spec.Act.Size())
		}
	}
	return flops, bytes
}
