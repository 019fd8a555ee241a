package cpu

import (
	"cmp"
	"math"
	"slices"

	"mt/device/cpu/vec"
	"mt/device/op"
)

func init() {
	op.Add(&table, router)
	op.Add(&table, routerBackward)
}

// router writes IDs and Weights token by token. For ProbSum it sums the scores of fixed blocks of
// tokens and then adds the blocks' sums in order, so any number of threads gives the same bits.
func router(s *stream, a *op.Router) error {
	reads(a.Logits, 1, 0, a.T*a.Rule.Logits(a.E))
	reads(a.Bias, 1, 0, a.E)
	writes(a.IDs, 1, 0, a.T*a.Rule.Chosen(a.K))
	writes(a.Weights, 1, 0, a.T*a.Rule.Chosen(a.K))
	writes(a.ProbSum, 1, 0, a.E)
	s.sumRows(a.ProbSum, a.E, a.T, func(sc *scratch, sum []float32, from, to int) {
		for t := from; t < to; t++ {
			vec.Add(sum, route(a, sc, t))
		}
	})
	return nil
}

// route chooses the experts of token t, writes their IDs and weights, and returns the scores of all experts.
func route(a *op.Router, sc *scratch, t int) []float32 {
	n, k := a.Rule.Logits(a.E), a.Rule.Chosen(a.K)
	row, p := f32s(a.Logits, a.T*n)[t*n:(t+1)*n], sc.f32(0, a.E)
	ids, weights := i32s(a.IDs, a.T*k)[t*k:(t+1)*k], f32s(a.Weights, a.T*k)[t*k:(t+1)*k]
	logits := row[:a.E]
	sum := scores(a.Rule, p, logits)
	if a.Rule.Shared {
		ids[a.K], weights[a.K] = int32(a.E), 1
		if a.Rule.Gated {
			weights[a.K] = sigmoid(row[a.E])
		}
		ids, weights = ids[:a.K], weights[:a.K]
	}
	by := keys(a, sc, logits, p, sum)
	worth := by
	if a.Rule.GroupBest > 1 && !a.Rule.Sigmoid && a.Bias.None() { // exp keeps the order of logits, but not of their sums
		worth = p
	}
	chooseOpen(ids, by, worth, a.Rule)
	all := sum
	if a.Normalize {
		all = least(a.Rule)
		for _, e := range ids {
			all += p[e]
		}
	}
	for k, e := range ids {
		weights[k] = p[e] / all * routedScale(a.Rule)
	}
	if a.Rule.Near > 0 {
		for k := range ids {
			weights[k] = routedScale(a.Rule) / near(sc.f32(1, a.E), logits, ids, k, a.Rule.Near)
		}
	}
	vec.Scale(p, p, 1/sum)
	return p
}

// scores writes unnormalized scores of the experts to p, and returns the number by which they must be divided. For a
// softmax p holds exponentials, and the divisor is their sum. Otherwise p holds sigmoids, and the divisor is 1.
func scores(r op.RouterRule, p, logits []float32) float32 {
	if !r.Sigmoid {
		return vec.ExpSum(p, logits, 1, vec.Max(logits))
	}
	vec.ExpSum(p, logits, -1, 0)
	for e, x := range p {
		p[e] = 1 / (1 + x)
	}
	return 1
}

// near serves op.RouterRule.Near, by which the k-th chosen expert gets its weight from a softmax
// over experts with similar logits. It writes the softmax terms to out and returns the terms' sum.
// The chosen expert has the term 1. Experts whose logit is more than 2·by below its own, relative
// to the larger magnitude, have the term 0, as have experts chosen earlier.
func near(out, logits []float32, ids []int32, k int, by float32) (sum float32) {
	top := logits[ids[k]]
	vec.ExpSum(out, logits, 1, top)
	for e, s := range logits {
		if (top-s)/max(abs(s), top) > 2*by {
			out[e] = 0
		}
	}
	for _, e := range ids[:k] {
		out[e] = 0
	}
	for _, x := range out {
		sum += x
	}
	return sum
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// sigmoid returns the sigmoid of x. It calls the same kernel as scores, so both give the same bits.
func sigmoid(x float32) float32 {
	p := [1]float32{x}
	vec.ExpSum(p[:], p[:], -1, 0)
	return 1 / (1 + p[0])
}

// routedScale returns the factor on the weights of chosen experts, which the rule has as Scale (0:
// 1).
func routedScale(r op.RouterRule) float32 { return cmp.Or(r.Scale, 1) }

// least returns what is added to the sum of the chosen scores before scores are divided by it. For
// sigmoids, which may all round to 0, it is 1e-20, as in Transformers. For a softmax it is 0: the
// largest exponential is 1, and the best group has at least half of it.
func least(r op.RouterRule) float32 {
	if r.Sigmoid {
		return 1e-20
	}
	return 0
}

// keys returns the keys of a token's experts: the experts with the largest keys are chosen. Keys
// are the logits, unless sigmoids, a bias or groups make scores necessary.
func keys(a *op.Router, sc *scratch, logits, p []float32, sum float32) []float32 {
	if !a.Rule.Sigmoid && a.Bias.None() && a.Rule.Groups == 0 {
		return logits
	}
	out := sc.f32(1, a.E)
	switch {
	case !a.Rule.Sigmoid && a.Bias.None():
		copy(out, logits)
	case a.Bias.None():
		copy(out, p)
	default:
		vec.Scale(out, p, 1/sum)
		vec.Add(out, f32s(a.Bias, a.E))
	}
	return out
}

// chooseOpen chooses like the function choose, but only among the experts of the open groups, the groups with the best
// experts. A group's rank is the sum of its best experts' values. If the rule has groups, chooseOpen overwrites the keys.
func chooseOpen(ids []int32, keys, values []float32, r op.RouterRule) {
	if r.Groups == 0 {
		choose(ids, keys)
		return
	}
	var worth [op.MaxGroups]float32
	var groups [op.MaxGroups]int32
	size, open := len(keys)/r.Groups, groups[:r.OpenGroups]
	for g := range r.Groups {
		worth[g] = largest(keys[g*size:(g+1)*size], values[g*size:(g+1)*size], r.GroupBest)
	}
	choose(open, worth[:r.Groups])
	slices.Sort(open) // ascending, so that equal keys choose the lower expert
	for i, g := range open {
		copy(keys[i*size:(i+1)*size], keys[int(g)*size:])
	}
	choose(ids, keys[:len(open)*size])
	for k, e := range ids {
		ids[k] = open[int(e)/size]*int32(size) + e%int32(size)
	}
}

// largest returns the sum of the values at the n largest keys, by which groups of experts are
// ranked; n is 1 or 2.
func largest(keys, values []float32, n int) float32 {
	var at [2]int32
	choose(at[:n], keys)
	if n == 1 {
		return values[at[0]]
	}
	return values[at[0]] + values[at[1]]
}

// choose fills ids with the indices of the largest keys, the largest first. Among equal keys the lower index comes
// first. A comparison with a NaN is false, so a key never passes a NaN before it. The ids always differ.
func choose(ids []int32, keys []float32) {
	n := 0
	for e, x := range keys {
		at := n
		for at > 0 && x > keys[ids[at-1]] {
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

// routerBackward writes DLogits token by token. Let p be a token's scores and g their gradient. Then the gradient of
// the logits is p·(g − Σ p·g) for a softmax over all experts, and p·(1 − p)·g for sigmoids.
func routerBackward(s *stream, a *op.RouterBackward) error {
	n, k := a.Rule.Logits(a.E), a.Rule.Chosen(a.K)
	reads(a.Logits, 1, 0, a.T*n)
	reads(a.IDs, 1, 0, a.T*k)
	reads(a.DWeights, 1, 0, a.T*k)
	reads(a.Counts, 1, 0, a.E)
	writes(a.DLogits, 1, 0, a.T*n)
	if err := within("IDs", i32s(a.IDs, a.T*k), a.Rule.Chosen(a.E)); err != nil {
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

// routeBack writes the gradient of token t's logits. aux has, for each expert, the part of its
// score's gradient that comes from the load-balancing loss.
func routeBack(a *op.RouterBackward, sc *scratch, aux []float32, t int) {
	n, k := a.Rule.Logits(a.E), a.Rule.Chosen(a.K)
	logits, out := f32s(a.Logits, a.T*n)[t*n:(t+1)*n], f32s(a.DLogits, a.T*n)[t*n:(t+1)*n]
	ids, dw := i32s(a.IDs, a.T*k)[t*k:(t+1)*k], f32s(a.DWeights, a.T*k)[t*k:(t+1)*k]
	p := sc.f32(0, a.E)
	sum := scores(a.Rule, p, logits[:a.E])
	if a.Rule.Gated {
		w := sigmoid(logits[a.E])
		out[a.E] = w * (1 - w) * dw[a.K]
	}
	switch {
	case a.Rule.Sigmoid:
		sigmoidsBack(a, sc, out[:a.E], p, aux, ids[:a.K], dw)
	case a.Rule.Near > 0:
		nearBack(a, sc, out, logits, p, sum, aux, ids, dw)
	default:
		softmaxBack(a, sc, out[:a.E], p, sum, aux, ids[:a.K], dw)
	}
}

// nearBack writes the gradient of a token's logits to `out`, which may be logits itself. Function near has computed the
// weights. p holds the exponentials of the logits, sum their sum, and dw the gradients of the chosen experts' weights.
func nearBack(a *op.RouterBackward, sc *scratch, out, logits, p []float32, sum float32, aux []float32, ids []int32, dw []float32) {
	grad, by := sc.f32(1, a.E), sc.f32(2, a.E)
	vec.Scale(p, p, 1/sum)
	dot := vec.Dot(p, aux)
	for e, x := range p {
		grad[e] = x * (aux[e] - dot)
	}
	for k, own := range ids[:a.K] {
		weight := 1 / near(by, logits[:a.E], ids, k, a.Rule.Near)
		g := routedScale(a.Rule) * dw[k] * weight
		for e, x := range by {
			grad[e] -= g * x * weight
		}
		grad[own] += g
	}
	copy(out, grad)
}

// softmaxBack writes the gradient of a token's logits to out for a softmax router. p holds the
// exponentials of the logits, and sum their sum. If the rule normalizes the chosen experts' weights
// w, then w is a softmax over these experts. The softmax formula holds for w and the gradient dw
// too.
func softmaxBack(a *op.RouterBackward, sc *scratch, out, p []float32, sum float32, aux []float32, ids []int32, dw []float32) {
	g := sc.f32(1, a.E)
	var chosen, mean float32 // sums over the chosen experts: Σ exp, Σ w·dw
	for k, e := range ids {
		chosen += p[e]
		mean += p[e] * dw[k]
	}
	mean /= chosen
	own := sc.f32(2, a.K) // gradients through normalized weights
	for k, e := range ids {
		own[k] = p[e] / chosen * (dw[k] - mean) * routedScale(a.Rule)
	}
	vec.Scale(p, p, 1/sum)
	copy(g, aux)
	if !a.Normalize {
		for k, e := range ids {
			g[e] += dw[k] * routedScale(a.Rule)
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

// sigmoidsBack writes the gradient of a token's logits to out, where p holds the sigmoids of the logits and dw the
// gradients of the chosen experts' weights.
func sigmoidsBack(a *op.RouterBackward, sc *scratch, out, p, aux []float32, ids []int32, dw []float32) {
	g := sc.f32(1, a.E)
	copy(g, aux)
	all, mean := float32(1), float32(0)
	if a.Normalize { // w = p/all has the gradient (dw − Σ w·dw)/all
		all = least(a.Rule)
		for k, e := range ids {
			all += p[e]
			mean += p[e] * dw[k]
		}
		mean /= all
	}
	for k, e := range ids {
		g[e] += (dw[k] - mean) / all * routedScale(a.Rule)
	}
	for e, x := range p {
		out[e] = x * (1 - x) * g[e]
	}
}
