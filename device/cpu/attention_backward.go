package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, attentionBackward) }

// queryTile is the number of queries that the backward processes together. Matrix products then add
// the contributions of all these queries to the gradients of keys and values.
const queryTile = 56

// attentionBackward overwrites DQ, DK, DV. With P = 2^(scale·log₂e·QKᵀ − LSE), dP = dO·Vᵀ and delta = Σ dO·O:
//
//	dS = scale·P·(dP − delta), dQ = dS·K, dK = dSᵀ·Q, dV = Pᵀ·dO
//
// Source: arXiv:2307.08691.
//
// A job is a sequence and a key/value head. It goes over the blocks of keys in order, and within each block over the
// heads of the group and their queries in order. If there are too few jobs for the threads, one pass computes the
// gradients of queries, and another the gradients of keys and values. Each job then covers a range of queries or
// keys. Two passes take 7 matrix products instead of 5.
//
// Both ways add in the same order. A gradient of keys or values adds heads, and within them queries. A gradient of
// queries adds blocks of keys, and within them keys. Masked keys add zeros, which change nothing.
func attentionBackward(s *stream, a *op.AttentionBackward) error {
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	if raceEnabled {
		announceBackward(a, wide, narrow)
	}
	if err := s.jobs.list(&a.AttentionShape, 0); err != nil {
		return err
	}
	if s.jobs.balanced(s.pool.Threads()) {
		s.backward(a, backward{forQueries: true, forKeys: true})
		return nil
	}
	if err := s.jobs.list(&a.AttentionShape, queryBlock(a.Heads/a.KVHeads)); err != nil {
		return err
	}
	s.backward(a, backward{forQueries: true})
	s.jobs.listKeys(&a.AttentionShape)
	s.backward(a, backward{forKeys: true})
	return nil
}

// backward runs the jobs in s.jobs on all cores. This method sets the fields of b that all jobs
// share. Each job works on its own copy of b.
func (s *stream) backward(a *op.AttentionBackward, b backward) {
	b.AttentionBackward, b.group, b.wide = a, a.Heads/a.KVHeads, panels(a.Dim)*vec.Panel
	s.pool.Run(len(s.jobs), func(i int) {
		job := b
		job.sc, job.attnJob = s.scratch.get(), s.jobs[i]
		job.run()
		s.scratch.put(job.sc)
	})
}

func announceBackward(a *op.AttentionBackward, wide, narrow int) {
	reads(a.CuQ, 1, 0, a.Seqs+1)
	reads(a.CuK, 1, 0, a.Seqs+1)
	reads(a.Q, a.TQ, a.QStride, wide)
	reads(a.K, a.TK, a.KStride, narrow)
	reads(a.V, a.TK, a.KStride, narrow)
	reads(a.O, 1, 0, a.TQ*wide)
	reads(a.DO, 1, 0, a.TQ*wide)
	reads(a.LSE, 1, 0, a.Heads*a.TQ)
	writes(a.Delta, 1, 0, a.Heads*a.TQ)
	writes(a.DQ, a.TQ, a.DQStride, wide)
	writes(a.DK, a.TK, a.DKStride, narrow)
	writes(a.DV, a.TK, a.DKStride, narrow)
}

// backward computes the gradients of one attnJob, a range of queries or keys of one key/value head of a sequence.
type backward struct {
	*op.AttentionBackward
	attnJob
	sc    *scratch
	group int
	wide  int // Dim rounded up to panels
	// forQueries says that the job computes the gradients of queries, and forKeys the gradients of
	// keys and values.
	forQueries, forKeys bool

	dq               []float32 // (group, queries, wide)
	k0, n            int       // the block of keys
	fresh            int       // first key of the block that has no gradient yet
	keys, values     []float32 // the block, as columns of panels
	keyRows          []float32
	dk, dv           []float32 // (keys, wide)
	scores, dscores  []float32 // (queryTile, scoreStride)
	queries, dout    []float32 // the rows of the tile
	qStride, dStride int
	qPanels, dPanels []float32
}

func (b *backward) run() {
	if b.forQueries {
		b.sumDelta()
		b.dq = b.sc.f32(bufOut, b.group*(b.to-b.from)*b.wide)
		clear(b.dq)
	}
	b.scores = b.sc.f32(bufScores, queryTile*scoreStride)
	b.dscores = b.sc.f32(bufDScores, queryTile*scoreStride)
	for b.k0 = b.keyFrom; b.k0 < b.keyTo; b.k0 += keyBlock {
		b.n = min(keyBlock, b.keyTo-b.k0)
		first, last := max(b.from, b.k0-b.shift()), b.to
		if b.Window > 0 {
			last = min(last, b.k0+b.n-1+b.Window-b.shift())
		}
		if first < last {
			b.pack()
		}
		b.fresh = 0
		for g := range b.group {
			count := (last - first + queryTile - 1) / queryTile
			for i := range count {
				b.tile(g, first+(last-first)*i/count, first+(last-first)*(i+1)/count)
			}
		}
		if b.forKeys {
			b.storeKeys()
		}
	}
	if b.forQueries {
		b.storeQueries()
	}
}

// sumDelta writes delta = Σ dO·O, summed over the elements of a head, for every query and head of the job.
func (b *backward) sumDelta() {
	o, dout, delta := actOf(b.O), actOf(b.DO), f32s(b.Delta, b.Heads*b.TQ)
	for q := b.q + b.from; q < b.q+b.to; q++ {
		off, n := (q*b.Heads+b.kv*b.group)*b.Dim, b.group*b.Dim
		x, y := o.load(b.sc, bufWide, off, n), dout.load(b.sc, bufWide2, off, n)
		for g := range b.group {
			delta[(b.kv*b.group+g)*b.TQ+q] = vec.Dot(x[g*b.Dim:(g+1)*b.Dim], y[g*b.Dim:(g+1)*b.Dim])
		}
	}
}

// pack copies the keys and values of the current block into panels, the layout that the tiles of package vec read.
func (b *backward) pack() {
	off := (b.k+b.k0)*b.KStride + b.kv*b.Dim
	columns := panels(b.n) * vec.Panel * b.Dim
	rows, stride := actOf(b.K).loadRows(b.sc, bufWide, off, b.n, b.KStride, b.Dim)
	b.keys, b.keyRows = b.sc.f32(bufKeys, columns), b.sc.f32(bufKeyRows, b.n*b.wide)
	vec.Transpose(b.keys, rows, stride, b.n, b.Dim)
	packPanels(b.keyRows, rows, stride, b.n, b.Dim)
	rows, stride = actOf(b.V).loadRows(b.sc, bufWide, off, b.n, b.KStride, b.Dim)
	b.values = b.sc.f32(bufValues, columns)
	vec.Transpose(b.values, rows, stride, b.n, b.Dim)
}

// tile adds to all gradients the contribution of queries from … to−1 of head g of the group, with the current block of
// keys.
func (b *backward) tile(g, from, to int) {
	h, rows := b.kv*b.group+g, to-from
	see := seen(from, to, b.shift(), b.Window, b.k0, b.n)
	b.queries, b.qStride = actOf(b.Q).loadRows(b.sc, bufWide, (b.q+from)*b.QStride+h*b.Dim, rows, b.QStride, b.Dim)
	b.dout, b.dStride = actOf(b.DO).loadRows(b.sc, bufWide2, ((b.q+from)*b.Heads+h)*b.Dim, rows, b.Heads*b.Dim, b.Dim)
	for i, count := 0, strips(rows); i < count; i++ {
		b.strip(g, from, from+rows*i/count, from+rows*(i+1)/count, see)
	}
	if !b.forKeys {
		return
	}
	b.qPanels, b.dPanels = b.sc.f32(bufQueries, rows*b.wide), b.sc.f32(bufDOut, rows*b.wide)
	packPanels(b.qPanels, b.queries, b.qStride, rows, b.Dim)
	packPanels(b.dPanels, b.dout, b.dStride, rows, b.Dim)
	b.addKeys(from, rows, see)
}

// strip computes the scores of queries from … to−1 and the gradients of these scores, and adds to the gradient of the
// queries. The strip is part of a tile whose first query is tile. `all` is the range of keys that any query of the tile
// attends to.
func (b *backward) strip(g, tile, from, to int, all span) {
	h, rows, row := b.kv*b.group+g, to-from, from-tile
	see := seen(from, to, b.shift(), b.Window, b.k0, b.n)
	p := see.lo / vec.Panel
	count, skip := panels(see.hi)-p, p*vec.Panel*b.Dim
	scores, dscores := b.scores[row*scoreStride:], b.dscores[row*scoreStride:]
	vec.Tile(rows, b.Dim, b.queries[row*b.qStride:], b.qStride, false, b.keys[skip:], vec.Panel*b.Dim,
		scores[p*vec.Panel:], scoreStride, count, false)
	vec.Tile(rows, b.Dim, b.dout[row*b.dStride:], b.dStride, false, b.values[skip:], vec.Panel*b.Dim,
		dscores[p*vec.Panel:], scoreStride, count, false)
	lse, delta := f32s(b.LSE, b.Heads*b.TQ)[h*b.TQ+b.q:], f32s(b.Delta, b.Heads*b.TQ)[h*b.TQ+b.q:]
	slopes := b.cap(scores, rows, see)
	b.gradient(scores, dscores, from, rows, all, lse[from:], delta[from:])
	if b.Softcap > 0 {
		for r := range rows {
			ds := dscores[r*scoreStride:][see.lo:see.hi]
			vec.ScaleMul(ds, ds, slopes[r*len(ds):(r+1)*len(ds)], 1)
		}
	}
	if !b.forQueries {
		return
	}
	vec.Tile(rows, see.hi-see.lo, dscores[see.lo:], scoreStride, false, b.keyRows[see.lo*vec.Panel:], b.n*vec.Panel,
		b.dq[(g*(b.to-b.from)+from-b.from)*b.wide:], b.wide, b.wide/vec.Panel, true)
}

// cap applies the softcap to the scores of a strip, for the keys in see. It returns the softcap's derivative for each
// score, one row for each query. It returns nil without a softcap, or if no query of the strip attends to a key.
func (b *backward) cap(scores []float32, rows int, see span) []float32 {
	if b.Softcap == 0 {
		return nil
	}
	n := see.hi - see.lo
	slopes := b.sc.f32(bufSlopes, rows*n)
	for i := range slopes {
		slopes[i] = b.Scale
	}
	for r := range rows {
		row := scores[r*scoreStride:][see.lo:see.hi]
		vec.Softcap(row, row, b.Scale, b.Softcap)
		vec.SoftcapGrad(slopes[r*n:(r+1)*n], row, b.Softcap)
	}
	return slopes
}

// gradient overwrites scores with probabilities, and dscores, which holds the gradients of the probabilities, with the
// gradients of the scores. from is the first of the strip's rows queries. all is the range of keys that the whole tile
// attends to.
func (b *backward) gradient(scores, dscores []float32, from, rows int, all span, lse, delta []float32) {
	s := vec.Strip{Stride: scoreStride, Rows: rows, Width: all.hi, Most: all.hi, Scale: scoreScale(&b.AttentionShape)}
	s.N = from + b.shift() + 1 - b.k0
	if b.Window == 0 {
		vec.GradStrip(scores, dscores, s, lse, delta)
		return
	}
	s.Rows = 1
	for r := range rows {
		row, drow := scores[r*scoreStride:], dscores[r*scoreStride:]
		mine := visible(from+r, b.shift(), b.Window, b.k0, b.n)
		clear(row[all.lo:mine.lo])
		clear(drow[all.lo:mine.lo])
		s.Width = all.hi - mine.lo
		s.N, s.Most = mine.hi-mine.lo, s.Width
		vec.GradStrip(row[mine.lo:], drow[mine.lo:], s, lse[r:], delta[r:])
	}
}

// addKeys adds the contributions of queries from … from+rows−1 to the gradients of the block's keys and values. The
// keys that every query attends to are one product. The other keys go in strips, and each strip skips the queries
// before the first one that attends to it. Keys from b.fresh on have no gradient yet, so the first contribution
// overwrites their memory.
func (b *backward) addKeys(from, rows int, see span) {
	b.dk, b.dv = b.sc.f32(bufDKeys, b.n*b.wide), b.sc.f32(bufDValues, b.n*b.wide)
	if b.fresh < see.lo { // keys before the window of the first query
		clear(b.dk[b.fresh*b.wide : see.lo*b.wide])
		clear(b.dv[b.fresh*b.wide : see.lo*b.wide])
		b.fresh = see.lo
	}
	diagonal := from + b.shift() - b.k0 // the key at the position of the first query
	for j := see.lo; j < see.hi; {
		next, r := j+stripRows, max(0, j-diagonal)
		if r == 0 {
			next = max(next, diagonal)
		}
		if next = min(next, see.hi); j < b.fresh {
			next = min(next, b.fresh)
		}
		b.addStrip(j, next, r, rows)
		j = next
	}
	b.fresh = max(b.fresh, see.hi)
}

// addStrip adds to the gradients of keys and values j … next−1 of the block. The contributions come from queries r …
// rows−1, counted from the start of the tile.
func (b *backward) addStrip(j, next, r, rows int) {
	at, add := r*scoreStride+j, j < b.fresh
	vec.Tile(next-j, rows-r, b.scores[at:], scoreStride, true, b.dPanels[r*vec.Panel:], rows*vec.Panel,
		b.dv[j*b.wide:], b.wide, b.wide/vec.Panel, add)
	vec.Tile(next-j, rows-r, b.dscores[at:], scoreStride, true, b.qPanels[r*vec.Panel:], rows*vec.Panel,
		b.dk[j*b.wide:], b.wide, b.wide/vec.Panel, add)
}

// storeKeys stores the gradients of the block's keys and values. Keys that no query attends to get 0.
func (b *backward) storeKeys() {
	dk, dv := actOf(b.DK), actOf(b.DV)
	b.dk, b.dv = b.sc.f32(bufDKeys, b.n*b.wide), b.sc.f32(bufDValues, b.n*b.wide)
	clear(b.dk[b.fresh*b.wide:])
	clear(b.dv[b.fresh*b.wide:])
	for j := range b.n {
		off := (b.k+b.k0+j)*b.DKStride + b.kv*b.Dim
		dk.put(off, b.dk[j*b.wide:][:b.Dim])
		dv.put(off, b.dv[j*b.wide:][:b.Dim])
	}
}

func (b *backward) storeQueries() {
	dq, n := actOf(b.DQ), b.to-b.from
	for i := range b.group * n {
		h, q := b.kv*b.group+i/n, b.q+b.from+i%n
		dq.put(q*b.DQStride+h*b.Dim, b.dq[i*b.wide:][:b.Dim])
	}
}
