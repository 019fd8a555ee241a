package reference

import (
	"fmt"
	"math"
	"slices"

	"mt/model"
)

// Weights are a model's tensors, row-major, by the names that a model without a family has,
// Llama's ("model.layers.0.self_attn.q_proj.weight"); Fixture.Plain has them so of every family. A bias or a
// q/k norm is applied where it is there. lm_head.weight may be missing where it is tied.
type Weights map[string][]float64

// Sequence is one document: attention and positions start with it.
type Sequence struct {
	IDs []int32
	// Targets has, for each place, the token to predict there, shifted already. It
	// is negative where none is to be predicted.
	Targets []int32
	// Noise (T, h) is added to what the embedding's module returns; nil: nothing is.
	Noise []float64
}

// Loss is the sum of −log p over all targets, divided by their number.
func Loss(cfg *model.Config, w Weights, seqs []Sequence) float64 {
	var sum float64
	var n int
	for _, s := range seqs {
		of, targets := SumOfLosses(cfg, w, s)
		sum, n = sum+of, n+targets
	}
	return sum / float64(n)
}

// Logits is the (T, V) logits of one sequence.
func Logits(cfg *model.Config, w Weights, ids []int32) []float64 {
	return logits(cfg, w, Sequence{IDs: ids})
}

func logits(cfg *model.Config, w Weights, s Sequence) []float64 {
	x := embed(cfg, w, s)
	for i := range cfg.NumLayers {
		x = Block(cfg, w, i, x)
	}
	head := w["lm_head.weight"]
	if head == nil {
		head = w["model.embed_tokens.weight"]
	}
	out := linear(hiddenNorm(cfg, w, "model.norm", x), head, w["lm_head.bias"], cfg.HiddenSize)
	for i := range out {
		if cfg.LogitScale != 0 {
			out[i] *= cfg.LogitScale
		}
		out[i] = softcap(out[i], cfg.LogitSoftcap)
	}
	return out
}

// embed is the (T, h) input of the first block.
func embed(cfg *model.Config, w Weights, s Sequence) []float64 {
	x := make([]float64, 0, len(s.IDs)*cfg.HiddenSize)
	for _, id := range s.IDs {
		at := int(id) * cfg.HiddenSize
		x = append(x, w["model.embed_tokens.weight"][at:at+cfg.HiddenSize]...)
	}
	// A rounded scale is the embedding's own: noise comes behind it.
	scale := 1.0
	if cfg.EmbedScale != 0 {
		scale = cfg.EmbedScale
	}
	for i := range x {
		noise := 0.0
		if s.Noise != nil {
			noise = s.Noise[i]
		}
		if cfg.EmbedRounded {
			x[i] = x[i]*scale + noise
		} else {
			x[i] = (x[i] + noise) * scale
		}
	}
	if cfg.LearnedPositions { // row t for the token at t
		for i, v := range w["model.embed_positions.weight"][:len(x)] {
			x[i] += v
		}
	}
	return x
}

// Block is the output (T, h) of decoder block i for one sequence x (T, h).
func Block(cfg *model.Config, w Weights, i int, x []float64) []float64 {
	x2 := Attention(cfg, w, i, x)
	if cfg.Parallel { // the MLP reads x, maybe by attention's norm
		by := "post_attention_layernorm"
		if cfg.SharedNorm {
			by = "input_layernorm"
		}
		return residual(cfg, x2, mlp(cfg, w, tensor(i, "mlp."), hiddenNorm(cfg, w, tensor(i, by), x)))
	}
	if cfg.HasExperts(i) {
		return MoE(cfg, w, i, x2, nil)
	}
	n := normsOf(w, i)
	out := mlp(cfg, w, tensor(i, "mlp."), hiddenNorm(cfg, w, n.mlp, x2))
	return residual(cfg, x2, hiddenNorm(cfg, w, n.mlpOut, out))
}

// norms are the names of the norms around attention and the MLP of a block; empty where there is none.
type norms struct{ attn, attnOut, mlp, mlpOut string }

// normsOf finds a block's norms, whose names mean one thing in blocks of two norms and another in those of
// four and in those of outputs alone.
func normsOf(w Weights, i int) norms {
	of := func(s string) string {
		if w[tensor(i, s+".weight")] == nil {
			return ""
		}
		return tensor(i, s)
	}
	attn := of("input_layernorm")
	if mlpOut := of("post_feedforward_layernorm"); mlpOut != "" { // pre_feedforward_layernorm is not there where outputs alone are normed
		return norms{attn, of("post_attention_layernorm"), of("pre_feedforward_layernorm"), mlpOut}
	}
	return norms{attn: attn, mlp: of("post_attention_layernorm")}
}

// tensor is the name of a tensor of block i.
func tensor(i int, s string) string { return fmt.Sprintf("model.layers.%d.%s", i, s) }

// Attention is x + attention(norm(x)) of decoder block i. In models whose blocks
// have four norms, attention(norm(x)) is normed too; in others only attention(x) is.
func Attention(cfg *model.Config, w Weights, i int, x []float64) []float64 {
	around := normsOf(w, i)
	n := hiddenNorm(cfg, w, around.attn, x)
	if cfg.IsRecurrent(i) {
		return residual(cfg, x, hiddenNorm(cfg, w, around.attnOut, recurrence(cfg, w, i, n)))
	}
	var q, k, v []float64
	if cfg.Latent != nil {
		q, k, v = latentHeads(cfg, w, i, n)
	} else {
		q, k, v = heads(cfg, w, i, n)
	}
	o := attention(cfg, i, q, k, v, w[tensor(i, "self_attn.sinks")])
	if cfg.OutputGate {
		gate := linear(n, w[tensor(i, "self_attn.gate_proj.weight")], w[tensor(i, "self_attn.gate_proj.bias")], cfg.HiddenSize)
		for j, g := range gate {
			o[j] *= sigmoid(g)
		}
	}
	out := linear(o, w[tensor(i, "self_attn.o_proj.weight")], w[tensor(i, "self_attn.o_proj.bias")], cfg.OutputCols())
	return residual(cfg, x, hiddenNorm(cfg, w, around.attnOut, out))
}

// heads are q (T, H, D), k and v (T, KV, D) of block i, made of its normed input n.
func heads(cfg *model.Config, w Weights, i int, n []float64) (q, k, v []float64) {
	h, d := cfg.HiddenSize, cfg.HeadDim
	project := func(s string) []float64 {
		return linear(n, w[tensor(i, "self_attn."+s+"_proj.weight")], w[tensor(i, "self_attn."+s+"_proj.bias")], h)
	}
	q, k, v = project("q"), project("k"), project("v")
	if qw := w[tensor(i, "self_attn.q_norm.weight")]; qw != nil {
		q, k = norm(cfg, q, qw), norm(cfg, k, w[tensor(i, "self_attn.k_norm.weight")])
	}
	if cfg.Turns(i) {
		r := cfg.Ropes()[cfg.RopeOf(i)]
		rope(cfg, r, q, len(n)/h, d)
		rope(cfg, r, k, len(n)/h, d)
		if cfg.QKNorm && cfg.QKNormPlain {
			ones := slices.Repeat([]float64{1}, d)
			q, k = norm(cfg, q, ones), norm(cfg, k, ones)
		}
	}
	if by := cfg.Temper; by != nil && (cfg.NoRope == nil || !cfg.Turns(i)) {
		for j := range q {
			position := float64(j / (cfg.NumHeads * d))
			q[j] *= 1 + by.Scale*math.Log(1+math.Floor((position+float64(by.Ahead))/by.Every))
		}
	}
	return q, k, v
}

// mlp is down(f(gate(n))·up(n)), or without a gate down(f(up(n))), with the tensors whose names begin with in. Where the
// gate is cut off, it is so and not f (model.CutGate).
func mlp(cfg *model.Config, w Weights, in string, n []float64) []float64 {
	h := cfg.HiddenSize
	if cfg.Ungated {
		up := linear(n, w[in+"up_proj.weight"], w[in+"up_proj.bias"], h)
		for j, v := range up {
			up[j] = activation(cfg, v)
		}
		return linear(up, w[in+"down_proj.weight"], w[in+"down_proj.bias"], cfg.IntermediateSize)
	}
	gateW := w[in+"gate_proj.weight"]
	gate, up := linear(n, gateW, w[in+"gate_proj.bias"], h), linear(n, w[in+"up_proj.weight"], w[in+"up_proj.bias"], h)
	for j, g := range gate {
		if cut := cfg.Cut; cut != nil {
			g = min(g, cut.Limit)
			up[j] = (min(max(up[j], -cut.Limit), cut.Limit) + 1) * g / (1 + math.Exp(-cut.Alpha*g))
		} else {
			up[j] *= activation(cfg, g)
		}
	}
	return linear(up, w[in+"down_proj.weight"], w[in+"down_proj.bias"], len(gateW)/h)
}

// activation is the model's function f.
func activation(cfg *model.Config, x float64) float64 {
	switch cfg.Activation {
	case model.GELUTanh:
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	case model.GELU:
		return 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
	case model.ReLU:
		return max(0, x)
	}
	return x / (1 + math.Exp(-x))
}

// softcap is limit·tanh(x/limit), x itself without a limit.
func softcap(x, limit float64) float64 {
	if limit == 0 {
		return x
	}
	return limit * math.Tanh(x/limit)
}

// residual is x + out, or x + ResidualScale·out.
func residual(cfg *model.Config, x, out []float64) []float64 {
	scale := cfg.ResidualScale
	if scale == 0 {
		scale = 1
	}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = x[i] + scale*out[i]
	}
	return y
}

// linear is x (T, in) · wᵀ + b for w (out, in).
func linear(x, w, b []float64, in int) []float64 {
	t, out := len(x)/in, len(w)/in
	y := make([]float64, t*out)
	for i := range t {
		for o := range out {
			var sum float64
			for k, xv := range x[i*in : (i+1)*in] {
				sum += xv * w[o*in+k]
			}
			if b != nil {
				sum += b[o]
			}
			y[i*out+o] = sum
		}
	}
	return y
}

// hiddenNorm is the norm of x (T, h) whose tensors' names begin with name: RMSNorm, or the
// LayerNorm of the models that have it; x itself where name is empty.
func hiddenNorm(cfg *model.Config, w Weights, name string, x []float64) []float64 {
	weight, bias := w[name+".weight"], w[name+".bias"]
	switch {
	case name == "":
		return x
	case !cfg.LayerNorm:
		return norm(cfg, x, weight)
	}
	y := make([]float64, len(x))
	h := len(weight)
	for at := 0; at < len(x); at += h {
		var mean, variance float64
		for _, v := range x[at : at+h] {
			mean += v / float64(h)
		}
		for _, v := range x[at : at+h] {
			variance += (v - mean) * (v - mean) / float64(h)
		}
		for i, wv := range weight {
			y[at+i] = (x[at+i] - mean) / math.Sqrt(variance+float64(cfg.RMSNormEps)) * wv
			if bias != nil {
				y[at+i] += bias[i]
			}
		}
	}
	return y
}

// norm is RMSNorm over groups of len(w) elements.
func norm(cfg *model.Config, x, w []float64) []float64 {
	return rmsNorm(x, w, float64(cfg.RMSNormEps), float64(cfg.NormOffset))
}

func rmsNorm(x, w []float64, eps, offset float64) []float64 {
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += len(w) {
		var sum float64
		for _, v := range x[at : at+len(w)] {
			sum += v * v
		}
		r := 1 / math.Sqrt(sum/float64(len(w))+eps)
		for i, wv := range w {
			y[at+i] = x[at+i] * r * (offset + wv)
		}
	}
	return y
}

// attention is causal softmax(scale·q·kᵀ)·v of one sequence in block i, with key
// heads shared. Values may have fewer or more elements than keys. With sinks, a softmax has the head's sink as one
// more score, whose value is 0.
func attention(cfg *model.Config, i int, q, k, v, sinks []float64) []float64 {
	d, dv, group := cfg.HeadDim, cfg.ValueDim(), cfg.NumHeads/cfg.NumKVHeads
	width, kWidth, vWidth := cfg.NumHeads*d, cfg.NumKVHeads*d, cfg.NumKVHeads*dv
	tokens := len(q) / width
	o := make([]float64, tokens*cfg.NumHeads*dv)
	scale := cfg.AttnScale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	if cfg.Latent != nil {
		scale *= latentTemperature(cfg.Rope)
	}
	for h := range cfg.NumHeads {
		kv := h / group
		for t := range tokens {
			first := 0
			if n := cfg.Window(i); n > 0 {
				first = max(0, t+1-n)
			}
			if n := cfg.Stretch(i); n > 0 {
				first = t - t%n
			}
			qr, out := q[t*width+h*d:][:d], o[(t*cfg.NumHeads+h)*dv:][:dv]
			scores := make([]float64, 0, t+1-first)
			for j := first; j <= t; j++ {
				scores = append(scores, softcap(dot(qr, k[j*kWidth+kv*d:][:d])*scale, cfg.AttnSoftcap))
			}
			lse := logSumExp(scores)
			if sinks != nil {
				lse = logSumExp([]float64{lse, sinks[h]})
			}
			for j, s := range scores {
				p := math.Exp(s - lse)
				for e, vv := range v[(first+j)*vWidth+kv*dv:][:dv] {
					out[e] += p * vv
				}
			}
		}
	}
	return o
}

func dot(a, b []float64) float64 {
	var sum float64
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func logSumExp(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

// Derivative is df/ds at 0, as a central difference of fourth order. Its truncation
// error is step⁴·f⁽⁵⁾/30, far below the rounding of fp32 where f changes over an s
// of about one.
func Derivative(f func(s float64) float64) float64 {
	const step = 1e-3
	return (8*(f(step)-f(-step)) - (f(2*step) - f(-2*step))) / (12 * step)
}

// Perturbed is the value of f with s·dir[i] added to x[i] for all i. Afterwards x
// is as it was.
func Perturbed(f func() float64, x, dir []float64, s float64) float64 {
	was := append([]float64(nil), x...)
	for i, d := range dir {
		x[i] += s * d
	}
	v := f()
	copy(x, was)
	return v
}
