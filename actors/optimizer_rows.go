package actors

import (
	"fmt"
	"slices"

	"mt/host"
	"mt/host/optim"
	"mt/layers"
)

// This file is what the Optimizer does so that the next step need not wait for the whole table of the embedding. Which rows
// that step needs is known early (RowsWanted). They are updated first (RowsUpdated), and nothing else is before
// they are gathered (RowsGathered), because the gather wants the same cores and the same memory. Then come the
// other layers, and the other rows of the table last. LayerUpdated follows these, and with it whatever needs the
// whole table: an evaluation, a checkpoint. The head's weights wait for it too (earlySources), so that no
// gradient of the next step comes before this step's updates have ended, as if all rows were updated at once.

// rowSet says which rows of a table are updated.
type rowSet struct {
	IDs    []int32 // rising; nil: all
	Others bool    // all but IDs
}

// rowsDone tells that the update of the rows that are wanted is done.
type rowsDone struct{}

// updateRows begins the update of layer 0 with the rows that are wanted.
func (c *optimizerCore) updateRows(s *stepState, u update) []effect {
	rest := u
	u.Of, rest.Of = rowSet{IDs: c.wanted.IDs}, rowSet{IDs: c.wanted.IDs, Others: true}
	s.rest, s.rows, c.busy = &rest, true, true
	return []effect{work{do: u, done: []send{{optimizerID, rowsDone{}}}}}
}

// rowsDone tells that they are updated.
func (c *optimizerCore) rowsDone(s *stepState) (out []effect) {
	c.busy = false
	for lane := range laneID(c.lanes) {
		out = append(out, send{lane.prefetcher(), RowsUpdated{Version: s.step, Waited: s.waited[0]}})
	}
	return append(out, c.advance()...)
}

// updateRest begins the update of the other rows, when all else has begun.
func (c *optimizerCore) updateRest(s *stepState) []effect {
	if s.rest == nil {
		return nil
	}
	u := *s.rest
	s.rest, c.busy = nil, true
	return []effect{work{do: u, done: []send{{optimizerID, updateDone{u.Layer}}}}}
}

// update moves these rows of a table, given its gradient of the rows ids.
func (x rowSet) update(l *host.LayerState, ids []int32, g optim.Grad, o optim.Optimizer, rate optim.Rate) {
	switch {
	case x.IDs == nil:
		l.UpdateRows(ids, g, o, rate)
	case x.Others:
		l.UpdateOtherRows(x.IDs, ids, g, o.(optim.Elementwise), rate)
	default:
		l.UpdateTheseRows(x.IDs, ids, g, o.(optim.Elementwise), rate)
	}
}

// share is which part of a table of so many rows the set is.
func (x rowSet) share(rows int) float64 {
	part := float64(len(x.IDs)) / float64(rows)
	switch {
	case x.IDs == nil:
		return 1
	case x.Others:
		return 1 - part
	}
	return part
}

// rowsFirst says whether rows of the embedding are updated before others: on one rank, where its table is its own and in memory, and where the
// optimizer moves each element by itself, so that any rows can be updated alone.
func (r *shared) rowsFirst() bool {
	p := r.plan
	if r.team != nil || p.EvalOnly || !r.gradients[0].OfRows(0) || p.Away != nil && p.Away[0] {
		return false
	}
	if r.o.predicted != nil {
		return slices.Contains([]string{"", "adamw", "lion", "sgd"}, p.Optim)
	}
	_, ok := r.o.Optimizer.(optim.Elementwise)
	return ok
}

// earlySources are the layers whose updates a tile waits for: those that it is copied from and, where rows of the embedding
// are updated before others, for the head's the embedding.
func (r *shared) earlySources(t layers.Tile) []int {
	from := t.Sources()
	if t.Layer == len(r.plan.Layouts)-1 && r.rowsFirst() {
		from = append(slices.Clone(from), 0)
	}
	return from
}

// update updates one layer.
func (r *shared) update(e update) error {
	o, g := r.o.Optimizer, r.gradients[e.Layer]
	rate := e.rate()
	l, err := r.o.Home.Acquire(e.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Layer], err)
	}
	defer r.o.Home.Release(e.Layer)
	if r.team != nil {
		r.updateShare(l, e, rate)
		return nil
	}
	if g.OfRows(e.Layer) {
		e.Of.update(l, e.IDs, r.slab(e.Slab, 0, int64(len(e.IDs))*g.Row), o, rate)
		return nil
	}
	l.Update(r.landedGrad(e), o, rate)
	return nil
}

// landedGrad views the gradient by which e updates a layer: in its slab or, if it has waited on a disk, in the layer's state slot.
func (r *shared) landedGrad(e update) optim.Grad {
	from, n := r.gradients[e.Layer].From, r.plan.Layouts[e.Layer].Elems
	if e.Slab == noSlab {
		return r.gradIn(r.o.Home.Grad(e.Layer), from, n)
	}
	return r.slab(e.Slab, from, n)
}
