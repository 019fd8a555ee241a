package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, sparseAttention)
	op.Add(&table, sparseAttentionBackward)
}

// sparse is one job of sparse attention: the queries from … to−1 of a sequence and a key/value head. The job gathers the
// keys of one query after another, so it takes as long as these keys need, whatever the sequence's length.
type sparse struct {
	*op.Attention
	attnJob
	sc     *scratch
	chosen []int32 // (TQ, TopK)
	topK   int
	group  int
	wide   int // Dim rounded up to panels

	keys, values []float32 // (n, Dim): the rows of the current query's keys and values
	rows         []int32   // the keys of the current query
}

// sparseAttention writes the output O and the log-sum-exp LSE.
func sparseAttention(s *stream, a *op.SparseAttention) error {
	if raceEnabled {
		announceForward(&a.Attention)
		reads(a.Keys, 1, 0, a.TQ*a.TopK)
	}
	if err := s.jobs.list(&a.AttentionShape, queryBlock(a.Heads/a.KVHeads)); err != nil {
		return err
	}
	s.pool.Run(len(s.jobs), func(i int) {
		sc := s.scratch.get()
		f := newSparse(&a.Attention, s.jobs[i], sc, i32s(a.Keys, a.TQ*a.TopK), a.TopK)
		for q := f.from; q < f.to; q++ {
			f.gather(q)
			for g := range f.group {
				f.forward(q, f.kv*f.group+g)
			}
		}
		s.scratch.put(sc)
	})
	return nil
}

func newSparse(a *op.Attention, job attnJob, sc *scratch, chosen []int32, topK int) *sparse {
	return &sparse{Attention: a, attnJob: job, sc: sc, chosen: chosen, topK: topK, group: a.Heads / a.KVHeads, wide: panels(a.Dim) * vec.Panel}
}

// gather copies the keys and values to which query q of the sequence attends.
func (f *sparse) gather(q int) {
	f.rows = f.chosen[(f.q+q)*f.topK:][:f.topK]
	for n, key := range f.rows {
		if key < 0 {
			f.rows = f.rows[:n]
			break
		}
	}
	n := len(f.rows)
	f.keys, f.values = f.sc.f32(bufKeyRows, n*f.Dim), f.sc.f32(bufDValues, n*f.Dim)
	k, v := actOf(f.K), actOf(f.V)
	for i, key := range f.rows {
		off := (f.k+int(key))*f.KStride + f.kv*f.Dim
		copy(f.keys[i*f.Dim:(i+1)*f.Dim], k.load(f.sc, bufWide, off, f.Dim))
		copy(f.values[i*f.Dim:(i+1)*f.Dim], v.load(f.sc, bufWide, off, f.Dim))
	}
}

// query returns head h of query q of the sequence.
func (f *sparse) query(q, h int) []float32 {
	return actOf(f.Q).load(f.sc, bufWide2, (f.q+q)*f.QStride+h*f.Dim, f.Dim)
}

// scores writes the product of x with each of n rows of Dim floats.
func (f *sparse) scores(out, x, rows []float32) {
	for i := range out {
		out[i] = vec.Dot(x, rows[i*f.Dim:(i+1)*f.Dim])
	}
}

// sum returns Σ w[i]·rows[i], a vector of Dim floats in buffer buf.
func (f *sparse) sum(buf int, w, rows []float32) []float32 {
	packed := f.sc.f32(bufValues, len(w)*f.wide)
	packPanels(packed, rows, f.Dim, len(w), f.Dim)
	out := f.sc.f32(buf, f.wide)
	vec.Tile(1, len(w), w, len(w), false, packed, len(w)*vec.Panel, out, f.wide, f.wide/vec.Panel, false)
	return out[:f.Dim]
}

func (f *sparse) forward(q, h int) {
	p := f.sc.f32(bufScores, len(f.rows))
	f.scores(p, f.query(q, h), f.keys)
	top := f.Scale * vec.Max(p)
	total := vec.ExpSum(p, p, f.Scale, top)
	out := f.sum(bufOut, p, f.values)
	vec.Scale(out, out, 1/total)
	actOf(f.O).put(((f.q+q)*f.Heads+h)*f.Dim, out)
	if lse := f32s(f.LSE, f.Heads*f.TQ); lse != nil {
		lse[h*f.TQ+f.q+q] = top + vec.Log(total)
	}
}

// sparseAttentionBackward overwrites DQ, DK, DV by the formulas of attentionBackward. A job is a sequence and a key/value
// head. Gradients of keys and values are summed query by query, in one order.
func sparseAttentionBackward(s *stream, a *op.SparseAttentionBackward) error {
	if raceEnabled {
		announceBackward(&a.AttentionBackward, a.Heads*a.Dim, a.KVHeads*a.Dim)
		reads(a.Keys, 1, 0, a.TQ*a.TopK)
	}
	if err := s.jobs.list(&a.AttentionShape, 0); err != nil {
		return err
	}
	forward := &op.Attention{AttentionShape: a.AttentionShape, O: a.O, LSE: a.LSE, Q: a.Q, K: a.K, V: a.V, QStride: a.QStride, KStride: a.KStride}
	s.pool.Run(len(s.jobs), func(i int) {
		sc := s.scratch.get()
		b := sparseBackward{sparse: newSparse(forward, s.jobs[i], sc, i32s(a.Keys, a.TQ*a.TopK), a.TopK), of: &a.AttentionBackward}
		b.run()
		s.scratch.put(sc)
	})
	return nil
}

// sparseBackward is one job of sparseAttentionBackward.
type sparseBackward struct {
	*sparse
	of     *op.AttentionBackward
	dk, dv []float32 // (keys of the sequence, Dim)
}

func (b sparseBackward) run() {
	b.dk, b.dv = b.sc.f32(bufDKeys, b.nk*b.Dim), b.sc.f32(bufDOut, b.nk*b.Dim)
	clear(b.dk)
	clear(b.dv)
	for q := range b.nq {
		b.gather(q)
		for g := range b.group {
			b.add(q, b.kv*b.group+g)
		}
	}
	dk, dv := actOf(b.of.DK), actOf(b.of.DV)
	for j := range b.nk {
		off := (b.k+j)*b.of.DKStride + b.kv*b.Dim
		dk.put(off, b.dk[j*b.Dim:(j+1)*b.Dim])
		dv.put(off, b.dv[j*b.Dim:(j+1)*b.Dim])
	}
}

// add writes the gradient of head h of query q, and adds to the gradients of its keys and values.
func (b sparseBackward) add(q, h int) {
	n, at := len(b.rows), ((b.q+q)*b.Heads+h)*b.Dim
	stat := h*b.TQ + b.q + q
	o, dout := actOf(b.O).load(b.sc, bufWide, at, b.Dim), actOf(b.of.DO).load(b.sc, bufQueries, at, b.Dim)
	delta := vec.Dot(o, dout)
	f32s(b.of.Delta, b.Heads*b.TQ)[stat] = delta
	query := b.query(q, h)
	p, ds := b.sc.f32(bufScores, n), b.sc.f32(bufDScores, n)
	b.scores(p, query, b.keys)
	b.scores(ds, dout, b.values)
	vec.ExpSum(p, p, b.Scale, f32s(b.LSE, b.Heads*b.TQ)[stat])
	for i := range ds {
		ds[i] = b.Scale * p[i] * (ds[i] - delta)
	}
	actOf(b.of.DQ).put((b.q+q)*b.of.DQStride+h*b.Dim, b.sum(bufOut, ds, b.keys))
	term := b.sc.f32(bufSlopes, b.Dim)
	for i, key := range b.rows {
		row := int(key) * b.Dim
		vec.Scale(term, query, ds[i])
		vec.Add(b.dk[row:row+b.Dim], term)
		vec.Scale(term, dout, p[i])
		vec.Add(b.dv[row:row+b.Dim], term)
	}
}
