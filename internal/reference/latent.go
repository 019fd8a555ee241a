package reference

import (
	"math"

	"mt/model"
)

// latentHeads are q and k (T, H, D) and v (T, H, V) of block i where these are made of narrow
// vectors of its normed input n. The last elements of queries and keys turn; those of keys are
// the same in all heads. Source: arXiv:2405.04434, section 2.1.
func latentHeads(cfg *model.Config, w Weights, i int, n []float64) (q, k, v []float64) {
	l, heads, tokens := cfg.Latent, cfg.NumHeads, len(n)/cfg.HiddenSize
	weight := func(s string) []float64 { return w[tensor(i, "self_attn."+s+".weight")] }
	bias := func(s string) []float64 { return w[tensor(i, "self_attn."+s+".bias")] }
	narrowed := func(x []float64, s string) []float64 {
		return rmsNorm(x, weight(s), float64(l.NormEps), float64(cfg.NormOffset))
	}
	if l.QRank > 0 {
		narrow := narrowed(linear(n, weight("q_a_proj"), bias("q_a_proj"), cfg.HiddenSize), "q_a_layernorm")
		q = linear(narrow, weight("q_b_proj"), nil, l.QRank)
	} else {
		q = linear(n, weight("q_proj"), nil, cfg.HiddenSize)
	}
	narrow, kTurns := columns(linear(n, weight("kv_a_proj_with_mqa"), bias("kv_a_proj_with_mqa"), cfg.HiddenSize), l.KVRank, l.RopeDim)
	both := linear(narrowed(narrow, "kv_a_layernorm"), weight("kv_b_proj"), nil, l.KVRank)
	kStays, v := columns(both, l.NopeDim, l.ValueDim)
	qStays, qTurns := columns(q, l.NopeDim, l.RopeDim)
	rope(cfg, cfg.Rope, qTurns, tokens, l.RopeDim)
	rope(cfg, cfg.Rope, kTurns, tokens, l.RopeDim)
	q = nil
	for t := range tokens {
		for h := range heads {
			at := t*heads + h
			q = append(append(q, qStays[at*l.NopeDim:][:l.NopeDim]...), qTurns[at*l.RopeDim:][:l.RopeDim]...)
			k = append(append(k, kStays[at*l.NopeDim:][:l.NopeDim]...), kTurns[t*l.RopeDim:][:l.RopeDim]...)
		}
	}
	return q, k, v
}

// columns are the first a and the other b elements of every row of x.
func columns(x []float64, a, b int) (left, right []float64) {
	for at := 0; at < len(x); at += a + b {
		left, right = append(left, x[at:at+a]...), append(right, x[at+a:at+a+b]...)
	}
	return left, right
}

// latentTemperature is what yarn multiplies the scores of latent attention by. Source:
// transformers, modeling_deepseek_v3.
func latentTemperature(r model.Rope) float64 {
	if r.Type != "yarn" || r.MScaleAllDim == 0 {
		return 1
	}
	m := 1 + 0.1*r.MScaleAllDim*math.Log(max(r.Factor, 1))
	return m * m
}
