package layers

import (
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func (d *toy) shortConv(a *op.ShortConv) {
	disjoint("ShortConv", a.Y, a.X, a.Tail)
	exact("ShortConv", a.Y, a.T*a.C)
	d.recurred += 2 * int64(a.T*a.C*a.Taps)
	x, y := d.load(a.X, (a.T-1)*a.XStride+a.C), make([]float64, a.T*a.C)
	var tail []float64
	if !a.Tail.None() {
		tail = d.load(a.Tail, (a.Taps-1)*a.C)
	}
	oracle.ShortConv(y, x, d.load(a.W, a.C*a.Taps), tail, d.loadIDs(a.Cu, a.Seqs+1), a.C, a.Taps, a.XStride)
	d.storeAll(a.Y, y)
	if tail != nil {
		for t := range a.T {
			tail = append(tail, x[t*a.XStride:][:a.C]...)
		}
		d.storeAll(a.Tail, tail[a.T*a.C:])
	}
}

func (d *toy) shortConvBackward(a *op.ShortConvBackward) {
	disjoint("ShortConvBackward", a.DX, a.X, a.DY)
	dx, dw := make([]float64, a.T*a.C), d.load(a.DW, a.C*a.Taps)
	oracle.ShortConvBackward(dx, dw, d.load(a.DY, a.T*a.C), d.load(a.X, (a.T-1)*a.XStride+a.C), d.load(a.W, a.C*a.Taps), d.loadIDs(a.Cu, a.Seqs+1), a.C, a.Taps,
		a.XStride, a.C)
	d.storeStrided(a.DX, dx, a.C, a.DXStride)
	d.storeAll(a.DW, dw)
}

func (d *toy) delta(a *op.DeltaShape) oracle.Delta {
	return oracle.Delta{Cu: d.loadIDs(a.Cu, a.Seqs+1), KeyHeads: a.KeyHeads, Heads: a.Heads, KeyDim: a.KeyDim, ValueDim: a.ValueDim, GateStride: a.GateStride}
}

func (d *toy) gatedDelta(a *op.GatedDelta) {
	disjoint("GatedDelta", a.O, a.QKV, a.Gates, a.States, a.Last)
	d.recurred += 6 * int64(a.T*a.Heads*a.KeyDim*a.ValueDim)
	o := make([]float64, a.T*a.Heads*a.ValueDim)
	var states, last []float64
	if !a.States.None() {
		exact("GatedDelta", a.States, a.StatesLen())
		states = d.load(a.States, a.StatesLen())
	}
	if !a.Last.None() {
		last = d.load(a.Last, a.Heads*a.KeyDim*a.ValueDim)
	}
	d.delta(&a.DeltaShape).GatedDelta(o, states, last, d.load(a.QKV, a.T*a.Width()), d.load(a.Gates, a.T*a.GateStride), d.load(a.ALog, a.Heads), d.load(a.DtBias, a.Heads))
	d.storeAll(a.O, o)
	d.storeAll(a.States, states)
	d.storeAll(a.Last, last)
}

func (d *toy) gatedDeltaBackward(a *op.GatedDeltaBackward) {
	disjoint("GatedDeltaBackward", a.DQKV, a.QKV, a.DO, a.Gates)
	disjoint("GatedDeltaBackward", a.DGates, a.Gates, a.DO)
	exact("GatedDeltaBackward", a.States, a.StatesLen())
	dqkv, dgates, dA, dT := make([]float64, a.T*a.Width()), make([]float64, a.T*a.GateStride), d.load(a.DALog, a.Heads), d.load(a.DDtBias, a.Heads)
	d.delta(&a.DeltaShape).GatedDeltaBackward(dqkv, dgates, dA, dT, d.load(a.DO, a.T*a.Heads*a.ValueDim), d.load(a.QKV, a.T*a.Width()), d.load(a.Gates, a.T*a.GateStride),
		d.load(a.ALog, a.Heads), d.load(a.DtBias, a.Heads))
	d.storeAll(a.DQKV, dqkv)
	d.storeAll(a.DGates, dgates)
	d.storeAll(a.DALog, dA)
	d.storeAll(a.DDtBias, dT)
}
