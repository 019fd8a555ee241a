package layers

import (
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func (d *toy) addNoise(a *op.AddNoise) {
	exact("AddNoise", a.X, a.T*a.C)
	exact("AddNoise Cu", a.Cu, a.Seqs+1)
	x := d.load(a.X, a.T*a.C)
	oracle.AddNoise(x, d.loadIDs(a.Cu, a.Seqs+1), a.From, a.First, a.Step, a.C, a.Seed, float64(a.Scale))
	d.storeAll(a.X, x)
}

func (d *toy) layerNorm(a *op.LayerNorm) {
	exact("LayerNorm x", a.X, a.Rows*a.Dim)
	exact("LayerNorm y", a.Y, a.Rows*a.Dim)
	if a.Y.Addr != a.X.Addr {
		disjoint("LayerNorm", a.Y, a.X)
	}
	var b []float64
	if !a.B.None() {
		b = d.load(a.B, a.Dim)
	}
	y, stats := make([]float64, a.Rows*a.Dim), make([]float64, 2*a.Rows)
	oracle.LayerNorm(y, stats, d.load(a.X, a.Rows*a.Dim), d.load(a.W, a.Dim), b, float64(a.Eps))
	d.storeAll(a.Y, y)
	if !a.Stats.None() {
		exact("LayerNorm stats", a.Stats, 2*a.Rows)
		d.storeAll(a.Stats, stats)
	}
}

func (d *toy) layerNormBackward(a *op.LayerNormBackward) {
	exact("LayerNormBackward dx", a.DX, a.Rows*a.Dim)
	if a.Add || a.DX.Addr != a.DY.Addr {
		disjoint("LayerNormBackward", a.DX, a.DY)
	}
	disjoint("LayerNormBackward", a.DX, a.X)
	dx, dw := make([]float64, a.Rows*a.Dim), d.load(a.DW, a.Dim)
	if a.Add {
		dx = d.load(a.DX, len(dx))
	}
	oracle.LayerNormBackward(dx, dw, d.load(a.DY, len(dx)), d.load(a.X, len(dx)), d.load(a.W, a.Dim), d.load(a.Stats, 2*a.Rows), a.Add)
	d.storeAll(a.DX, dx)
	d.storeAll(a.DW, dw)
}

func (d *toy) activate(a *op.Activate) {
	exact("Activate y", a.Y, a.T*a.F)
	disjoint("Activate", a.Y, a.X)
	y := make([]float64, a.T*a.F)
	oracle.Activate(activation(a.Activation), y, d.load(a.X, a.T*a.F))
	d.storeAll(a.Y, y)
}

func (d *toy) activateBackward(a *op.ActivateBackward) {
	exact("ActivateBackward dx", a.DX, a.T*a.F)
	disjoint("ActivateBackward", a.DX, a.DY, a.Y)
	dx, y := make([]float64, a.T*a.F), make([]float64, a.T*a.F)
	oracle.ActivateBackward(activation(a.Activation), dx, y, d.load(a.DY, a.T*a.F), d.load(a.X, a.T*a.F))
	d.storeAll(a.DX, dx)
	if !a.Y.None() {
		d.storeAll(a.Y, y)
	}
}

func (d *toy) addPositions(a *op.AddPositions) {
	exact("AddPositions x", a.X, a.T*a.C)
	exact("AddPositions y", a.Y, a.T*a.C)
	y, pos := make([]float64, a.T*a.C), make([]int32, a.T)
	for t, p := range d.loadInt(a.Pos, a.T) {
		pos[t] = int32(p)
	}
	oracle.AddPositions(y, d.load(a.X, a.T*a.C), d.load(a.Table, int(a.Table.Len)), pos, a.C)
	d.storeAll(a.Y, y)
}

func (d *toy) addPositionsBackward(a *op.AddPositionsBackward) {
	exact("AddPositionsBackward dy", a.DY, a.T*a.C)
	sum, cu := d.load(a.DTable, a.Longest*a.C), make([]int32, a.Seqs+1)
	for i, at := range d.loadInt(a.Cu, a.Seqs+1) {
		cu[i] = int32(at)
	}
	oracle.AddPositionsBackward(sum, d.load(a.DY, a.T*a.C), cu, a.From, a.T, a.C)
	for i, v := range sum {
		d.store(a.DTable, i, v)
	}
}
