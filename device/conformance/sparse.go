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

// sparseShapes are the cases of sparse attention. A query chooses among its last `recent` keys; 0: among all.
var sparseShapes = []struct {
	attentionShape
	topK, recent int
}{
	{attentionShape{queries: []int{1}, heads: 1, kvHeads: 1, dim: 1}, 2, 0},
	{attentionShape{queries: []int{15, 0, 33}, heads: 4, kvHeads: 2, dim: 16, beyond: 64}, 7, 0},
	{attentionShape{queries: []int{57, 129}, heads: 2, kvHeads: 2, dim: 40, beyond: 7}, 30, 0},
	{attentionShape{queries: []int{90}, heads: 2, kvHeads: 2, dim: 96}, 200, 0},
	{attentionShape{queries: []int{1, 5}, keys: []int{300, 9}, heads: 2, kvHeads: 1, dim: 32}, 20, 0},
	{attentionShape{queries: []int{301, 2}, heads: 2, kvHeads: 1, dim: 128, beyond: 8}, 5, 12},
	{attentionShape{queries: []int{200}, heads: 1, kvHeads: 1, dim: 192}, 6, 9},
}

func sparseCases(add func(string, func(*rig)), run func(*rig, *attentionInput, *array, int)) {
	for _, sh := range sparseShapes {
		add(fmt.Sprintf("%v,top %d of %d", sh.attentionShape, sh.topK, sh.recent), func(r *rig) {
			in := newAttention(r, sh.attentionShape)
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
			run(r, in, r.i32("Keys", in.Keys), sh.topK)
		})
	}
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

func sparseAttention(r *rig, in *attentionInput, keys *array, topK int) {
	n := in.TQ * in.Heads
	want := attended{make([]float64, n*in.Dim), make([]float64, n)}
	oracle.Attention(want.o, want.lse, in.q.v, in.k.v, in.v.v, in.Shape)
	o, lse := r.act("O", n*in.Dim), r.f32("LSE", n)
	o.expect(want.o, 4*summing(in.Dim), 2)
	lse.expect(want.lse, 4*summing(in.Dim), 0)
	enqueue(r, op.SparseAttention{Keys: keys.t, TopK: topK, Attention: op.Attention{AttentionShape: in.shape, O: o.t, LSE: lse.t,
		Q: in.q.t, K: in.k.t, V: in.v.t, QStride: in.QStride, KStride: in.KStride}})
}

// sparseAttentionBackward has the bounds of attentionBackward, for the same reasons.
func sparseAttentionBackward(r *rig, in *attentionInput, keys *array, topK int) {
	n, tk := in.TQ*in.Heads, in.shape.TK
	exact := attended{make([]float64, n*in.Dim), make([]float64, n)}
	oracle.Attention(exact.o, exact.lse, in.q.v, in.k.v, in.v.v, in.Shape)
	o, lse := r.values("O", r.dt, exact.o), r.values("LSE", device.F32, exact.lse)
	do, delta := r.act("DO", n*in.Dim), r.f32("Delta", n)
	dq, dk, dv := r.act("DQ", in.TQ*in.DQStride), r.act("DK", tk*in.DKStride), r.act("DV", tk*in.DKStride)
	wantQ, wantK, wantV := dq.copy(), dk.copy(), dv.copy()
	oracle.AttentionBackward(wantQ, wantK, wantV, do.v, o.v, lse.v, in.q.v, in.k.v, in.v.v, in.Shape)
	computing := 8 * summing(in.Dim+in.shape.MaxQ)
	dq.expect(wantQ, computing, 3)
	dk.expect(wantK, computing, 3)
	dv.expect(wantV, computing, 3)
	dq.least, dk.least = 1, 1
	delta.expect(in.deltas(o.v, do.v), summing(in.Dim), 0)
	enqueue(r, op.SparseAttentionBackward{Keys: keys.t, TopK: topK, AttentionBackward: op.AttentionBackward{AttentionShape: in.shape,
		DQ: dq.t, DK: dk.t, DV: dv.t, DO: do.t, O: o.t, LSE: lse.t, Q: in.q.t, K: in.k.t, V: in.v.t, QStride: in.QStride, KStride: in.KStride,
		DQStride: in.DQStride, DKStride: in.DKStride, Delta: delta.t}})
}
