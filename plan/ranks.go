package plan

import (
	"mt/host/optim"
)

// This file sizes a rank's state and its exchange buffers in a run with several ranks.

// divide reduces the plan from the whole run to one rank of it. It sets r's ranks and shares, and q.Rows becomes the
// rank's part of the rows.
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

// Share returns the part of layer l's state that this rank keeps; the whole layer for a single
// rank.
func (r *Run) Share(l int) optim.Share {
	if r.Shares == nil {
		return optim.Whole(r.Layouts[l])
	}
	return r.Shares[l][r.Rank]
}

// OwnShares returns, by layer, the parts of state that this rank keeps; nil: single rank.
func (r *Run) OwnShares() (out []optim.Share) {
	for l := range r.Shares {
		out = append(out, r.Share(l))
	}
	return out
}

// shareRows returns how many rows of layer l's embedding table lie wholly or partly in this rank's
// share. 0: none, or the layer is not updated by rows.
func (r *Run) shareRows(l int) int64 {
	s, cols := r.Share(l), r.Gradients()[l].Row
	if s.Elems() == 0 || cols == 0 {
		return 0
	}
	return (s.To-1)/cols - s.From/cols + 1
}

// shareElems returns the maximum number of gradient elements for this rank's share of layer l. A gradient of embedding
// rows counts every row that overlaps the share in full.
func (r *Run) shareElems(l int) int64 {
	if g := r.Gradients()[l]; g.OfRows(l) {
		return min(r.shareRows(l), int64(r.AllIDs)) * g.Row
	}
	return r.Share(l).Elems()
}

// ShareSumBytes returns the maximum size of the summed gradient of this rank's share of layer l.
func (r *Run) ShareSumBytes(l int) int64 { return r.shareElems(l) * r.GradBytes() }

// ExchangeBytes returns the size of an exchange buffer. A buffer holds the gradients that this rank
// receives from all ranks for its share of one layer. All buffers fit the layer with the largest
// share. 0 for a single rank.
func (r *Run) ExchangeBytes() (most int64) {
	if r.Ranks <= 1 || r.EvalOnly {
		return 0
	}
	for l, g := range r.Gradients() {
		each := r.Share(l).Elems()
		if g.OfRows(l) { // each rank sends the rows of its own batch
			each = min(r.shareRows(l), int64(r.Limits.UniqueIDs)) * g.Row
		}
		most = max(most, int64(r.Ranks)*each*r.GradBytes())
	}
	return most
}

// ShareSlabBytes returns the sizes of the slabs for the summed gradients of this rank's shares. With clipping there is
// one for each layer, which waits for the norm; else one for each exchange buffer. There are none for a single rank.
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

// CollectBytes returns the bytes of host memory in which the first rank collects a layer's shares from all ranks for a
// checkpoint. It fits the lower halves and planes of the largest layer. Other ranks need none.
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

// WireBytes returns the maximum number of bytes that this rank sends in a step. It receives about the same number. The
// rank sends the gradients of the others' shares, and the weights of its own share to each other rank. 0 for a single
// rank.
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
