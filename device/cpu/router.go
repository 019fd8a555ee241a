package cpu

import (
	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, router)
	op.Add(&table, routerBackward)
}

// router writes IDs and Weights token by token. It adds up the probabilities in
// fixed blocks of tokens, and then the blocks in order.
func router(s *stream, a *op.Router) error {
	reads(a.Logits, 1, 0, a.T*a.E)
	writes(a.IDs, 1, 0, a.T*a.K)
	writes(a.Weights, 1, 0, a.T*a.K)
	writes(a.ProbSum, 1, 0, a.E)
	s.sumRows(a.ProbSum, a.E, a.T, func(sc *scratch, sum []float32, from, to int) {
		for t := from; t < to; t++ {
			vec.Add(sum, route(a, sc, t))
		}
	})
	return nil
}

// route chooses the experts of token t and returns all its probabilities.
func route(a *op.Router, sc *scratch, t int) []float32 {
	logits, p := f32s(a.Logits, a.T*a.E)[t*a.E:(t+1)*a.E], sc.f32(0, a.E)
	ids, weights := i32s(a.IDs, a.T*a.K)[t*a.K:(t+1)*a.K], f32s(a.Weights, a.T*a.K)[t*a.K:(t+1)*a.K]
	sum := vec.ExpSum(p, logits, 1, vec.Max(logits))
	choose(ids, logits)
	all := sum
	if a.Normalize {
		all = 0
		for _, e := range ids {
			all += p[e]
		}
	}
	for k, e := range ids {
		weights[k] = p[e] / all
	}
	vec.Scale(p, p, 1/sum)
	return p
}

// choose fills ids with the places of the largest logits, the largest first, and of
// equal ones the first one first. No comparison with a NaN holds, so a logit never
// passes a NaN that stands before it. ids always differ.
func choose(ids []int32, logits []float32) {
	n := 0
	for e, x := range logits {
		at := n
		for at > 0 && x > logits[ids[at-1]] {
			at--
		}
		if at == len(ids) {
			continue
		}
		n = min(n+1, len(ids))
		copy(ids[at+1:n], ids[at:])
		ids[at] = int32(e)
	}
}

// routerBackward writes DLogits token by token. With p the softmax over all experts
// and g the gradient of p, the gradient of the logits is p·(g − Σ p·g). Where the
// weights w of the chosen experts are normalised, w is the softmax over those
// experts alone, and the same formula holds for w and its gradient.
func routerBackward(s *stream, a *op.RouterBackward) error {
	reads(a.Logits, 1, 0, a.T*a.E)
	reads(a.IDs, 1, 0, a.T*a.K)
	reads(a.DWeights, 1, 0, a.T*a.K)
	reads(a.Counts, 1, 0, a.E)
	writes(a.DLogits, 1, 0, a.T*a.E)
	if err := within("IDs", i32s(a.IDs, a.T*a.K), a.E); err != nil {
		return err
	}
	s.partial = grown(s.partial, a.E)
	aux := s.partial[:a.E]
	clear(aux)
	if !a.Counts.None() {
		for e, n := range i32s(a.Counts, a.E) {
			aux[e] = a.AuxScale * float32(n)
		}
	}
	s.forRows(a.T, 4*a.E, func(sc *scratch, from, to int) {
		for t := from; t < to; t++ {
			routeBack(a, sc, aux, t)
		}
	})
	return nil
}

// routeBack writes the gradient of token t's logits. aux is the gradient that every
// probability has in addition.
func routeBack(a *op.RouterBackward, sc *scratch, aux []float32, t int) {
	logits, out := f32s(a.Logits, a.T*a.E)[t*a.E:(t+1)*a.E], f32s(a.DLogits, a.T*a.E)[t*a.E:(t+1)*a.E]
	ids, dw := i32s(a.IDs, a.T*a.K)[t*a.K:(t+1)*a.K], f32s(a.DWeights, a.T*a.K)[t*a.K:(t+1)*a.K]
	p, g := sc.f32(0, a.E), sc.f32(1, a.E)
	sum := vec.ExpSum(p, logits, 1, vec.Max(logits))
	var chosen, mean float32 // sums over the chosen experts: Σ exp, Σ w·dw
	for k, e := range ids {
		chosen += p[e]
		mean += p[e] * dw[k]
	}
	mean /= chosen
	own := sc.f32(2, a.K) // the gradients that come through normalised weights
	for k, e := range ids {
		own[k] = p[e] / chosen * (dw[k] - mean)
	}
	vec.Scale(p, p, 1/sum)
	copy(g, aux)
	if !a.Normalize {
		for k, e := range ids {
			g[e] += dw[k]
		}
	}
	dot := vec.Dot(p, g)
	for e, x := range p {
		out[e] = x * (g[e] - dot)
	}
	if a.Normalize {
		for k, e := range ids {
			out[e] += own[k]
		}
	}
}
