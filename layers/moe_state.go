package layers

import "mt/device"

// MoEState is the device memory of the current MoE layer for all tokens of a step. The micro-batches lie one after
// another; the argument at of the operations is the first token of a micro-batch. T is the number of tokens; E counts
// the experts and K the experts of a token, both with the shared one. L is the number of router logits per token, R the
// number of routed experts. The content lasts for the visits to one layer; only Counts and ProbSum last longer.
type MoEState struct {
	N   device.Tensor // (T, h) act: the normed input
	Sum device.Tensor // (T, h) f32: the sum of the output; in the backward of the gradient of N
	DY  device.Tensor // (T, h) act: the gradient of the output; backward only

	Logits            device.Tensor // (T, L) f32: of the router; in the backward finally their gradient
	IDs               device.Tensor // (T, K) i32: the experts of each token
	Weights, DWeights device.Tensor // (T, K) f32: the weights of these experts, and in the backward their gradients
	Plain             device.Tensor // (T, 2·K) f32: weights before the experts' factors, then gradients; with such factors and a backward
	Order, Rows       device.Tensor // (T·K) i32: pairs (token, choice) sorted by expert, and the pairs' tokens
	Offsets           device.Tensor // (E+1) i32: where each expert's pairs begin in Order

	// Counts (E) i32 is each expert's number of pairs, and ProbSum (R) f32 the sum of its scores, over all MoE layers
	// since they were zeroed.
	Counts, ProbSum device.Tensor
}

// MoEBytes returns the device memory of the state for the given tokens in all micro-batches; 0 for a model without
// experts. The computation needs no device.
func (s Spec) MoEBytes(tokens int, backward bool) int64 {
	if s.Config.NumExperts == 0 {
		return 0
	}
	a := allotter{dry: true}
	s.moeState(tokens, backward, &a)
	return a.used
}

// BindMoE returns the MoE state with its tensors in mem, which has Spec.MoEBytes(tokens, backward) bytes.
func (t *Templates) BindMoE(mem device.Mem, tokens int, backward bool) MoEState {
	return t.spec.moeState(tokens, backward, &allotter{mem: mem})
}

// moeState takes the tensors of a MoE state from mem. Counts and ProbSum come first, so their places do not depend on
// the number of tokens.
func (s Spec) moeState(tokens int, backward bool, mem *allotter) MoEState {
	h, experts, chosen := s.Config.HiddenSize, s.Config.AllExperts(), s.Config.AllChosen()
	st := MoEState{Counts: mem.take(device.I32, experts), ProbSum: mem.take(device.F32, s.Config.NumExperts),
		Offsets: mem.take(device.I32, experts+1), N: mem.take(s.Act, tokens*h), Sum: mem.take(device.F32, tokens*h),
		Logits: mem.take(device.F32, tokens*s.routerLogits()), IDs: mem.take(device.I32, tokens*chosen),
		Weights: mem.take(device.F32, tokens*chosen), Order: mem.take(device.I32, tokens*chosen),
		Rows: mem.take(device.I32, tokens*chosen)}
	if backward {
		st.DY, st.DWeights = mem.take(s.Act, tokens*h), mem.take(device.F32, tokens*chosen)
		if s.Config.DenseBesideExperts {
			st.Plain = mem.take(device.F32, tokens*2*chosen)
		}
	}
	return st
}

// routing has, of each tensor of a MoEState, the rows for the tokens of one chunk.
type routing struct{ n, sum, dy, logits, ids, weights, dweights, plain device.Tensor }

// of returns the state's rows of the tokens in c, a chunk of the micro-batch whose first token is token at of the
// state. scored is the number of router logits of a token. chosen is the number of its experts.
func (st *MoEState) of(c span, at int, d dims, scored, chosen int) routing {
	rows := func(t device.Tensor, width int) device.Tensor {
		if t.None() {
			return t
		}
		return t.Slice(int64(at+c.at)*int64(width), int64(c.n)*int64(width))
	}
	return routing{n: rows(st.N, d.hidden), sum: rows(st.Sum, d.hidden), dy: rows(st.DY, d.hidden), logits: rows(st.Logits, scored),
		ids: rows(st.IDs, chosen), weights: rows(st.Weights, chosen), dweights: rows(st.DWeights, chosen), plain: rows(st.Plain, 2*chosen)}
}

// moeBuffers are the workspace of a launch of a MoE layer, each with the rows of a chunk.
//
// Part 0 (norm and router), for C tokens:
//
//	wide (C, h) f32: the router's normed input; none if act is fp32
//	x, y (C, h) act: a chunk of the input, and of the output or its gradient, if hidden states are
//	  on the host
//	n (C, h) act, rstd (C) f32, (C, 2) for a LayerNorm: backward: the norm again, then
//	  the gradient of its result
//	sum (C, h) act, rstdOut (C) f32: if the experts' sum is normed: this sum, unless it is kept, and
//	  the statistics of an output's norm
//
// An expert, for C pairs of token and choice:
//
//	in (C, h) act: the tokens' normed inputs; in the backward later their gradient
//	out (C, h) act: the expert's output; backward: its gradient
//	gu (C, 2·F) act: gate and up, then their gradient; without a gate (C, F)
//	act, dact (C, F) act: f(gate)·up, weighted, and its gradient; F is the expert's width
type moeBuffers struct {
	wide, x, y, n, rstd    rows
	sum, rstdOut           rows
	in, out, gu, act, dact rows
	beside                 besideBuffers // part 0 beside a dense MLP, moe_dense.go
}

func (s Spec) routeBuffers(tokens int, backward bool, ws *allotter) moeBuffers {
	var b moeBuffers
	h, chunk := s.Config.HiddenSize, chunkOf(s.ChunkTokens, tokens)
	if s.Act != device.F32 {
		b.wide = ws.chunkRows(device.F32, chunk, h)
	}
	if s.OnHost {
		b.x, b.y = ws.chunkRows(s.Act, chunk, h), ws.chunkRows(s.Act, chunk, h)
	}
	if backward {
		b.n, b.rstd = ws.chunkRows(s.Act, chunk, h), ws.chunkRows(device.F32, chunk, newDims(s).stats)
	}
	if s.Config.NormsExperts() {
		b.sum, b.rstdOut = ws.chunkRows(s.Act, chunk, h), ws.chunkRows(device.F32, chunk, 1)
	}
	if s.Config.DenseBesideExperts {
		b.beside = s.besideBuffers(tokens, ws)
	}
	return b
}

// upWidth returns the columns of gate and up of an MLP of width f, or of up alone without a gate.
func (s Spec) upWidth(f int) int {
	if s.Config.Ungated {
		return f
	}
	return 2 * f
}

func (s Spec) expertBuffers(pairs, f int, backward bool, ws *allotter) moeBuffers {
	h := s.Config.HiddenSize
	b := moeBuffers{in: ws.chunkRows(s.Act, pairs, h), out: ws.chunkRows(s.Act, pairs, h), gu: ws.chunkRows(s.Act, pairs, s.upWidth(f)),
		act: ws.chunkRows(s.Act, pairs, f)}
	if backward {
		b.dact = ws.chunkRows(s.Act, pairs, f)
	}
	return b
}

// expertChunk returns how many pairs of token and choice an expert processes at once: ChunkTokens or, if that is 0,
// MaxTokens.
func (s Spec) expertChunk() int {
	if s.ChunkTokens > 0 {
		return s.ChunkTokens
	}
	return s.MaxTokens
}

// moeWorkspaceBytes returns the workspace in bytes that suffices for any launch of a MoE layer: the larger need of part
// 0 (norm and router) and of the widest expert.
func (s Spec) moeWorkspaceBytes(backward bool) int64 {
	if s.Config.NumExperts == 0 {
		return 0
	}
	route, expert := allotter{dry: true}, allotter{dry: true}
	s.routeBuffers(s.MaxTokens, backward, &route)
	s.expertBuffers(s.expertChunk(), max(s.Config.MoEIntermediateSize, s.Config.SharedSize), backward, &expert)
	return max(route.used, expert.used)
}
