package synchronous

import (
	"mt/device"
	"mt/host/optim"
	"mt/layers"
)

// updateMatrices updates the matrices of layer l that the optimizer orthogonalizes on the device, one after the other.
// g is the layer's gradient. With an optimizer other than Muon there are none. An error comes from the device.
func (t *Trainer) updateMatrices(l int, g optim.Grad, o optim.Optimizer, rate optim.Rate) error {
	m, ok := o.(optim.Muon)
	if !ok {
		return nil
	}
	act, state, by := t.spec.Act, t.store.Layers[l], m.MatricesAt(rate)
	for _, x := range t.plan.Matrices(l) {
		u := optim.Grad{Data: make([]byte, x.Elems()*act.Size()), BF16: act == device.BF16, Elems: x.Elems()}
		state.PrepareMatrix(x, g, u, by)
		on := t.matrix.Slice(0, int64(len(u.Data)))
		t.stream.CopyH2D(on, u.Data)
		layers.NewtonSchulz(t.dev, t.stream, on.Tensor(act, 0, x.Elems()), x.Rows, x.Cols, t.plan.NSSteps, t.matrixWork)
		t.stream.CopyD2H(u.Data, on)
		if err := t.stream.Sync(); err != nil {
			return err
		}
		state.ApplyMatrix(x, u, by)
	}
	return nil
}
