package layers

import (
	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

// loadIDs reads the first n elements of an I32 tensor.
func (d *toy) loadIDs(t device.Tensor, n int) []int32 {
	v := make([]int32, n)
	for i, x := range d.loadInt(t, n) {
		v[i] = int32(x)
	}
	return v
}

func (d *toy) storeIDs(t device.Tensor, v []int32) {
	b := d.bytes(t.Slice(0, int64(len(v))).Mem())
	for i, x := range v {
		for k := range 4 {
			b[4*i+k] = byte(uint32(x) >> (8 * k))
		}
	}
}

func (d *toy) scale(a *op.Scale) {
	v := d.load(a.X, int(a.N))
	oracle.Scale(v, float64(a.Factor))
	d.storeAll(a.X, v)
}

func (d *toy) scaleRows(a *op.ScaleRows) {
	exact("ScaleRows", a.X, a.T*a.C)
	x := d.load(a.X, a.T*a.C)
	oracle.ScaleRows(x, d.load(a.W, a.P), d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.X, x)
}

func (d *toy) scaleRowsBackward(a *op.ScaleRowsBackward) {
	exact("ScaleRowsBackward", a.Y, a.T*a.C)
	disjoint("ScaleRowsBackward", a.DY, a.Y)
	y, dy, dw := d.load(a.Y, a.T*a.C), d.load(a.DY, a.T*a.C), d.load(a.DW, a.P)
	oracle.ScaleRowsBackward(dy, y, d.load(a.W, a.P), dw, d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.Y, y)
	d.storeAll(a.DY, dy)
	d.storeAll(a.DW, dw)
}

func (d *toy) weightedBiasGrad(a *op.WeightedBiasGrad) {
	exact("WeightedBiasGrad", a.DY, a.T*a.C)
	db, dw := d.load(a.DB, a.C), d.load(a.DW, a.P)
	oracle.WeightedBiasGrad(db, dw, d.load(a.DY, a.T*a.C), d.load(a.B, a.C), d.load(a.W, a.P), d.loadIDs(a.Index, a.T))
	d.storeAll(a.DB, db)
	d.storeAll(a.DW, dw)
}

func (d *toy) sinks(a *op.Sinks) {
	exact("Sinks", a.O, a.T*a.Heads*a.Dim)
	o, lse := d.load(a.O, a.T*a.Heads*a.Dim), d.load(a.LSE, a.Heads*a.T)
	oracle.Sinks(o, lse, d.load(a.Sinks, a.Heads), a.T, a.Dim)
	d.storeAll(a.O, o)
	d.storeAll(a.LSE, lse)
}

func (d *toy) sinksGrad(a *op.SinksGrad) {
	exact("SinksGrad", a.LSE, a.Heads*a.T)
	ds := d.load(a.DSinks, a.Heads)
	oracle.SinksGrad(ds, d.load(a.LSE, a.Heads*a.T), d.load(a.Delta, a.Heads*a.T), d.load(a.Sinks, a.Heads), a.T)
	d.storeAll(a.DSinks, ds)
}

func (d *toy) addRows(a *op.AddRows) {
	exact("AddRows", a.Src, a.T*a.C)
	disjoint("AddRows", a.Dst, a.Src)
	ids, seen := d.loadIDs(a.Index, a.T), map[int32]bool{}
	for _, u := range ids {
		if seen[u] {
			panic("toy: AddRows is given a row twice")
		}
		seen[u] = true
	}
	sum, src := d.load(a.Dst, a.U*a.C), d.load(a.Src, a.T*a.C)
	switch {
	case a.W.None():
		oracle.AddRows(sum, src, ids, a.C)
	default:
		var bias []float64
		if !a.Bias.None() {
			bias = d.load(a.Bias, a.C)
		}
		oracle.AddWeightedRows(sum, src, bias, d.load(a.W, a.P), ids, d.loadIDs(a.Pairs, a.T), a.C)
	}
	d.storeAll(a.Dst, sum)
}

func (d *toy) router(a *op.Router) {
	n, k := a.T*a.Rule.Logits(a.E), a.T*a.Rule.Chosen(a.K)
	exact("Router", a.Logits, n)
	ids, weights, sums := make([]int32, k), make([]float64, k), make([]float64, a.E)
	if !a.ProbSum.None() {
		sums = d.load(a.ProbSum, a.E)
	}
	var bias []float64
	if !a.Bias.None() {
		bias = d.load(a.Bias, a.E)
	}
	oracle.Router(d.load(a.Logits, n), bias, ids, weights, sums, a.E, a.K, a.Normalize, oracle.RouterRule(a.Rule))
	d.storeIDs(a.IDs, ids)
	d.storeAll(a.Weights, weights)
	if !a.ProbSum.None() {
		d.storeAll(a.ProbSum, sums)
	}
}

func (d *toy) routerBackward(a *op.RouterBackward) {
	n, k := a.T*a.Rule.Logits(a.E), a.T*a.Rule.Chosen(a.K)
	exact("RouterBackward", a.DLogits, n)
	dlogits := make([]float64, n)
	var counts []int32
	if !a.Counts.None() {
		counts = d.loadIDs(a.Counts, a.E)
	}
	oracle.RouterBackward(dlogits, d.load(a.Logits, n), d.loadIDs(a.IDs, k), d.load(a.DWeights, k), counts,
		a.E, a.K, a.Normalize, oracle.RouterRule(a.Rule), float64(a.AuxScale))
	d.storeAll(a.DLogits, dlogits)
}

func (d *toy) sortByExpert(a *op.SortByExpert) {
	exact("SortByExpert", a.IDs, a.N)
	order, rows, offsets, counts := make([]int32, a.N), make([]int32, a.N), make([]int32, a.E+1), make([]int32, a.E)
	if !a.Counts.None() {
		counts = d.loadIDs(a.Counts, a.E)
	}
	oracle.SortByExpert(d.loadIDs(a.IDs, a.N), order, rows, offsets, counts, a.E, a.K)
	d.storeIDs(a.Order, order)
	d.storeIDs(a.Rows, rows)
	d.storeIDs(a.Offsets, offsets)
	if !a.Counts.None() {
		d.storeIDs(a.Counts, counts)
	}
}
