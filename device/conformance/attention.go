package conformance

import (
	"fmt"
	"math"

	"mt/device"
	"mt/device/conformance/oracle"
	"mt/device/op"
)

func init() {
	row("Attention", attentionCases)
	row("AttentionBackward", attentionBackwardCases)
}

// attentionShape is the shape of a test case: the lengths of the sequences' queries and, if they
// differ, of their keys, and the sizes of heads.
type attentionShape struct {
	queries, keys       []int
	heads, kvHeads      int
	dim, window, beyond int // beyond: how much longer than a dense row the strides are
	softcap             float64
}

var attentionShapes = []attentionShape{
	{queries: []int{1}, heads: 1, kvHeads: 1, dim: 1},
	{queries: []int{2, 1, 3}, heads: 2, kvHeads: 1, dim: 5, beyond: 3},
	{queries: []int{15, 0, 33}, heads: 4, kvHeads: 2, dim: 16, beyond: 64},
	{queries: []int{64}, heads: 3, kvHeads: 3, dim: 32},
	{queries: []int{57, 70, 129}, heads: 4, kvHeads: 2, dim: 32, beyond: 7},
	{queries: []int{260}, heads: 2, kvHeads: 1, dim: 64},
	{queries: []int{530, 3}, heads: 2, kvHeads: 2, dim: 20},
	{queries: []int{40, 90}, heads: 2, kvHeads: 1, dim: 128},
	{queries: []int{30}, heads: 5, kvHeads: 1, dim: 256},
	{queries: []int{300, 20}, heads: 2, kvHeads: 1, dim: 16, window: 1},
	{queries: []int{300, 20}, heads: 2, kvHeads: 1, dim: 16, window: 37},
	{queries: []int{600}, heads: 2, kvHeads: 1, dim: 8, window: 260},
	{queries: []int{1}, keys: []int{300}, heads: 4, kvHeads: 2, dim: 32},
	{queries: []int{1, 5, 0}, keys: []int{1, 290, 4}, heads: 4, kvHeads: 2, dim: 16, beyond: 1},
	{queries: []int{20}, keys: []int{600}, heads: 2, kvHeads: 2, dim: 8, window: 30},
	{queries: []int{33, 5}, heads: 2, kvHeads: 1, dim: 64, window: 1000},
	{queries: []int{70, 3}, heads: 2, kvHeads: 1, dim: 128, window: 20},
	{queries: []int{1}, heads: 1, kvHeads: 1, dim: 1, softcap: 2},
	{queries: []int{57, 0, 129}, heads: 4, kvHeads: 2, dim: 32, beyond: 7, softcap: 1.5},
	{queries: []int{300, 20}, heads: 2, kvHeads: 1, dim: 16, window: 37, softcap: 2},
	{queries: []int{40, 90}, heads: 2, kvHeads: 1, dim: 128, softcap: 50},
	{queries: []int{30}, heads: 3, kvHeads: 1, dim: 256, window: 7, softcap: 1},
	{queries: []int{530, 3}, heads: 1, kvHeads: 1, dim: 96, softcap: 3},
	{queries: []int{1, 5, 0}, keys: []int{1, 290, 4}, heads: 4, kvHeads: 2, dim: 64, beyond: 1, softcap: 1.5},
	{queries: []int{37, 1}, heads: 2, kvHeads: 1, dim: 512, beyond: 8},
	{queries: []int{40, 3}, heads: 1, kvHeads: 1, dim: 512, window: 24, softcap: 1.5},
	{queries: []int{18, 3}, heads: 2, kvHeads: 2, dim: 320, beyond: 1},
}

func attentionCases(add func(string, func(*rig))) {
	for _, sh := range attentionShapes {
		add(sh.String(), func(r *rig) { attention(r, sh, true) })
		add("no lse "+sh.String(), func(r *rig) { attention(r, sh, false) })
	}
}

func attentionBackwardCases(add func(string, func(*rig))) {
	for _, sh := range attentionShapes {
		add(sh.String(), func(r *rig) { attentionBackward(r, sh, false) })
		add("sums "+sh.String(), func(r *rig) { attentionBackward(r, sh, true) })
	}
}

func (sh attentionShape) String() string {
	name := fmt.Sprintf("%v,%v,heads %d of %d,dim %d,window %d", sh.queries, sh.keys, sh.kvHeads, sh.heads, sh.dim, sh.window)
	if sh.softcap > 0 {
		name += fmt.Sprintf(",softcap %v", sh.softcap)
	}
	return name
}

// cumulative returns the bounds of sequences, given their lengths: element i is where sequence i begins.
func cumulative(lengths []int) []int32 {
	cu := []int32{0}
	for i, n := range lengths {
		cu = append(cu, cu[i]+int32(n))
	}
	return cu
}

func longest(lengths []int) int {
	m := 0
	for _, n := range lengths {
		m = max(m, n)
	}
	return m
}

// attentionInput holds what a case of attention reads, for the forward and for the backward.
type attentionInput struct {
	oracle.Shape
	shape   op.AttentionShape
	q, k, v *array
}

func newAttention(r *rig, sh attentionShape) *attentionInput {
	keys := sh.keys
	if keys == nil {
		keys = sh.queries
	}
	in := &attentionInput{}
	s := &in.Shape
	*s = oracle.Shape{CuQ: cumulative(sh.queries), CuK: cumulative(keys), Heads: sh.heads, KVHeads: sh.kvHeads, Dim: sh.dim,
		Scale: 1 / math.Sqrt(float64(sh.dim)), Window: sh.window, Softcap: sh.softcap}
	s.TQ = int(s.CuQ[len(s.CuQ)-1])
	tk := int(s.CuK[len(s.CuK)-1])
	s.Scale = float64(float32(s.Scale))
	s.QStride, s.KStride = sh.heads*sh.dim+sh.beyond, sh.kvHeads*sh.dim+2*sh.beyond
	s.DQStride, s.DKStride = sh.heads*sh.dim+3*sh.beyond, sh.kvHeads*sh.dim+sh.beyond
	in.q, in.k, in.v = r.act("Q", s.TQ*s.QStride), r.act("K", tk*s.KStride), r.act("V", tk*s.KStride)
	cuQ := r.i32("CuQ", s.CuQ)
	cuK := cuQ
	if sh.keys != nil {
		cuK = r.i32("CuK", s.CuK)
	}
	in.shape = op.AttentionShape{CuQ: cuQ.t, CuK: cuK.t, Seqs: len(sh.queries), TQ: s.TQ, TK: tk, MaxQ: longest(sh.queries),
		MaxK: longest(keys), Heads: sh.heads, KVHeads: sh.kvHeads, Dim: sh.dim, Scale: float32(s.Scale), Window: sh.window, Softcap: float32(sh.softcap)}
	return in
}

// attended is what the oracle, the float64 reference, computes in a forward: the output o and the log-sum-exp lse.
type attended struct{ o, lse []float64 }

// exact returns the forward of a shape as the oracle (the float64 reference) computes it. It computes each shape once,
// because all cases of a shape have equal inputs. Every query must attend to a key.
func (in *attentionInput) exact(r *rig, sh attentionShape) attended {
	return once(fmt.Sprintf("Attention %v %#v", r.dt, sh), func() attended {
		n := in.TQ * in.Heads
		e := attended{make([]float64, n*in.Dim), make([]float64, n)}
		oracle.Attention(e.o, e.lse, in.q.v, in.k.v, in.v.v, in.Shape)
		return e
	})
}

// attention checks the forward. A score is a sum of Dim products. A score's absolute error is the
// relative error of its exponential, and the output is a mean of values weighted by these
// exponentials. So summing(Dim) times a small factor bounds the error.
func attention(r *rig, sh attentionShape, withLSE bool) {
	in := newAttention(r, sh)
	n := in.TQ * in.Heads
	o, lse := r.act("O", n*in.Dim), r.f32("LSE", n)
	exact := in.exact(r, sh)
	o.expect(exact.o, 4*summing(in.Dim), 2) // a device may round the exponentials too
	a := op.Attention{AttentionShape: in.shape, O: o.t, Q: in.q.t, K: in.k.t, V: in.v.t, QStride: in.QStride, KStride: in.KStride}
	if withLSE {
		a.LSE = lse.t
		lse.expect(exact.lse, 4*summing(in.Dim), 0)
	}
	enqueue(r, a)
}

// attentionBackward checks the backward. The gradient of a score is p·(dP − delta), where p is the
// attention probability, dP its gradient and delta = Σ DO·O. dP and delta nearly cancel. Allowed
// errors are therefore relative to dP and delta, whose size is that of a gradient or a few times as
// much. If they cancel completely, as with a window of 1, errors are relative to the inputs, whose
// size is 1.
func attentionBackward(r *rig, sh attentionShape, withSums bool) {
	in := newAttention(r, sh)
	n, tk := in.TQ*in.Heads, in.shape.TK
	exact := in.exact(r, sh)
	o, lse := r.values("O", r.dt, exact.o), r.values("LSE", device.F32, exact.lse)
	do, delta := r.act("DO", n*in.Dim), r.f32("Delta", n)
	dq, dk, dv := r.act("DQ", in.TQ*in.DQStride), r.act("DK", tk*in.DKStride), r.act("DV", tk*in.DKStride)
	want := once(fmt.Sprintf("AttentionBackward %v %#v", r.dt, sh), func() [3][]float64 {
		dq, dk, dv := dq.copy(), dk.copy(), dv.copy()
		oracle.AttentionBackward(dq, dk, dv, do.v, o.v, lse.v, in.q.v, in.k.v, in.v.v, in.Shape)
		return [3][]float64{dq, dk, dv}
	})
	computing := 8 * summing(in.Dim+longest(sh.queries))
	dq.expect(want[0], computing, 3) // a device may round P and dS before it multiplies them
	dk.expect(want[1], computing, 3)
	dv.expect(want[2], computing, 3)
	dq.least, dk.least = 1, 1
	delta.expect(in.deltas(o.v, do.v), summing(in.Dim), 0)
	var sums device.Tensor
	if n := in.shape.SumsLen(); withSums && n > 0 {
		a := r.f32("Sums", n)
		a.any, sums = true, a.t
	}
	enqueue(r, op.AttentionBackward{AttentionShape: in.shape, DQ: dq.t, DK: dk.t, DV: dv.t, DO: do.t, O: o.t,
		LSE: lse.t, Q: in.q.t, K: in.k.t, V: in.v.t, QStride: in.QStride, KStride: in.KStride, DQStride: in.DQStride,
		DKStride: in.DKStride, Delta: delta.t, Sums: sums})
}

// deltas returns Σ do·o for each head and query.
func (in *attentionInput) deltas(o, do []float64) []float64 {
	out := make([]float64, in.TQ*in.Heads)
	for row := range in.TQ {
		for h := range in.Heads {
			at := (row*in.Heads + h) * in.Dim
			for i := range in.Dim {
				out[h*in.TQ+row] += o[at+i] * do[at+i]
			}
		}
	}
	return out
}
