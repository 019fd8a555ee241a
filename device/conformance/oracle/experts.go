package oracle

import (
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

// ScaleRowsBackward sets dw[index[t]] to the product of the rows t of dy and y, and
// then scales both rows.
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

// Router writes ids and weights (T, K): the experts with the largest of a token's
// logits (T, E), and their probabilities, which are divided by their sum where
// normalize is set. It adds all probabilities to probSum (E).
func Router(logits []float64, ids []int32, weights, probSum []float64, E, K int, normalize bool) {
	for t := range len(logits) / E {
		row := logits[t*E : (t+1)*E]
		order := make([]int32, E)
		for e := range order {
			order[e] = int32(e)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		p := softmax(row)
		add(probSum, 1, p)
		all := 1.0
		if normalize {
			all = 0
			for _, e := range order[:K] {
				all += p[e]
			}
		}
		for k, e := range order[:K] {
			ids[t*K+k], weights[t*K+k] = e, p[e]/all
		}
	}
}

// RouterBackward writes dlogits, which may be logits, from dweights and from
// aux·counts, an additional gradient of every probability; counts may be nil.
func RouterBackward(dlogits, logits []float64, ids []int32, dweights []float64, counts []int32, E, K int, normalize bool, aux float64) {
	for t := range len(logits) / E {
		p, g := softmax(logits[t*E:(t+1)*E]), make([]float64, E)
		for e, n := range counts {
			g[e] = aux * float64(n)
		}
		chosen, dw := ids[t*K:(t+1)*K], dweights[t*K:(t+1)*K]
		all, mean := 1.0, 0.0
		if normalize { // w = p/all has the gradient (dw − Σ dw·w)/all
			all = 0
			for _, e := range chosen {
				all += p[e]
			}
			for k, e := range chosen {
				mean += dw[k] * p[e] / all
			}
		}
		for k, e := range chosen {
			g[e] += (dw[k] - mean) / all
		}
		d := dot(p, g)
		for e := range p {
			dlogits[t*E+e] = p[e] * (g[e] - d)
		}
	}
}

// SortByExpert lists the places of ids by the expert they hold. order has the
// places, rows is order/K, offsets says where each expert's begin, and to counts
// (E) the number of each expert's places is added.
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
