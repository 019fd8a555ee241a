package conformance

import (
	"fmt"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("SelectKeys", selectCases)
	row("SparseAttention", func(add func(string, func(*rig))) { sparseCases(add, sparseAttention) })
	row("SparseAttentionBackward", func(add func(string, func(*rig))) { sparseCases(add, sparseAttentionBackward) })
}

// selections are the cases of SelectKeys: lengths of the sequences' queries and, if they differ, of their keys.
var selections = []struct {
	queries, keys    []int
	heads, dim, topK int
}{
	{queries: []int{1}, heads: 1, dim: 1, topK: 1},
	{queries: []int{5, 0, 9}, heads: 8, dim: 16, topK: 4},
	{queries: []int{33, 70}, heads: 8, dim: 24, topK: 64},
	{queries: []int{300}, heads: 8, dim: 32, topK: 40},
	{queries: []int{270, 3}, heads: 8, dim: 8, topK: 3},
	{queries: []int{1, 5}, keys: []int{290, 7}, heads: 8, dim: 16, topK: 24},
	{queries: []int{257}, heads: 12, dim: 8, topK: 250}, // the last key is the first one of a tile
	{queries: []int{30, 301}, heads: 13, dim: 128, topK: 80},
	{queries: []int{40}, keys: []int{47}, heads: 70, dim: 136, topK: 9},
}

func selectCases(add func(string, func(*rig))) {
	for _, c := range selections {
		add(fmt.Sprintf("%v,%v,heads %d,dim %d,top %d", c.queries, c.keys, c.heads, c.dim, c.topK), func(r *rig) {
			keys := c.keys
			if keys == nil {
				keys = c.queries
			}
			s := oracle.Selection{CuQ: cumulative(c.queries), CuK: cumulative(keys), Heads: c.heads, Dim: c.dim, TopK: c.topK, Scale: 0.25, WScale: 0.5}
			tq, tk := int(s.CuQ[len(s.CuQ)-1]), int(s.CuK[len(s.CuK)-1])
			q, k := r.act("Q", tq*c.heads*c.dim), r.act("K", tk*c.dim)
			positive := r.normal(tq * c.heads) // so that few scores are equal: a key has score 0 if all products are negative
			for i, x := range positive {
				positive[i] = 0.1 + x*x
			}
			w := r.values("W", r.dt, positive)
			want := make([]int32, tq*c.topK)
			oracle.SelectKeys(want, q.v, k.v, w.v, s)
			out := r.i32("Keys", make([]int32, tq*c.topK))
			out.expect(floats(want), 0, 0)
			cuQ, cuK := r.i32("CuQ", s.CuQ), r.i32("CuK", s.CuK)
			enqueue(r, op.SelectKeys{Keys: out.t, Q: q.t, K: k.t, W: w.t, CuQ: cuQ.t, CuK: cuK.t, Seqs: len(c.queries), TQ: tq, TK: tk,
				MaxK: longest(keys), Heads: c.heads, Dim: c.dim, TopK: c.topK, Scale: float32(s.Scale), WScale: float32(s.WScale)})
		})
	}
}

// sparseShapes are the cases of sparse attention: values of a key's row, the keys of a choice, and among how many last
// keys a query chooses; 0: among all.
var sparseShapes = []struct {
	attentionShape
	values, topK, recent int
}{
	{attentionShape{queries: []int{1}, heads: 1, kvHeads: 1, dim: 1}, 1, 2, 0},
	{attentionShape{queries: []int{15, 0, 33}, heads: 4, kvHeads: 1, dim: 24, beyond: 64}, 16, 7, 0},
	{attentionShape{queries: []int{57, 129}, heads: 2, kvHeads: 1, dim: 40, beyond: 7}, 33, 30, 0},
	{attentionShape{queries: []int{90}, heads: 2, kvHeads: 1, dim: 96}, 96, 200, 0},
	{attentionShape{queries: []int{1, 5, 0}, keys: []int{300, 9, 4}, heads: 40, kvHeads: 1, dim: 32}, 8, 20, 0},
	{attentionShape{queries: []int{301, 2}, heads: 2, kvHeads: 1, dim: 136, beyond: 8}, 128, 5, 12},
	{attentionShape{queries: []int{7, 400}, heads: 3, kvHeads: 1, dim: 72, beyond: 8}, 64, 30, 0},
	{attentionShape{queries: []int{70}, heads: 33, kvHeads: 1, dim: 192}, 128, 50, 60},
	{attentionShape{queries: []int{3}, keys: []int{80}, heads: 65, kvHeads: 1, dim: 576}, 512, 70, 0},
}

func sparseCases(add func(string, func(*rig)), run func(*rig, *sparseInput)) {
	for _, sh := range sparseShapes {
		add(fmt.Sprintf("%v,values %d,top %d of %d", sh.attentionShape, sh.values, sh.topK, sh.recent), func(r *rig) {
			in := &sparseInput{attentionInput: newAttention(r, sh.attentionShape)}
			in.Keys, in.TopK = make([]int32, in.TQ*sh.topK), sh.topK
			for i := range len(in.CuQ) - 1 {
				first, nq := int(in.CuQ[i]), int(in.CuQ[i+1]-in.CuQ[i])
				for t := range nq {
					end, low := t+1+int(in.CuK[i+1]-in.CuK[i])-nq, 0
					if sh.recent > 0 {
						low = max(0, end-sh.recent)
					}
					draw(r, in.Keys[(first+t)*sh.topK:][:sh.topK], low, end)
				}
			}
			in.sparse = op.SparseShape{AttentionShape: in.shape, Values: sh.values, TopK: sh.topK, Keys: r.i32("Keys", in.Keys).t}
			run(r, in)
		})
	}
}

// sparseInput holds what a case of sparse attention reads.
type sparseInput struct {
	*attentionInput
	sparse op.SparseShape
}

// exact returns the output and the log-sum-exp as the oracle computes them.
func (in *sparseInput) exact() attended {
	n := in.TQ * in.Heads
	e := attended{make([]float64, n*in.sparse.Values), make([]float64, n)}
	oracle.SparseAttention(e.o, e.lse, in.q.v, in.k.v, in.Shape, in.sparse.Values)
	return e
}

// draw fills keys with random different numbers from low … end−1 in ascending order, and −1 after the last.
func draw(r *rig, keys []int32, low, end int) {
	left := min(end-low, len(keys))
	at := 0
	for key := low; key < end; key++ {
		if r.rng.IntN(end-key) < left {
			keys[at] = int32(key)
			at++
			left--
		}
	}
	for ; at < len(keys); at++ {
		keys[at] = -1
	}
}

func sparseAttention(r *rig, in *sparseInput) {
	want := in.exact()
	o, lse := r.act("O", len(want.o)), r.f32("LSE", len(want.lse))
	o.expect(want.o, 4*summing(in.Dim), 2)
	lse.expect(want.lse, 4*summing(in.Dim), 0)
	enqueue(r, op.SparseAttention{SparseShape: in.sparse, O: o.t, LSE: lse.t, Q: in.q.t, K: in.k.t, QStride: in.QStride, KStride: in.KStride})
}

// sparseAttentionBackward has the bounds of attentionBackward, for the same reasons.
func sparseAttentionBackward(r *rig, in *sparseInput) {
	exact := in.exact()
	o, lse := r.values("O", r.dt, exact.o), r.values("LSE", device.F32, exact.lse)
	do, delta, sums := r.act("DO", len(exact.o)), r.f32("Delta", len(exact.lse)), r.f32("Sums", in.sparse.SumsLen())
	sums.any = true
	dq, dk := r.act("DQ", in.TQ*in.DQStride), r.act("DK", in.shape.TK*in.DKStride)
	wantQ, wantK, wantDelta := dq.copy(), dk.copy(), delta.copy()
	oracle.SparseAttentionBackward(wantQ, wantK, do.v, o.v, lse.v, in.q.v, in.k.v, in.Shape, in.sparse.Values)
	computing := 8 * summing(in.Dim+in.shape.MaxQ)
	dq.expect(wantQ, computing, 3)
	dk.expect(wantK, computing, 3)
	dq.least, dk.least = 1, 1
	for i := range wantDelta {
		wantDelta[i] = 0
		for j := range in.sparse.Values {
			at := (i%in.TQ*in.Heads+i/in.TQ)*in.sparse.Values + j
			wantDelta[i] += o.v[at] * do.v[at]
		}
	}
	delta.expect(wantDelta, summing(in.Dim), 0)
	enqueue(r, op.SparseAttentionBackward{SparseShape: in.sparse, DQ: dq.t, DK: dk.t, DO: do.t, O: o.t, LSE: lse.t, Q: in.q.t, K: in.k.t,
		QStride: in.QStride, KStride: in.KStride, DQStride: in.DQStride, DKStride: in.DKStride, Delta: delta.t, Sums: sums.t})
}
