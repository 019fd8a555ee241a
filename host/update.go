package host

import (
	"fmt"
	"slices"

	"mt/host/optim"
)

// Update updates all tensors that belong to the layer. The gradient g covers the store's share of the layer. The
// optimizer o updates with r, the step's learning rate and the like. Update returns when the work is complete. Updates
// of different layers may run concurrently.
func (l *LayerState) Update(g optim.Grad, o optim.Optimizer, r optim.Rate) {
	g.Check(fmt.Sprintf("update layer %d", l.Layout.Index), l.Share.Elems())
	units, step := l.cut(o), o.At(r)
	l.changed = true
	l.onCores(units, func(i int) {
		u := units[i]
		step.Step(u, l.weight(), l.Planes, g.Part(l.Layout.Tensors[u.Tensor].Elem+u.At-l.Share.From, u.N))
	})
}

// UpdateTensor updates one tensor by g, the gradient of the whole tensor. It is for an embedding's
// table that is tied to the output projection: the table's gradient is in the head's slab.
func (l *LayerState) UpdateTensor(tensor int, g optim.Grad, o optim.Optimizer, r optim.Rate) {
	tl := l.owned(tensor)
	if g.Elems != tl.Elems() {
		panic(fmt.Sprintf("host: update layer %d %s: gradient of %d elements for %d", l.Layout.Index, tl.Role, g.Elems, tl.Elems()))
	}
	g.Check(fmt.Sprintf("update layer %d %s", l.Layout.Index, tl.Role), tl.Elems())
	l.updateTensor(tensor, g, o, r)
}

// UpdateRows updates the layer's first tensor, the embedding's table (V, h). rows (len(ids), h) is
// the gradient of the table's rows with indices ids, which must rise strictly. All other rows have
// zero gradients and are updated too, because momentum and weight decay change them. Only elements
// in the store's share are read and updated, also if a row is only partly in the share.
func (l *LayerState) UpdateRows(ids []int32, rows optim.Grad, o optim.Optimizer, r optim.Rate) {
	tl := l.owned(0)
	what := fmt.Sprintf("update layer %d %s", l.Layout.Index, tl.Role)
	optim.CheckIDs(what, ids, tl.Rows)
	rows.Check(what, int64(len(ids))*int64(tl.Cols))
	l.updateTensor(0, rows.OfRows(ids), o, r)
}

// updateTensor updates one tensor by its gradient g. o and r are as in Update.
func (l *LayerState) updateTensor(tensor int, g optim.Grad, o optim.Optimizer, r optim.Rate) {
	units, step := l.cut(o), o.At(r)
	for len(units) > 0 && units[0].Tensor < tensor {
		units = units[1:]
	}
	n := 0
	for n < len(units) && units[n].Tensor == tensor {
		n++
	}
	l.changed = true
	l.onCores(units[:n], func(i int) {
		of := g
		if !g.Sparse {
			of = g.Part(units[i].At, units[i].N)
		}
		step.Step(units[i], l.weight(), l.Planes, of)
	})
}

// onPool calls f(i) for each index i of units on the threads of the store.
func (l *LayerState) onPool(units []optim.Unit, f func(i int)) { l.pool.Run(len(units), f) }

// weight returns the memory of the layer's weights and of their moving average.
func (l *LayerState) weight() optim.Weight {
	return optim.Weight{Layout: &l.Layout, Tile: l.Tile, Lo: l.Lo, Seed: l.seed, From: l.Share.From, Means: l.means}
}

// cut returns the units into which optimizer o divides the store's share of the layer. The result is cached, because
// all updates of a run use the same optimizer.
func (l *LayerState) cut(o optim.Optimizer) []optim.Unit {
	if l.by != o {
		all := o.Units(l.Layout)
		l.units, l.by = slices.DeleteFunc(all, func(u optim.Unit) bool { return !l.Share.Has(l.Layout.Tensors[u.Tensor].Elem + u.At) }), o
	}
	return l.units
}
