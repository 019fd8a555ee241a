package cpu

import (
	"math"
	"slices"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, sparseAttention)
	op.Add(&table, sparseAttentionBackward)
}

// sparse is one job of sparse attention: queries and keys of a sequence. The job gathers the keys of one query after
// another, and computes all heads at once. So a query's time depends on its keys, not on the sequence's length.
type sparse struct {
	*op.SparseAttention
	attnJob
	sc *scratch

	rows    []int32   // the keys of the current query that belong to the job
	keys    []float32 // their rows, (n, Dim)
	columns []float32 // their rows as columns of panels
	stride  int       // of scores
}

// sparseAttention writes the output O and the log-sum-exp LSE, to base 2.
func sparseAttention(s *stream, a *op.SparseAttention) error {
	if raceEnabled {
		announceSparse(a)
		writes(a.O, 1, 0, a.TQ*a.Heads*a.Values)
		writes(a.LSE, 1, 0, a.Heads*a.TQ)
	}
	if err := s.jobs.list(&a.AttentionShape, stripRows); err != nil {
		return err
	}
	s.sparseJobs(a, func(f *sparse) { f.each(f.forward) })
	return nil
}

func announceSparse(a *op.SparseAttention) {
	reads(a.CuQ, 1, 0, a.Seqs+1)
	reads(a.CuK, 1, 0, a.Seqs+1)
	reads(a.Keys, 1, 0, a.TQ*a.TopK)
	reads(a.Q, a.TQ, a.QStride, a.Heads*a.Dim)
	reads(a.K, a.TK, a.KStride, a.Dim)
}

// sparseJobs runs f for every job.
func (s *stream) sparseJobs(a *op.SparseAttention, f func(job *sparse)) {
	s.pool.Run(len(s.jobs), func(i int) {
		job := &sparse{SparseAttention: a, attnJob: s.jobs[i], sc: s.scratch.get()}
		f(job)
		s.scratch.put(job.sc)
	})
}

// each runs do for every query of the job that has keys in the job, with these keys gathered.
func (f *sparse) each(do func(q int)) {
	for q := f.from; q < f.to; q++ {
		if f.gather(q); len(f.rows) > 0 {
			do(q)
		}
	}
}

// gather copies the keys of the job to which query q of the sequence attends.
func (f *sparse) gather(q int) {
	chosen := i32s(f.Keys, f.TQ*f.TopK)[(f.q+q)*f.TopK:][:f.TopK]
	before := func(key int) int { // as unsigned numbers the keys ascend, since −1 is the largest
		i, _ := slices.BinarySearchFunc(chosen, uint32(key), func(c int32, key uint32) int { return int(uint32(c)) - int(key) })
		return i
	}
	f.rows = chosen[before(f.keyFrom):before(f.keyTo)]
	n := len(f.rows)
	f.stride = panels(n) * vec.Panel
	f.keys, f.columns = f.sc.f32(bufKeyRows, n*f.Dim), f.sc.f32(bufKeys, f.stride*f.Dim)
	k := actOf(f.K)
	for i, key := range f.rows {
		copy(f.keys[i*f.Dim:][:f.Dim], k.load(f.sc, bufWide, (f.k+int(key))*f.KStride, f.Dim))
	}
	vec.Transpose(f.columns, f.keys, f.Dim, n, f.Dim)
}

// scores returns the products of width elements of all heads, stride floats apart, with the keys' rows: (Heads, f.stride).
func (f *sparse) scores(buf int, heads []float32, stride, width int) []float32 {
	out := f.sc.f32(buf, f.Heads*f.stride)
	vec.Tile(f.Heads, width, heads, stride, false, f.columns, f.Dim*vec.Panel, out, f.stride, f.stride/vec.Panel, false)
	return out
}

// put writes Σ w·row over the keys' rows of width elements, for all heads. w is (Heads, f.stride). Elements go to t from
// at on.
func (f *sparse) put(t act, at int, w []float32, width int) {
	n, wide := len(f.rows), panels(width)*vec.Panel
	packed, out := f.sc.f32(bufValues, n*wide), f.sc.f32(bufOut, f.Heads*wide)
	packPanels(packed, f.keys, f.Dim, n, width)
	vec.Tile(f.Heads, n, w, f.stride, false, packed, n*vec.Panel, out, wide, wide/vec.Panel, false)
	for h := range f.Heads {
		t.put(at+h*width, out[h*wide:][:width])
	}
}

// query returns the heads of query q of the sequence, and the distance between them.
func (f *sparse) query(q int) ([]float32, int) {
	return actOf(f.Q).loadRows(f.sc, bufWide2, (f.q+q)*f.QStride, f.Heads, f.Dim, f.Dim)
}

// strip describes a row of scores of one head.
func (f *sparse) strip() vec.Strip {
	n := len(f.rows)
	return vec.Strip{Stride: f.stride, Rows: 1, N: n, Most: n, Width: n, Scale: f.Scale}
}

func (f *sparse) forward(q int) {
	heads, stride := f.query(q)
	scores := f.scores(bufScores, heads, stride, f.Dim)
	lse, top, total := f32s(f.LSE, f.Heads*f.TQ), f.sc.f32(bufMax, 1), f.sc.f32(bufSum, 1)
	for h := range f.Heads {
		p := scores[h*f.stride:][:f.stride]
		top[0] = float32(math.Inf(-1))
		vec.SoftmaxStrip(p, f.strip(), top, total)
		vec.Scale(p, p, 1/total[0])
		if lse != nil {
			lse[h*f.TQ+f.q+q] = top[0] + vec.Log2(total[0])
		}
	}
	f.put(actOf(f.O), (f.q+q)*f.Heads*f.Values, scores, f.Values)
}

// sparseAttentionBackward overwrites DQ and DK by the formulas of attentionBackward. It computes the scores twice: in jobs
// of a few queries for DQ, and in jobs of a block of keys for DK, whose sums have the order of the queries. It needs no Sums.
func sparseAttentionBackward(s *stream, a *op.SparseAttentionBackward) error {
	forward := &op.SparseAttention{SparseShape: a.SparseShape, O: a.O, LSE: a.LSE, Q: a.Q, K: a.K, QStride: a.QStride, KStride: a.KStride}
	if raceEnabled {
		announceSparse(forward)
		reads(a.O, 1, 0, a.TQ*a.Heads*a.Values)
		reads(a.DO, 1, 0, a.TQ*a.Heads*a.Values)
		reads(a.LSE, 1, 0, a.Heads*a.TQ)
		writes(a.Delta, 1, 0, a.Heads*a.TQ)
		writes(a.DQ, a.TQ, a.DQStride, a.Heads*a.Dim)
		writes(a.DK, a.TK, a.DKStride, a.Dim)
	}
	if err := s.jobs.list(&a.AttentionShape, stripRows); err != nil {
		return err
	}
	s.sparseJobs(forward, func(f *sparse) { f.each(func(q int) { f.queryGradient(a, q) }) })
	s.jobs.listKeys(&a.AttentionShape)
	s.sparseJobs(forward, func(f *sparse) {
		dk := f.sc.f32(bufDKeys, (f.keyTo-f.keyFrom)*f.Dim)
		clear(dk)
		f.each(func(q int) { f.addKeys(a, dk, q) })
		for i := range f.keyTo - f.keyFrom {
			actOf(a.DK).put((f.k+f.keyFrom+i)*a.DKStride, dk[i*f.Dim:][:f.Dim])
		}
	})
	return nil
}

func (f *sparse) queryGradient(a *op.SparseAttentionBackward, q int) {
	delta := f32s(a.Delta, a.Heads*a.TQ)
	for h := range a.Heads {
		at := ((f.q+q)*a.Heads + h) * a.Values
		delta[h*a.TQ+f.q+q] = vec.Dot(actOf(a.O).load(f.sc, bufWide, at, a.Values), actOf(a.DO).load(f.sc, bufWide2, at, a.Values))
	}
	_, ds := f.gradient(a, q)
	f.put(actOf(a.DQ), (f.q+q)*a.DQStride, ds, a.Dim)
}

// gradient returns the probabilities of query q and the gradients of its scores, (Heads, f.stride).
func (f *sparse) gradient(a *op.SparseAttentionBackward, q int) (p, ds []float32) {
	heads, stride := f.query(q)
	p = f.scores(bufScores, heads, stride, f.Dim)
	heads, stride = actOf(a.DO).loadRows(f.sc, bufDOut, (f.q+q)*f.Heads*f.Values, f.Heads, f.Values, f.Values)
	ds = f.scores(bufDScores, heads, stride, f.Values)
	for h := range f.Heads {
		stat, row := h*f.TQ+f.q+q, h*f.stride
		vec.GradStrip(p[row:], ds[row:], f.strip(), f32s(f.LSE, f.Heads*f.TQ)[stat:], f32s(a.Delta, f.Heads*f.TQ)[stat:])
	}
	return p, ds
}

// addKeys adds what query q gives to dk, the gradients of the job's keys.
func (f *sparse) addKeys(a *op.SparseAttentionBackward, dk []float32, q int) {
	p, ds := f.gradient(a, q)
	heads, stride := f.query(q)
	f.add(dk, ds, heads, stride, f.Dim)
	heads, stride = actOf(a.DO).loadRows(f.sc, bufDOut, (f.q+q)*f.Heads*f.Values, f.Heads, f.Values, f.Values)
	f.add(dk, p, heads, stride, f.Values)
}

// add adds Σ w·head over the heads of width elements to the first width elements of the keys' gradients.
func (f *sparse) add(dk, w, heads []float32, stride, width int) {
	n, wide := len(f.rows), panels(width)*vec.Panel
	packed, out := f.sc.f32(bufQueries, f.Heads*wide), f.sc.f32(bufOut, n*wide)
	packPanels(packed, heads, stride, f.Heads, width)
	vec.Tile(n, f.Heads, w, f.stride, true, packed, f.Heads*vec.Panel, out, wide, wide/vec.Panel, false)
	for i, key := range f.rows {
		vec.Add(dk[(int(key)-f.keyFrom)*f.Dim:][:width], out[i*wide:][:width])
	}
}
