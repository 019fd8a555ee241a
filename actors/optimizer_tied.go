package actors

import "mt/host/optim"

// This file is what the Optimizer does where two layers share a table. The one's gradient is of rows, the other's of the
// whole table: when both have landed, the rows are added to the table, and both layers are updated by the sum.

// merge is for a layer that shares its table with another: it adds the layer's gradient,
// of the rows with these ids, to the other's gradient of the whole table.
type merge struct {
	Layer      int
	Rows, Into int // the slabs of either gradient
	IDs        []int32
}

// merged tells that merge is done.
type merged struct{ Layer int }

// tiedCore is the subcore, and the gradients of such layers.
type tiedCore struct {
	slabs
	c           *optimizerCore
	rows, table int // the layers
}

func newTiedCore(c *optimizerCore) {
	p := &tiedCore{c: c}
	for l, into := range c.into {
		if into != l {
			p.rows, p.table = l, into
		}
	}
	c.grads, c.subcores = p, append(c.subcores, p)
}

func (p *tiedCore) take(msg message) ([]effect, bool) {
	m, ok := msg.(merged)
	if ok {
		s := p.c.cur
		p.c.busy = false
		s.squares[m.Layer], s.have[m.Layer] = 0, true // its share is measured with the sum
		s.queue = append(s.queue, p.table)
	}
	return nil, ok
}

func (p *tiedCore) next() []effect { return nil }

// landed leaves out the table: it is measured once the rows are added to it.
func (p *tiedCore) landed(s *stepState, l int) {
	if l != p.table {
		p.slabs.landed(s, l)
	}
}

func (p *tiedCore) measure(s *stepState, l int) []effect {
	switch {
	case l != p.rows:
		return p.slabs.measure(s, l)
	case s.landed[p.table] == noSlab:
		return nil
	}
	return []effect{work{do: merge{Layer: l, Rows: s.landed[l], Into: s.landed[p.table], IDs: s.ids}, done: []send{{optimizerID, merged{l}}}}}
}

// free keeps both gradients until both layers are updated.
func (p *tiedCore) free(s *stepState, l int) []effect {
	switch {
	case l != p.rows && l != p.table:
		return p.slabs.free(s, l)
	case s.updated[p.rows] && s.updated[p.table]:
		return append(p.slabs.free(s, p.rows), p.slabs.free(s, p.table)...)
	}
	return nil
}

// drop keeps the rows until the sum is measured.
func (p *tiedCore) drop(s *stepState, l int) []effect {
	if l == p.rows && !s.have[p.table] {
		return nil
	}
	return p.slabs.drop(s, l)
}

func (e merge) start(r *lane, w work) error {
	r.hub.async(w.done[0].to, w, func() (any, error) {
		r.merge(e)
		return nil, nil
	})
	return nil
}

// merge adds a layer's gradient of some rows of a table to another layer's gradient of
// the whole table.
func (r *run) merge(e merge) {
	g, n := r.gradients[e.Layer], int64(len(e.IDs))
	optim.AddRows(r.o.Pool, r.slab(e.Into, g.From, g.Table), e.IDs, r.slab(e.Rows, 0, n*g.Row), int(g.Row))
}
