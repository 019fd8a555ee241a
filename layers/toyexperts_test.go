package layers

import (
	"mt/device"
	"mt/device/conformance/oracle"
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

func (d *toy) Scale(_ device.Stream, x device.Tensor, n int64, factor float32) {
	v := d.load(x, int(n))
	oracle.Scale(v, float64(factor))
	d.storeAll(x, v)
}

func (d *toy) ScaleRows(_ device.Stream, a device.ScaleRows) {
	exact("ScaleRows", a.X, a.T*a.C)
	x := d.load(a.X, a.T*a.C)
	oracle.ScaleRows(x, d.load(a.W, a.P), d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.X, x)
}

func (d *toy) ScaleRowsBackward(_ device.Stream, a device.ScaleRowsBackward) {
	exact("ScaleRowsBackward", a.Y, a.T*a.C)
	disjoint("ScaleRowsBackward", a.DY, a.Y)
	y, dy, dw := d.load(a.Y, a.T*a.C), d.load(a.DY, a.T*a.C), d.load(a.DW, a.P)
	oracle.ScaleRowsBackward(dy, y, d.load(a.W, a.P), dw, d.loadIDs(a.Index, a.T), a.C)
	d.storeAll(a.Y, y)
	d.storeAll(a.DY, dy)
	d.storeAll(a.DW, dw)
}

func (d *toy) AddRows(_ device.Stream, dst, src, index device.Tensor, U, T, C int) {
	exact("AddRows", src, T*C)
	disjoint("AddRows", dst, src)
	ids, seen := d.loadIDs(index, T), map[int32]bool{}
	for _, u := range ids {
		if seen[u] {
			panic("toy: AddRows is given a row twice")
		}
		seen[u] = true
	}
	sum := d.load(dst, U*C)
	oracle.AddRows(sum, d.load(src, T*C), ids, C)
	d.storeAll(dst, sum)
}

func (d *toy) Router(_ device.Stream, a device.Router) {
	exact("Router", a.Logits, a.T*a.E)
	ids, weights, sums := make([]int32, a.T*a.K), make([]float64, a.T*a.K), make([]float64, a.E)
	if !a.ProbSum.None() {
		sums = d.load(a.ProbSum, a.E)
	}
	oracle.Router(d.load(a.Logits, a.T*a.E), ids, weights, sums, a.E, a.K, a.Normalize)
	d.storeIDs(a.IDs, ids)
	d.storeAll(a.Weights, weights)
	if !a.ProbSum.None() {
		d.storeAll(a.ProbSum, sums)
	}
}

func (d *toy) RouterBackward(_ device.Stream, a device.RouterBackward) {
	exact("RouterBackward", a.DLogits, a.T*a.E)
	dlogits := make([]float64, a.T*a.E)
	var counts []int32
	if !a.Counts.None() {
		counts = d.loadIDs(a.Counts, a.E)
	}
	oracle.RouterBackward(dlogits, d.load(a.Logits, a.T*a.E), d.loadIDs(a.IDs, a.T*a.K), d.load(a.DWeights, a.T*a.K), counts,
		a.E, a.K, a.Normalize, float64(a.AuxScale))
	d.storeAll(a.DLogits, dlogits)
}

func (d *toy) SortByExpert(_ device.Stream, a device.SortByExpert) {
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
