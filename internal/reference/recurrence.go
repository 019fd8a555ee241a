package reference

import (
	"math"

	"mt/model"
)

// recurrence is what a block has in the place of attention, of its normed input n, token by token. Source: arXiv:2412.06464,
// equation 10; transformers, modeling_qwen3_next.
func recurrence(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	r, h := cfg.Recurrence, cfg.HiddenSize
	weight := func(s string) []float64 { return w[tensor(i, "linear_attn."+s)] }
	product := func(s string) []float64 { return linear(n, weight(s+".weight"), nil, h) }
	qkv := shortConv(product("in_proj_qkv"), weight("conv1d.weight"), r.Convolved(), r.Taps)
	z, b, a := product("in_proj_z"), product("in_proj_b"), product("in_proj_a")
	out := make([]float64, 0, len(z))
	states := make([][]float64, r.Heads)
	for t := range len(n) / h {
		row := qkv[t*r.Convolved():][:r.Convolved()]
		for head := range r.Heads {
			if t == 0 {
				states[head] = make([]float64, r.KeyDim*r.ValueDim)
			}
			key := head / (r.Heads / r.KeyHeads) * r.KeyDim
			q, k := unit(row[key:][:r.KeyDim]), unit(row[r.Keys()+key:][:r.KeyDim])
			beta := sigmoid(b[t*r.Heads+head])
			decay := math.Exp(-math.Exp(weight("A_log")[head]) * math.Log1p(math.Exp(a[t*r.Heads+head]+weight("dt_bias")[head])))
			o := deltaStep(states[head], q, k, row[2*r.Keys()+head*r.ValueDim:][:r.ValueDim], beta, decay)
			for e := range o {
				o[e] /= math.Sqrt(float64(r.KeyDim))
			}
			for e, v := range rmsNorm(o, weight("norm.weight"), float64(cfg.RMSNormEps), 0) {
				gate := z[(t*r.Heads+head)*r.ValueDim+e]
				out = append(out, v*gate*sigmoid(gate))
			}
		}
	}
	return linear(out, weight("out_proj.weight"), nil, r.Values())
}

// shortConv is SiLU of the causal convolution of each column of x (T, columns) with its own taps.
func shortConv(x, taps []float64, columns, n int) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		for j := range n {
			if at := i - (n-1-j)*columns; at >= 0 {
				y[i] += taps[i%columns*n+j] * x[at]
			}
		}
		y[i] *= sigmoid(y[i])
	}
	return y
}

// deltaStep moves a state (keys, values) on by one token and returns what the query reads of it then.
func deltaStep(state, q, k, v []float64, beta, decay float64) []float64 {
	values := len(v)
	memory, out := make([]float64, values), make([]float64, values)
	for n := range state {
		state[n] *= decay
		memory[n%values] += state[n] * k[n/values]
	}
	for n := range state {
		state[n] += k[n/values] * beta * (v[n%values] - memory[n%values])
		out[n%values] += state[n] * q[n/values]
	}
	return out
}

// unit is x of length 1.
func unit(x []float64) (y []float64) {
	r := 1 / math.Sqrt(dot(x, x)+1e-6)
	for _, v := range x {
		y = append(y, r*v)
	}
	return y
}
