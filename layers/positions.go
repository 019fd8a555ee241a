package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// PositionsForward overwrites y with x plus the learned position embedding of each token's
// position.
//
//	x, y (T, h) act, not overlapping
//	ws: needed if x and y are on the host
func (t *Templates) PositionsForward(s device.Stream, w Weights, y, x Hidden, mb MicroBatch, ws device.Mem) {
	t.spec.fits(mb.Tokens)
	in := t.spec.positionsSpace(t.dims, mb.Tokens, &allotter{mem: ws})
	from, to := t.hidden(x, in), t.hidden(y, in) // both views share one chunk, which is updated in place
	for c := range t.positionChunks(mb.Tokens) {
		fetch(s, c, from)
		op.Do(t.dev, s, op.AddPositions{Y: to.of(c), X: from.of(c), Table: w[model.RolePositions], Pos: whole(mb.Pos, 1).of(c),
			T: c.n, C: t.dims.hidden})
		store(s, c, to)
	}
}

// PositionsBackward accumulates the gradient of the learned position embeddings. The gradient of x
// is dx itself.
//
//	g: overwritten if first is set, else accumulated; dx (T, h) act
//	ws: needed if dx is on the host
func (t *Templates) PositionsBackward(s device.Stream, g Grads, dx Hidden, mb MicroBatch, ws device.Mem, first bool) {
	t.spec.fits(mb.Tokens)
	dtable, trained := g[model.RolePositions]
	if !trained {
		return
	}
	if first {
		s.Zero(dtable.Mem())
	}
	from := t.hidden(dx, t.spec.positionsSpace(t.dims, mb.Tokens, &allotter{mem: ws}))
	for c := range t.positionChunks(mb.Tokens) {
		fetch(s, c, from)
		op.Do(t.dev, s, op.AddPositionsBackward{DTable: dtable, DY: from.of(c), Cu: mb.Cu, Seqs: mb.Seqs, Longest: mb.MaxSeqlen,
			From: c.at, T: c.n, C: t.dims.hidden})
	}
}

// positionsSpace returns device memory for one chunk (C, h) act if hidden states are on the host, otherwise none.
func (s Spec) positionsSpace(d dims, tokens int, ws *allotter) (chunk rows) {
	if s.OnHost {
		chunk = ws.chunkRows(d.act, chunkOf(s.ChunkTokens, tokens), d.hidden)
	}
	return chunk
}

// positionChunks returns an iterator over the chunks of a micro-batch. The order in which gradients are summed depends
// on the chunks. They are therefore the same whether hidden states are on the device or on the host.
func (t *Templates) positionChunks(tokens int) func(func(span) bool) {
	return spans(tokens, chunkOf(t.spec.ChunkTokens, tokens))
}
