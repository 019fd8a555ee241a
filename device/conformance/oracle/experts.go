package oracle

import (
	"cmp"
	"math"
	"slices"
)

// Scale multiplies x by factor.
func Scale(x []float64, factor float64) {
	for i := range x {
		x[i] *= factor
	}
}

// ScaleRows multiplies row t of x (T, C) by w[index[t]].
func ScaleRows(x, w []float64, index []int32, C int) {
	for t, p := range index {
		Scale(x[t*C:(t+1)*C], w[p])
	}
}

// ScaleRowsBackward sets dw[index[t]] to the dot product of the rows t of dy and y, and then scales both rows.
func ScaleRowsBackward(dy, y, w, dw []float64, index []int32, C int) {
	for t, p := range index {
		dw[p] = dot(dy[t*C:(t+1)*C], y[t*C:(t+1)*C])
	}
	ScaleRows(dy, w, index, C)
	ScaleRows(y, w, index, C)
}

// AddRows adds row t of src to row index[t] of dst.
func AddRows(dst, src []float64, index []int32, C int) {
	for t, u := range index {
		add(dst[int(u)*C:(int(u)+1)*C], 1, src[t*C:(t+1)*C])
	}
}

func softmax(x []float64) []float64 {
	p, l := make([]float64, len(x)), LogSumExp(x)
	for i, v := range x {
		p[i] = math.Exp(v - l)
	}
	return p
}

// RouterRule has the fields of op.RouterRule, which describes them.
type RouterRule struct {
	Sigmoid                       bool
	Groups, OpenGroups, GroupBest int
	Near, Scale                   float32
	Shared, Gated                 bool
}

// scale returns the factor on the weights of chosen experts; a Scale of 0 stands for 1.
func (r RouterRule) scale() float64 {
	if r.Scale == 0 {
		return 1
	}
	return float64(r.Scale)
}

// widths returns how many logits a token has and how many experts it goes to. The router chooses K of E experts; a
// shared expert is not one of them.
func (r RouterRule) widths(E, K int) (logits, chosen int) {
	if r.Shared {
		K++
	}
	if r.Gated {
		E++
	}
	return E, K
}

// scores returns each expert's score for a token, given the token's row of logits.
func (r RouterRule) scores(row []float64) []float64 {
	if !r.Sigmoid {
		return softmax(row)
	}
	p := make([]float64, len(row))
	for e, x := range row {
		p[e] = sigmoid(x)
	}
	return p
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// least is added to the sum of chosen scores by which scores are divided. For sigmoids, which may
// all be almost 0, it is 1e-20, as in Transformers.
func (r RouterRule) least() float64 {
	if r.Sigmoid {
		return 1e-20
	}
	return 0
}

// falling returns the indices of v, the largest element first; among equal elements, the lower index first.
func falling(v []float64) []int32 {
	order := make([]int32, len(v))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(v[b], v[a]) })
	return order
}

// choose returns the K experts with the largest keys, the largest first. If experts are in groups,
// it considers only the OpenGroups best groups. A group's rank is the sum of its GroupBest largest values.
func (r RouterRule) choose(keys, values []float64, K int) []int32 {
	order := falling(keys)
	if r.Groups > 0 {
		size := len(keys) / r.Groups
		worth := make([]float64, r.Groups)
		for g := range worth {
			in := values[g*size : (g+1)*size]
			for _, e := range falling(in)[:r.GroupBest] {
				worth[g] += in[e]
			}
		}
		open := falling(worth)[:r.OpenGroups]
		order = slices.DeleteFunc(order, func(e int32) bool { return !slices.Contains(open, e/int32(size)) })
	}
	return order[:K]
}

// near returns the probabilities of a softmax over the experts whose logits in row are near that of the k-th chosen
// expert. Experts chosen before it are left out. The probability of the k-th chosen expert is its weight.
func (r RouterRule) near(row []float64, chosen []int32, k int) []float64 {
	p, top, sum := make([]float64, len(row)), row[chosen[k]], 0.0
	for e, s := range row {
		if far := (top-s)/max(math.Abs(s), top) > 2*float64(r.Near); !far && !slices.Contains(chosen[:k], int32(e)) {
			p[e] = math.Exp(s - top)
			sum += p[e]
		}
	}
	for e := range p {
		p[e] /= sum
	}
	return p
}

// Router writes ids and weights (T, K) for logits (T, E): the experts with the largest keys and their scores times a
// scale. With normalize, the scores are divided by their sum. A shared expert follows, if there is one. Router adds
// all scores to probSum (E). bias (E) may be nil.
func Router(logits, bias []float64, ids []int32, weights, probSum []float64, E, K int, normalize bool, rule RouterRule) {
	wide, chosen := rule.widths(E, K)
	for t := range len(logits) / max(1, wide) {
		row := logits[t*wide : (t+1)*wide]
		p := rule.scores(row[:E])
		add(probSum, 1, p)
		keys := row[:E]
		if rule.Sigmoid || bias != nil {
			keys = slices.Clone(p)
		}
		for e, b := range bias {
			keys[e] += b
		}
		values := keys
		if !rule.Sigmoid && bias == nil {
			values = p
		}
		order, all := rule.choose(keys, values, K), 1.0
		if normalize {
			all = rule.least()
			for _, e := range order {
				all += p[e]
			}
		}
		for k, e := range order {
			ids[t*chosen+k], weights[t*chosen+k] = e, rule.scale()*p[e]/all
			if rule.Near > 0 {
				weights[t*chosen+k] = rule.scale() * rule.near(row[:E], order, k)[e]
			}
		}
		if rule.Shared {
			ids[t*chosen+K], weights[t*chosen+K] = int32(E), 1
		}
		if rule.Gated {
			weights[t*chosen+K] = sigmoid(row[E])
		}
	}
}

// RouterBackward writes dlogits, which may be logits, given dweights, the gradient of the weights.
// Every score has the additional gradient aux·counts of its expert, from the load-balancing loss;
// counts may be nil.
func RouterBackward(dlogits, logits []float64, ids []int32, dweights []float64, counts []int32, E, K int, normalize bool, rule RouterRule, aux float64) {
	wide, each := rule.widths(E, K)
	for t := range len(logits) / max(1, wide) {
		row := logits[t*wide : (t+1)*wide]
		p, g := rule.scores(row[:E]), make([]float64, E)
		for e, n := range counts {
			g[e] = aux * float64(n)
		}
		chosen, dw := ids[t*each:t*each+K], dweights[t*each:(t+1)*each]
		all, mean := 1.0, 0.0
		if normalize { // w = p/all has the gradient (dw − Σ dw·w)/all
			all = rule.least()
			for _, e := range chosen {
				all += p[e]
			}
			for k, e := range chosen {
				mean += dw[k] * p[e] / all
			}
		}
		for k, e := range chosen {
			if rule.Near == 0 {
				g[e] += rule.scale() * (dw[k] - mean) / all
			}
		}
		if rule.Gated {
			w := sigmoid(row[E])
			dlogits[t*wide+E] = dw[K] * w * (1 - w)
		}
		back := make([]float64, E) // gradients through weights of near experts
		for k, e := range chosen {
			if rule.Near > 0 {
				by := rule.near(row[:E], chosen, k)
				add(back, -rule.scale()*dw[k]*by[e], by)
				back[e] += rule.scale() * dw[k] * by[e]
			}
		}
		d := dot(p, g)
		for e := range p {
			if rule.Sigmoid {
				dlogits[t*wide+e] = p[e] * (1 - p[e]) * g[e]
			} else {
				dlogits[t*wide+e] = p[e]*(g[e]-d) + back[e]
			}
		}
	}
}

// SortByExpert writes to order the indices of ids, sorted by expert and in ascending order within an expert. rows is
// order/K, the token of each index. offsets has the start of each expert's indices. The number of each expert's indices
// is added to counts (E).
func SortByExpert(ids, order, rows, offsets, counts []int32, E, K int) {
	n := 0
	for e := range E {
		offsets[e] = int32(n)
		for i, x := range ids {
			if int(x) == e {
				order[n], rows[n] = int32(i), int32(i/K)
				n++
			}
		}
		counts[e] += int32(n) - offsets[e]
	}
	offsets[E] = int32(n)
}

// Sinks turns o (T, heads·dim) and lse (heads, T), to base 2, of attention into attention with sinks (heads): one more score for
// each head, with value 0.
func Sinks(o, lse, sinks []float64, T, dim int) {
	for h, sink := range sinks {
		for t := range T {
			was := lse[h*T+t] * math.Ln2
			all := LogSumExp([]float64{was, sink})
			Scale(o[(t*len(sinks)+h)*dim:][:dim], math.Exp(was-all))
			lse[h*T+t] = all * math.Log2E
		}
	}
}

// SinksGrad adds the gradient of the sinks to dsinks (heads), given lse (heads, T) as Sinks left it and delta (heads,
// T) = Σ do·o.
func SinksGrad(dsinks, lse, delta, sinks []float64, T int) {
	for h, sink := range sinks {
		for t := range T {
			dsinks[h] -= math.Exp(sink-lse[h*T+t]*math.Ln2) * delta[h*T+t]
		}
	}
}

// AddWeightedRows adds w[pairs[t]]·(row t of src + bias) to row index[t] of dst; bias may be nil.
func AddWeightedRows(dst, src, bias, w []float64, index, pairs []int32, C int) {
	for t, u := range index {
		sum := dst[int(u)*C : (int(u)+1)*C]
		add(sum, w[pairs[t]], src[t*C:(t+1)*C])
		add(sum, w[pairs[t]], bias)
	}
}

// WeightedBiasGrad adds the gradients of b and w to db and dw, given dy.
func WeightedBiasGrad(db, dw, dy, b, w []float64, index []int32) {
	for t, p := range index {
		row := dy[t*len(b) : (t+1)*len(b)]
		add(db, w[p], row)
		dw[p] += dot(row, b)
	}
}

// CutGLU sets y (T, F) to g·σ(alpha·g)·(u+1) for gu (T, 2F). g is the gate, at most limit, and u is up, clamped to
// ±limit.
func CutGLU(alpha, limit float64, y, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			g, u := min(gu[2*t*F+i], limit), min(max(gu[(2*t+1)*F+i], -limit), limit)
			y[t*F+i] = g / (1 + math.Exp(-alpha*g)) * (u + 1)
		}
	}
}

// CutGLUBackward writes the gradients of CutGLU to dgu, given dy, and unless y is nil CutGLU's
// result to y. Inputs beyond a limit have gradient 0; inputs at the limit have a gradient.
func CutGLUBackward(alpha, limit float64, dgu, y, dy, gu []float64, T, F int) {
	for t := range T {
		for i := range F {
			gate, up, d := gu[2*t*F+i], gu[(2*t+1)*F+i], dy[t*F+i]
			g, u := min(gate, limit), min(max(up, -limit), limit)
			s := 1 / (1 + math.Exp(-alpha*g))
			if y != nil {
				y[t*F+i] = g * s * (u + 1)
			}
			dgu[2*t*F+i], dgu[(2*t+1)*F+i] = 0, 0
			if gate <= limit {
				dgu[2*t*F+i] = d * (u + 1) * s * (1 + alpha*g*(1-s))
			}
			if up <= limit && up >= -limit {
				dgu[(2*t+1)*F+i] = d * g * s
			}
		}
	}
}
