package plan

import (
	"mt/host/optim"
)

// This file has what a run of several ranks keeps and exchanges.

// divide makes r the run of one of the ranks that q asks for, and q what that rank does: its part of
// the rows.
func (r *Run) divide(q *Request) {
	if q.Ranks <= 1 {
		return
	}
	r.Ranks, r.Rank, r.AllIDs = q.Ranks, q.Rank, min(q.Config.VocabSize, q.Rows*q.RowTokens)
	q.Rows = (q.Rows + q.Ranks - 1) / q.Ranks
	for _, l := range r.Layouts {
		var units []optim.Unit
		if q.Units != nil {
			units = q.Units(l)
		}
		r.Shares = append(r.Shares, optim.Shares(l, units, q.Ranks))
	}
}

// Share is what this rank keeps of layer l beside its tile: all of it where it is alone.
func (r *Run) Share(l int) optim.Share {
	if r.Shares == nil {
		return optim.Whole(r.Layouts[l])
	}
	return r.Shares[l][r.Rank]
}

// OwnShares are those of all layers; nil: the rank is alone.
func (r *Run) OwnShares() (out []optim.Share) {
	for l := range r.Shares {
		out = append(out, r.Share(l))
	}
	return out
}

// shareRows is how many rows of layer l's table this rank's share touches.
func (r *Run) shareRows(l int) int64 {
	s, cols := r.Share(l), r.Gradients()[l].Row
	if s.Elems() == 0 || cols == 0 {
		return 0
	}
	return (s.To-1)/cols - s.From/cols + 1
}

// shareElems is how many elements the gradient of this rank's share of layer l has at most: of whole
// rows where the layer's gradient is one of rows.
func (r *Run) shareElems(l int) int64 {
	if g := r.Gradients()[l]; g.OfRows(l) {
		return min(r.shareRows(l), int64(r.AllIDs)) * g.Row
	}
	return r.Share(l).Elems()
}

// ShareSumBytes is the size of the gradient of this rank's share of layer l, summed over all ranks, at
// most.
func (r *Run) ShareSumBytes(l int) int64 { return r.shareElems(l) * r.GradBytes() }

// ExchangeBytes is the size of an exchange buffer, for what this rank receives from all ranks of the
// gradient of its share of a layer, the largest. Alone it is 0.
func (r *Run) ExchangeBytes() (most int64) {
	if r.Ranks <= 1 || r.EvalOnly {
		return 0
	}
	for l, g := range r.Gradients() {
		each := r.Share(l).Elems()
		if g.OfRows(l) { // each rank sends the rows that its own batch has
			each = min(r.shareRows(l), int64(r.Limits.UniqueIDs)) * g.Row
		}
		most = max(most, int64(r.Ranks)*each*r.GradBytes())
	}
	return most
}

// ShareSlabBytes are the sizes of the slabs that the gradients of this rank's shares, summed over all
// ranks, are in: with clipping by layer, where they wait for the norm; else one beside each exchange
// buffer. Alone there are none.
func (r *Run) ShareSlabBytes() (out []int64) {
	if r.Ranks <= 1 || r.EvalOnly {
		return nil
	}
	most := int64(0)
	for l := range r.Layouts {
		out = append(out, r.ShareSumBytes(l))
		most = max(most, out[l])
	}
	if r.Clip {
		return out
	}
	out = nil
	for range r.Depths.ExchangeBuffers {
		out = append(out, most)
	}
	return out
}

// CollectBytes is the memory in which the first rank puts a layer together for a checkpoint: lower
// halves and planes of the largest. Others need none.
func (r *Run) CollectBytes() (most int64) {
	if r.Ranks <= 1 || r.Rank > 0 || r.EvalOnly {
		return 0
	}
	for i, l := range r.Layouts {
		bytes := optim.Pages(optim.LoBytes(l, optim.Whole(l)))
		for _, p := range r.placed(i) {
			bytes += optim.Pages(p.Bytes())
		}
		most = max(most, bytes)
	}
	return most
}

// WireBytes is how many bytes this rank sends in a step at most, and about as many are those that it
// receives: of gradients the shares of the others, of weights its own share to each of them. Alone
// it is 0.
func (r *Run) WireBytes() (sent int64) {
	if r.Ranks <= 1 {
		return 0
	}
	for l, g := range r.Gradients() {
		own := r.Share(l)
		from, to := own.Tile(r.Layouts[l])
		sent += int64(r.Ranks-1) * (to - from)
		grads := r.Layouts[l].Elems - own.Elems()
		if g.OfRows(l) {
			grads = min(grads, r.GradElems(l))
		}
		sent += grads * r.GradBytes()
	}
	return sent
}
