package actors

import "mt/host/optim"

// This file is the Optimizer's part for tied embeddings: two layers share a table. The embedding's gradient has only
// the batch's rows; the head's has the whole table. When both have landed, the rows are added to the table, and both
// layers are updated with the sum.

// merge is the task of adding a gradient of rows (those of the token ids IDs) to the gradient of the whole shared
// table.
type merge struct {
	Layer      int
	Rows, Into int // the slabs of the two gradients
	IDs        []int32
}

// merged tells the Optimizer that the rows are added to the table's gradient.
type merged struct{ Layer int }

// tiedCore is the subcore for two layers that share a table. It manages the gradients of both layers.
type tiedCore struct {
	slabs
	c           *optimizerCore
	rows, table int // the two layers
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
		s.squares[m.Layer], s.have[m.Layer] = 0, true // the rows are now part of the table's gradient, whose squares count them
		s.queue = append(s.queue, p.table)
	}
	return nil, ok
}

func (p *tiedCore) next() []effect { return nil }

// landed queues the gradient of layer l to be measured. The gradient of the layer with the whole
// table is queued later, after the embedding's rows are added to it.
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

// free frees the gradients of the two layers that share a table, once both layers are updated. For any other layer it
// frees the layer's gradient.
func (p *tiedCore) free(s *stepState, l int) []effect {
	switch {
	case l != p.rows && l != p.table:
		return p.slabs.free(s, l)
	case s.updated[p.rows] && s.updated[p.table]:
		return append(p.slabs.free(s, p.rows), p.slabs.free(s, p.table)...)
	}
	return nil
}

// drop frees the slab of layer l's gradient in a skipped step. The embedding's gradient (p.rows) is added to the output
// projection's (p.table), so its slab is freed only after the sum has been measured.
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

// merge adds the rows of task e to the table's gradient.
func (r *run) merge(e merge) {
	g, n := r.gradients[e.Layer], int64(len(e.IDs))
	optim.AddRows(r.o.Pool, r.slab(e.Into, g.From, g.Table), e.IDs, r.slab(e.Rows, 0, n*g.Row), int(g.Row))
}
