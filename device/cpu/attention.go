package cpu

import (
	"math"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() { op.Add(&table, attention) }

// attention writes the output O and the log-sum-exp LSE, to base 2. A worker computes a range of queries of
// one sequence and key/value head at a time. It goes over the keys block by block and keeps, for
// every query, the largest score and the sum of exponentials so far. Source: arXiv:2205.14135,
// arXiv:2307.08691.
func attention(s *stream, a *op.Attention) error {
	if raceEnabled {
		announceForward(a)
	}
	if err := s.jobs.list(&a.AttentionShape, queryBlock(a.Heads/a.KVHeads)); err != nil {
		return err
	}
	s.pool.Run(len(s.jobs), func(i int) {
		sc := s.scratch.get()
		f := forward{Attention: a, sc: sc, attnJob: s.jobs[i], group: a.Heads / a.KVHeads, wide: panels(a.Dim) * vec.Panel}
		f.run()
		s.scratch.put(sc)
	})
	return nil
}

func announceForward(a *op.Attention) {
	wide, narrow := a.Heads*a.Dim, a.KVHeads*a.Dim
	reads(a.CuQ, 1, 0, a.Seqs+1)
	reads(a.CuK, 1, 0, a.Seqs+1)
	reads(a.Q, a.TQ, a.QStride, wide)
	reads(a.K, a.TK, a.KStride, narrow)
	reads(a.V, a.TK, a.KStride, narrow)
	writes(a.O, 1, 0, a.TQ*wide)
	writes(a.LSE, 1, 0, a.Heads*a.TQ)
}

// queryBlock returns the largest number of queries of one job (attnJob). group is the number of
// query heads that share a key/value head. Each job packs the keys again; with many queries in a
// job, this packing costs little beside the products.
func queryBlock(group int) int { return max(28, min(128, 256/group)) }

// forward is the state of one job of attention: the queries from … to−1 of all heads of a group, and the current block
// of keys.
type forward struct {
	*op.Attention
	attnJob
	sc    *scratch
	group int
	wide  int // Dim rounded up to panels

	out      []float32 // (group, queries, wide)
	top, sum []float32 // (group, queries)
	k0, n    int       // the block of keys
	keys     []float32
	values   []float32

	was, blockSum []float32 // of a strip
}

func (f *forward) run() {
	rows := f.group * (f.to - f.from)
	f.was, f.blockSum = f.sc.f32(bufWas, stripRows), f.sc.f32(bufBlockSum, stripRows)
	f.out, f.top, f.sum = f.sc.f32(bufOut, rows*f.wide), f.sc.f32(bufMax, rows), f.sc.f32(bufSum, rows)
	if f.Window > 0 {
		clear(f.out) // a strip may attend to no key of the first block
	}
	clear(f.sum)
	for i := range f.top {
		f.top[i] = float32(math.Inf(-1))
	}
	all := seen(f.from, f.to, f.shift(), f.Window, 0, f.nk)
	for f.k0 = all.lo; f.k0 < all.hi; f.k0 += keyBlock {
		f.n = min(keyBlock, all.hi-f.k0)
		f.pack()
		for g := range f.group {
			n := f.to - f.from
			for i, count := 0, strips(n); i < count; i++ {
				f.strip(g, f.from+n*i/count, f.from+n*(i+1)/count)
			}
		}
	}
	f.finish()
}

// pack copies the keys and values of the current block into panels, the layout that the tiles of package vec read.
func (f *forward) pack() {
	off := (f.k+f.k0)*f.KStride + f.kv*f.Dim
	rows, stride := actOf(f.K).loadRows(f.sc, bufWide, off, f.n, f.KStride, f.Dim)
	f.keys = f.sc.f32(bufKeys, panels(f.n)*vec.Panel*f.Dim)
	vec.Transpose(f.keys, rows, stride, f.n, f.Dim)
	rows, stride = actOf(f.V).loadRows(f.sc, bufWide, off, f.n, f.KStride, f.Dim)
	f.values = f.sc.f32(bufValues, f.n*f.wide)
	packPanels(f.values, rows, stride, f.n, f.Dim)
}

// strip adds to the output of head g of the group what queries from … to−1 get from the current
// block of keys.
func (f *forward) strip(g, from, to int) {
	see := seen(from, to, f.shift(), f.Window, f.k0, f.n)
	if see.lo >= see.hi {
		return
	}
	h, rows := f.kv*f.group+g, to-from
	q, stride := actOf(f.Q).loadRows(f.sc, bufWide, (f.q+from)*f.QStride+h*f.Dim, rows, f.QStride, f.Dim)
	scores := f.sc.f32(bufScores, stripRows*scoreStride)
	p := see.lo / vec.Panel
	vec.Tile(rows, f.Dim, q, stride, false, f.keys[p*vec.Panel*f.Dim:], vec.Panel*f.Dim,
		scores[p*vec.Panel:], scoreStride, panels(see.hi)-p, false)
	if f.Softcap > 0 {
		for r := range rows {
			row := scores[r*scoreStride:][see.lo:see.hi]
			vec.Softcap(row, row, f.Scale, f.Softcap)
		}
	}
	at := g*(f.to-f.from) + from - f.from
	f.softmax(scores, at, from, rows, see)
	again := f.Window > 0 || f.k0 > 0
	vec.Tile(rows, see.hi-see.lo, scores[see.lo:], scoreStride, false, f.values[see.lo*vec.Panel:], f.n*vec.Panel,
		f.out[at*f.wide:], f.wide, f.wide/vec.Panel, again)
}

// softmax turns the scores of a strip of queries into exponentials relative to each query's largest score so far. If
// that score grows, softmax rescales the query's earlier sums. The strip has rows queries: the first is from, and its
// output is in row at. see is the range of keys that any of them attends to.
func (f *forward) softmax(scores []float32, at, from, rows int, see span) {
	was := f.was[:rows]
	top := f.top[at : at+rows]
	copy(was, top)
	s := vec.Strip{Stride: scoreStride, Rows: rows, Width: see.hi, Most: see.hi, Scale: scoreScale(&f.AttentionShape)}
	s.N = from + f.shift() + 1 - f.k0
	if f.Window == 0 {
		vec.SoftmaxStrip(scores, s, top, f.blockSum)
	} else {
		for r := range rows {
			row, mine := scores[r*scoreStride:], visible(from+r, f.shift(), f.Window, f.k0, f.n)
			lo := max(see.lo, min(mine.lo, see.hi))
			clear(row[see.lo:lo])
			s.Rows, s.Width = 1, see.hi-lo
			s.N, s.Most = mine.hi-lo, s.Width
			vec.SoftmaxStrip(row[lo:], s, top[r:], f.blockSum[r:])
		}
	}
	for r := range rows {
		if was[r] != top[r] && f.sum[at+r] > 0 {
			k := float32(math.Exp2(float64(was[r]) - float64(top[r])))
			f.sum[at+r] *= k
			out := f.out[(at+r)*f.wide:][:f.wide]
			vec.Scale(out, out, k)
		}
		f.sum[at+r] += f.blockSum[r]
	}
}

// finish divides the job's outputs by the sums of exponentials, and stores the outputs and the
// log-sum-exps.
func (f *forward) finish() {
	o, lse := actOf(f.O), f32s(f.LSE, f.Heads*f.TQ)
	n := f.to - f.from
	for g := range f.group {
		h, q := f.kv*f.group+g, f.q+f.from
		top, sum, out := f.top[g*n:(g+1)*n], f.sum[g*n:(g+1)*n], f.out[g*n*f.wide:(g+1)*n*f.wide]
		if lse != nil {
			row := lse[h*f.TQ+q:]
			for i, s := range sum {
				row[i] = top[i] + vec.Log2(s)
			}
		}
		for i, s := range sum {
			off := ((q+i)*f.Heads + h) * f.Dim
			row := o.target(f.sc, bufWide, off, f.Dim)
			vec.Scale(row, out[i*f.wide:][:f.Dim], 1/s)
			o.store(off, row)
		}
	}
}
