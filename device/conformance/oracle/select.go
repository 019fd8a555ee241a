package oracle

import (
	"cmp"
	"math"
	"slices"
)

// Selection describes what op.SelectKeys reads.
type Selection struct {
	CuQ, CuK         []int32
	Heads, Dim, TopK int
	Scale, WScale    float64
}

// SelectKeys writes keys (TQ, TopK), the keys that each query attends to. Scores at the limit must differ.
func SelectKeys(keys []int32, q, k, w []float64, s Selection) {
	for i := range len(s.CuQ) - 1 {
		nq, nk := int(s.CuQ[i+1]-s.CuQ[i]), int(s.CuK[i+1]-s.CuK[i])
		for t := range nq {
			row, place := int(s.CuQ[i])+t, t+nk-nq
			scores, order := make([]float64, place+1), make([]int32, place+1)
			for j := range scores {
				order[j] = int32(j)
				for h := range s.Heads {
					key := k[(int(s.CuK[i])+j)*s.Dim:][:s.Dim]
					scores[j] += s.WScale * w[row*s.Heads+h] * math.Max(0, s.Scale*dot(q[(row*s.Heads+h)*s.Dim:][:s.Dim], key))
				}
			}
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
			order = order[:min(len(order), s.TopK)]
			slices.Sort(order)
			out := keys[row*s.TopK:][:s.TopK]
			for j := range out {
				out[j] = -1
			}
			copy(out, order)
		}
	}
}
