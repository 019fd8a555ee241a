package layers

import (
	"mt/device"
	"mt/device/op"
	"mt/model"
)

// A MoE layer is y = x + Σ_k w_k·expert_k(norm(x)) over the K experts that the router chooses for a token. With
// Config.WeightedInputs it is x + Σ_k expert_k(w_k·norm(x)). A shared expert counts in K and E, as an expert that
// every token chooses last. The layer is visited in parts, whose results meet in a MoEState. Every micro-batch visits
// part 0 (norm and router), and MoESort follows. Each expert then takes the tokens of all micro-batches, and every
// micro-batch visits part 0 again. Source: arXiv:2101.03961; arXiv:2505.09388 (Qwen3).

// MoERoute is the first visit of a micro-batch to part 0 (norm and router), whose weights are w. It writes the
// micro-batch's rows of the state st: N, Logits, IDs and Weights, and Sum = x, or 0 if Sum is normed. Unless eval is
// set, it adds the router's probabilities to ProbSum.
//
//	x (T, h) act; at: index of the micro-batch's first token in the state
func (t *Templates) MoERoute(s device.Stream, w Weights, x Hidden, at int, mb MicroBatch, st MoEState, ws device.Mem, eval bool) {
	l := t.newMoE(s, w, at, mb, st)
	l.moeBuffers = t.spec.routeBuffers(mb.Tokens, false, &allotter{mem: ws})
	in := l.hidden(x, l.x)
	for c := range l.chunks() {
		fetch(s, c, in)
		r := l.route(in, c, !eval)
		if t.spec.Config.NormsExperts() { // Combine adds x
			s.Zero(r.sum.Mem())
			continue
		}
		op.Do(t.dev, s, op.Convert{Dst: r.sum, Src: in.of(c), N: r.sum.Len})
	}
}

// MoESort sorts the pairs of token and choice by expert, for the first tokens of the state; tokens is their number. It
// writes Order, Rows and Offsets. With count it adds each expert's number of pairs to Counts.
func (t *Templates) MoESort(s device.Stream, st MoEState, tokens int, count bool) {
	c := t.spec.Config
	n := int64(tokens * c.AllChosen())
	a := op.SortByExpert{IDs: st.IDs.Slice(0, n), Order: st.Order, Rows: st.Rows, Offsets: st.Offsets,
		N: int(n), K: c.AllChosen(), E: c.AllExperts()}
	if count {
		a.Counts = st.Counts
	}
	op.Do(t.dev, s, a)
}

// ExpertForward adds an expert's output to the state's Sum, for its pairs of token and choice,
// which are Order[from:from+n]. w has the expert's weights.
func (t *Templates) ExpertForward(s device.Stream, w Weights, st MoEState, from, n int, ws device.Mem) {
	l := t.newExpert(s, w, st, from, n, ws, false)
	h, f := t.dims.hidden, l.width
	for c := range l.expertChunks(n) {
		l.gateUp(c)
		l.activate(c)
		l.product(op.MatMul{M: c.n, N: h, K: f, TransB: true, A: l.act.of(c), B: w[model.RoleExpertDown], D: l.out.of(c)})
		a := l.rowsOf(l.out.of(c), c)
		if !t.spec.Config.WeightedInputs {
			a.W, a.Pairs, a.Bias, a.P = st.Weights, l.pairs(c), w[model.RoleExpertDownBias], int(st.Weights.Len)
		}
		op.Do(t.dev, s, a)
	}
}

// Combine is the last visit of a micro-batch in the forward: y = the micro-batch's rows of Sum in st. If Sum is normed,
// Combine also reads w and x, and saved receives the rows of Sum; a zero Mem as saved keeps nothing.
//
//	x, y (T, h) act, not overlapping
func (t *Templates) Combine(s device.Stream, w Weights, y, x Hidden, at int, mb MicroBatch, st MoEState, saved, ws device.Mem) {
	if passengers := t.passengersOf(mb, x.Dev); !passengers.None() {
		s.CopyD2D(t.passengersOf(mb, y.Dev).Mem(), passengers.Mem())
	}
	l := t.newMoE(s, w, at, mb, st)
	l.moeBuffers = t.spec.routeBuffers(mb.Tokens, false, &allotter{mem: ws})
	out := l.hidden(y, l.y)
	if t.spec.Config.NormsExperts() {
		l.combineNormed(out, l.hidden(x, l.x), saved)
		return
	}
	for c := range l.pieces(out) {
		to := out.of(c)
		op.Do(t.dev, s, op.Convert{Dst: to, Src: l.of(c).sum, N: to.Len})
		store(s, c, out)
	}
}

// moeLaunch is one launch of a MoE layer. It is part 0 (norm and router) for one micro-batch, or one expert for its
// pairs of token and choice.
type moeLaunch struct {
	*Templates
	moeBuffers
	s  device.Stream
	w  Weights
	g  Grads // backward only
	st MoEState

	at int        // part 0: index of the micro-batch's first token in the state
	mb MicroBatch // part 0

	from  int // expert: its first pair in Order
	width int // expert: the columns of f(gate)·up
}

func (t *Templates) newMoE(s device.Stream, w Weights, at int, mb MicroBatch, st MoEState) *moeLaunch {
	t.spec.fits(mb.Tokens)
	return &moeLaunch{Templates: t, s: s, w: w, at: at, mb: mb, st: st}
}

func (t *Templates) newExpert(s device.Stream, w Weights, st MoEState, from, n int, ws device.Mem, backward bool) *moeLaunch {
	l := &moeLaunch{Templates: t, s: s, w: w, st: st, from: from, width: int(w[model.RoleExpertDown].Len) / t.dims.hidden}
	l.moeBuffers = t.spec.expertBuffers(min(n, t.spec.expertChunk()), l.width, backward, &allotter{mem: ws})
	return l
}

func (l *moeLaunch) chunks() func(func(span) bool) {
	return spans(l.mb.Tokens, chunkOf(l.spec.ChunkTokens, l.mb.Tokens))
}

// pieces returns the spans in which x is copied: chunks if x is on the host, otherwise the whole micro-batch at once.
func (l *moeLaunch) pieces(x rows) func(func(span) bool) {
	if x.host == nil {
		return spans(l.mb.Tokens, l.mb.Tokens)
	}
	return l.chunks()
}

func (l *moeLaunch) expertChunks(n int) func(func(span) bool) {
	return spans(n, l.spec.expertChunk())
}

// of returns the rows of the state for the tokens of chunk c of the micro-batch.
func (l *moeLaunch) of(c span) routing {
	return l.st.of(c, l.at, l.dims, l.spec.routerLogits(), l.spec.Config.AllChosen())
}

// route writes N, Logits, IDs and Weights of the state for the tokens of chunk c, whose hidden states are x. With sum
// it adds the router's probabilities to ProbSum. The router's product is computed in fp32.
func (l *moeLaunch) route(x rows, c span, sum bool) routing {
	cfg, r := l.spec.Config, l.of(c)
	in := r.n
	if cfg.DenseBesideExperts {
		in = l.beside.router.of(c)
		l.norm(l.s, r.n, device.Tensor{}, x.of(c), l.w, model.RoleExpertNorm, c.n)
		l.norm(l.s, in, device.Tensor{}, x.of(c), l.w, model.RoleRouterNorm, c.n)
	} else {
		l.norm(l.s, r.n, device.Tensor{}, x.of(c), l.w, model.RoleMLPNorm, c.n)
	}
	l.linear(l.s, r.logits, l.widened(in, c), l.w[model.RoleRouter], device.Tensor{}, l.w[model.RoleRouterBias], c.n, l.dims.hidden, l.spec.routerLogits())
	l.scaleLogits(r)
	a := op.Router{Logits: r.logits, Bias: l.w[model.RoleChoiceBias], IDs: r.ids, Weights: r.weights, T: c.n, E: cfg.NumExperts,
		K: cfg.NumExpertsPerTok, Normalize: cfg.NormTopKProb, Rule: l.spec.routerRule()}
	if sum {
		a.ProbSum = l.st.ProbSum
	}
	op.Do(l.dev, l.s, a)
	l.scaleWeights(r, c)
	return r
}

// widened returns the router's normed input in for chunk c in fp32: in itself if activations are fp32, otherwise a
// converted copy.
func (l *moeLaunch) widened(in device.Tensor, c span) device.Tensor {
	if l.dims.act == device.F32 {
		return in
	}
	wide := l.wide.of(c)
	op.Do(l.dev, l.s, op.Convert{Dst: wide, Src: in, N: in.Len})
	return wide
}

// routerRule returns the rule by which the model's routers choose and weight experts, as the router
// operations take it.
func (s Spec) routerRule() op.RouterRule {
	c := s.Config
	return op.RouterRule{Sigmoid: c.SigmoidScores, Groups: c.ExpertGroups, OpenGroups: c.OpenGroups, GroupBest: c.GroupBest,
		Near: float32(c.SparseMixer), Scale: float32(c.RoutedScale), Shared: c.SharedSize > 0, Gated: c.SharedGate}
}

// routerLogits returns the number of router logits per token.
func (s Spec) routerLogits() int { return s.routerRule().Logits(s.Config.NumExperts) }

// pairs returns the numbers of the pairs in chunk c of the expert's list; the next function,
// tokens, returns the token of each. Pair number p is choice p mod K of token p / K.
func (l *moeLaunch) pairs(c span) device.Tensor {
	return l.st.Order.Slice(int64(l.from+c.at), int64(c.n))
}

func (l *moeLaunch) tokens(c span) device.Tensor {
	return l.st.Rows.Slice(int64(l.from+c.at), int64(c.n))
}

// product enqueues a matrix product whose number of rows depends on the routing. Ragged tells the
// device so.
func (l *moeLaunch) product(m op.MatMul) {
	m.Ragged = true
	op.Do(l.dev, l.s, m)
}

// gateUp gathers the normed inputs of the pairs in chunk c and writes their gate and up projections to l.gu. With
// Config.WeightedInputs it multiplies each input by its pair's weight first.
func (l *moeLaunch) gateUp(c span) {
	h := l.dims.hidden
	l.inputs(l.in, c)
	if l.spec.Config.WeightedInputs {
		op.Do(l.dev, l.s, op.ScaleRows{X: l.in.of(c), W: l.st.Weights, Index: l.pairs(c), T: c.n, C: h, P: int(l.st.Weights.Len)})
	}
	l.product(op.MatMul{M: c.n, N: l.spec.upWidth(l.width), K: h, TransB: true, A: l.in.of(c), B: l.w[model.RoleExpertGateUp], D: l.gu.of(c),
		Bias: l.w[model.RoleExpertGateUpBias]})
}

// activate writes l.act, the expert's activation, for the pairs of chunk c from l.gu, their gate and up projections.
func (l *moeLaunch) activate(c span) {
	if f, _ := l.activation(); l.spec.Config.Ungated {
		op.Do(l.dev, l.s, op.Activate{Activation: f, Y: l.act.of(c), X: l.gu.of(c), T: c.n, F: l.width})
		return
	}
	l.glu(l.s, l.act.of(c), l.gu.of(c), c.n, l.width)
}

// activateBackward overwrites l.gu, the gate and up projections of chunk c, with their gradient. l.dact holds the
// gradient of the activation.
func (l *moeLaunch) activateBackward(c span) {
	if f, _ := l.activation(); l.spec.Config.Ungated {
		op.Do(l.dev, l.s, op.ActivateBackward{Activation: f, DX: l.gu.of(c), DY: l.dact.of(c), X: l.gu.of(c), T: c.n, F: l.width})
		return
	}
	l.gluBackward(l.s, l.gu.of(c), device.Tensor{}, l.dact.of(c), c.n, l.width)
}

// inputs gathers the normed inputs of the tokens of chunk c's pairs from the state, and writes them
// to the rows `to`.
func (l *moeLaunch) inputs(to rows, c span) {
	op.Do(l.dev, l.s, op.GatherRows{Dst: to.of(c), Src: l.st.N, Index: l.tokens(c), T: c.n, C: l.dims.hidden})
}

// rowsOf returns the operation that adds src, one row for each pair of chunk c, to the rows of the pairs' tokens in
// Sum. A token chooses an expert at most once, so no two rows are added to the same row.
func (l *moeLaunch) rowsOf(src device.Tensor, c span) op.AddRows {
	h := l.dims.hidden
	return op.AddRows{Dst: l.st.Sum, Src: src, Index: l.tokens(c), U: int(l.st.Sum.Len) / h, T: c.n, C: h}
}
