package reference

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"mt/model"
)

// Weights are a model's tensors, row-major, under Llama's tensor names ("model.layers.0.self_attn.q_proj.weight"),
// whatever the family. A bias or a q/k norm is applied if its tensor is there. lm_head.weight may be missing if it is
// tied.
type Weights map[string][]float64

// Sequence is one document: attention and positions begin with it.
type Sequence struct {
	IDs []int32
	// Targets has the token to predict at each position, already shifted; negative: none.
	Targets []int32
	// Noise (T, h) is added to the output of the embedding's module; nil: no noise.
	Noise []float64
}

// Loss returns the mean of −log p over all supervised tokens.
func Loss(cfg *model.Config, w Weights, seqs []Sequence) float64 {
	var sum float64
	var n int
	for _, s := range seqs {
		of, targets := SumOfLosses(cfg, w, s)
		sum, n = sum+of, n+targets
	}
	return sum / float64(n)
}

// Logits returns the (T, V) logits of one sequence.
func Logits(cfg *model.Config, w Weights, ids []int32) []float64 {
	return logits(cfg, w, Sequence{IDs: ids})
}

func logits(cfg *model.Config, w Weights, s Sequence) []float64 {
	x := embed(cfg, w, s)
	with := perLayer(cfg, w, s.IDs, x)
	for i := range cfg.NumLayers {
		x = block(cfg, w, i, x, with)
	}
	head := w["lm_head.weight"]
	if head == nil {
		head = w["model.embed_tokens.weight"]
	}
	last := *cfg
	if cfg.FinalNormPlain {
		last.NormOffset = 0
	}
	out := linear(hiddenNorm(&last, w, "model.norm", x), head, w["lm_head.bias"], cfg.HiddenSize)
	for i := range out {
		if cfg.LogitScale != 0 {
			out[i] *= cfg.LogitScale
		}
		out[i] = softcap(out[i], cfg.LogitSoftcap)
	}
	return out
}

// embed returns the (T, h) input of the first block.
func embed(cfg *model.Config, w Weights, s Sequence) []float64 {
	x := make([]float64, 0, len(s.IDs)*cfg.HiddenSize)
	for _, id := range s.IDs {
		at := int(id) * cfg.HiddenSize
		x = append(x, w["model.embed_tokens.weight"][at:at+cfg.HiddenSize]...)
	}
	if cfg.EmbedNorm {
		x = rmsNorm(x, slices.Repeat([]float64{1}, cfg.HiddenSize), float64(cfg.RMSNormEps), 0)
	}
	// A rounded scale is part of the embedding's module, and noise is added to the module's output. Any other scale
	// comes later and multiplies the noise too.
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
	if cfg.LearnedPositions { // row t for token t
		for i, v := range w["model.embed_positions.weight"][:len(x)] {
			x[i] += v
		}
	}
	return x
}

// beside has what passes from block to block beside the hidden state: per-layer inputs (T, L·P), and keys and values
// of the last blocks with and without a window that have their own.
type beside struct {
	inputs []float64
	kv     map[bool][2][]float64
}

// perLayer returns the per-layer inputs of tokens ids, whose embedding is x. Source: transformers, modeling_gemma4,
// project_per_layer_inputs.
func perLayer(cfg *model.Config, w Weights, ids []int32, x []float64) *beside {
	with := &beside{kv: map[bool][2][]float64{}}
	if cfg.PerLayerSize == 0 {
		return with
	}
	width := cfg.NumLayers * cfg.PerLayerSize
	z := linear(x, w["model.per_layer_model_projection.weight"], nil, cfg.HiddenSize)
	for j := range z {
		z[j] /= math.Sqrt(float64(cfg.HiddenSize))
	}
	with.inputs = norm(cfg, z, w["model.per_layer_projection_norm.weight"])
	for t, id := range ids {
		for j, v := range w["model.embed_tokens_per_layer.weight"][int(id)*width:][:width] {
			at := &with.inputs[t*width+j]
			*at = (*at + v*math.Sqrt(float64(cfg.PerLayerSize))) / math.Sqrt2
		}
	}
	return with
}

// addPerLayer returns block i's output y plus what the block makes of its per-layer input.
func addPerLayer(cfg *model.Config, w Weights, i int, y []float64, with *beside) []float64 {
	gate := linear(y, w[tensor(i, "per_layer_input_gate.weight")], nil, cfg.HiddenSize)
	for j, v := range gate {
		t, c := j/cfg.PerLayerSize, j%cfg.PerLayerSize
		gate[j] = activation(cfg, v) * with.inputs[(t*cfg.NumLayers+i)*cfg.PerLayerSize+c]
	}
	out := linear(gate, w[tensor(i, "per_layer_projection.weight")], nil, cfg.PerLayerSize)
	return residual(cfg, y, norm(cfg, out, w[tensor(i, "post_per_layer_input_norm.weight")]))
}

// Block returns the output (T, h) of decoder block i for one sequence x (T, h), in a model whose blocks pass nothing
// else on.
func Block(cfg *model.Config, w Weights, i int, x []float64) []float64 {
	return block(cfg, w, i, x, &beside{kv: map[bool][2][]float64{}})
}

func block(cfg *model.Config, w Weights, i int, x []float64, with *beside) (y []float64) {
	x2 := attend(cfg, w, i, x, with)
	if !cfg.HasExperts(i) && !cfg.HasMLP(i) {
		return x2
	}
	if by := w[tensor(i, "layer_scalar")]; by != nil && !cfg.HasExperts(i) {
		defer func() {
			for j := range y {
				y[j] *= by[0]
			}
		}()
	}
	if cfg.Parallel { // the MLP reads x, perhaps by attention's norm
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
	y = residual(cfg, x2, outNorm(cfg, w, n.mlpOut, out))
	if cfg.PerLayerSize > 0 {
		y = addPerLayer(cfg, w, i, y, with)
	}
	return y
}

// norms has the beginnings of the names of a block's norms: before and after attention, before and after the MLP; "":
// there is no such norm.
type norms struct{ attn, attnOut, mlp, mlpOut string }

// normsOf finds the norms of block i by the tensors in w. post_attention_layernorm, for example, is the MLP's input
// norm in blocks with two norms. In blocks with four norms, or with norms of outputs only, it norms attention's output.
func normsOf(w Weights, i int) norms {
	of := func(s string) string {
		if w[tensor(i, s+".weight")] == nil {
			return ""
		}
		return tensor(i, s)
	}
	attn := of("input_layernorm")
	if mlpOut := of("post_feedforward_layernorm"); mlpOut != "" { // pre_feedforward_layernorm is missing if only outputs are normed
		return norms{attn, of("post_attention_layernorm"), of("pre_feedforward_layernorm"), mlpOut}
	}
	return norms{attn: attn, mlp: of("post_attention_layernorm")}
}

// tensor returns the full name of the tensor of block i whose name ends in s.
func tensor(i int, s string) string { return fmt.Sprintf("model.layers.%d.%s", i, s) }

// Attention returns x + attention(norm(x)) of decoder block i for one sequence x (T, h). In models with four norms in a
// block it is x + norm(attention(norm(x))), and with norms of outputs only x + norm(attention(x)).
func Attention(cfg *model.Config, w Weights, i int, x []float64) []float64 {
	return attend(cfg, w, i, x, &beside{kv: map[bool][2][]float64{}})
}

func attend(cfg *model.Config, w Weights, i int, x []float64, with *beside) []float64 {
	if !cfg.Mixes(i) {
		return x
	}
	around := normsOf(w, i)
	n := hiddenNorm(cfg, w, around.attn, x)
	if cfg.IsRecurrent(i) {
		return residual(cfg, x, outNorm(cfg, w, around.attnOut, recurrence(cfg, w, i, n)))
	}
	var q, k, v []float64
	if cfg.MLA != nil {
		q, k, v = mlaHeads(cfg, w, i, n)
	} else {
		q, k, v = heads(cfg, w, i, n, with)
	}
	o := attention(cfg, i, q, k, v, w[tensor(i, "self_attn.sinks")], chosenKeys(cfg, w, i, n))
	if cfg.OutputGate {
		gate := linear(n, w[tensor(i, "self_attn.gate_proj.weight")], w[tensor(i, "self_attn.gate_proj.bias")], cfg.HiddenSize)
		for j, g := range gate {
			o[j] *= sigmoid(g)
		}
	}
	out := linear(o, w[tensor(i, "self_attn.o_proj.weight")], w[tensor(i, "self_attn.o_proj.bias")], cfg.OutputCols(i))
	if cfg.Beside {
		for j, v := range mamba2(cfg, w, i, n) {
			out[j] += v
		}
	}
	return residual(cfg, x, outNorm(cfg, w, around.attnOut, out))
}

// multipliers returns the factors on activations; all are 1 if the model has none.
func multipliers(cfg *model.Config) model.Multipliers {
	if cfg.Multipliers != nil {
		return *cfg.Multipliers
	}
	return model.Multipliers{Value: 1, Gate: 1, Down: 1, ScanIn: [5]float64{1, 1, 1, 1, 1}, ScanOut: 1}
}

// heads returns q (T, H, D), k and v (T, KV, D) of block i as attention reads them, after norm and rotation. n is the
// block's normed input.
func heads(cfg *model.Config, w Weights, i int, n []float64, with *beside) (q, k, v []float64) {
	h, d := cfg.HiddenSize, cfg.Heads(i).Dim
	project := func(s string) []float64 {
		return linear(n, w[tensor(i, "self_attn."+s+"_proj.weight")], w[tensor(i, "self_attn."+s+"_proj.bias")], h)
	}
	if cfg.SharesKV(i) {
		q = norm(cfg, project("q"), w[tensor(i, "self_attn.q_norm.weight")])
		rope(cfg, cfg.Ropes()[cfg.RopeOf(i)], q, len(n)/h, d)
		kv := with.kv[cfg.Window(i) > 0]
		return q, kv[0], kv[1]
	}
	defer func() { with.kv[cfg.Window(i) > 0] = [2][]float64{k, v} }()
	q, k = project("q"), project("k")
	if v = k; !cfg.Heads(i).KeysAreValues {
		v = project("v")
	}
	for j := range v {
		v[j] *= multipliers(cfg).Value
	}
	if cfg.NormsValues {
		v = rmsNorm(v, slices.Repeat([]float64{1}, d), float64(cfg.RMSNormEps), 0)
	}
	qw, kw := w[tensor(i, "self_attn.q_norm.weight")], w[tensor(i, "self_attn.k_norm.weight")]
	if qw != nil && !cfg.QKNormRotated {
		q, k = norm(cfg, q, qw), norm(cfg, k, kw)
	}
	if cfg.Turns(i) {
		r := cfg.Ropes()[cfg.RopeOf(i)]
		rope(cfg, r, q, len(n)/h, d)
		rope(cfg, r, k, len(n)/h, d)
	}
	if cfg.QKNormPlain && cfg.NormsQK(i) {
		ones, eps := slices.Repeat([]float64{1}, d), float64(cfg.RMSNormEps)
		q, k = rmsNorm(q, ones, eps, 0), rmsNorm(k, ones, eps, 0)
	}
	if qw != nil && cfg.QKNormRotated {
		q, k = norm(cfg, q, qw), norm(cfg, k, kw)
	}
	scaleQueries(cfg, i, q)
	return q, k, v
}

// scaleQueries multiplies the queries q (T, H, D) of block i by the factor of their position, if the block has one.
func scaleQueries(cfg *model.Config, i int, q []float64) {
	if by := cfg.QueryScaling; by != nil && (cfg.NoRope == nil || !cfg.Turns(i)) {
		for j := range q {
			position := float64(j / (cfg.NumHeads * cfg.Heads(i).Dim))
			q[j] *= 1 + by.Scale*math.Log(1+math.Floor((position+float64(by.Ahead))/by.Every))
		}
	}
}

// mlp returns down(f(gate(n))·up(n)), or down(f(up(n))) without a gate; f is the activation function. in is the prefix
// of the tensors' names. If cfg.ClampedSwiGLU is set, it replaces f(gate(n))·up(n).
func mlp(cfg *model.Config, w Weights, in string, n []float64) []float64 {
	h := cfg.HiddenSize
	if cfg.Ungated {
		up := linear(n, w[in+"up_proj.weight"], w[in+"up_proj.bias"], h)
		for j, v := range up {
			if cfg.Activation == model.XIELU {
				up[j] = xielu(v, w[in+"act_fn.alpha_p"][0], w[in+"act_fn.alpha_n"][0])
			} else {
				up[j] = activation(cfg, v)
			}
		}
		return linear(up, w[in+"down_proj.weight"], w[in+"down_proj.bias"], len(w[in+"up_proj.weight"])/h)
	}
	gateW := w[in+"gate_proj.weight"]
	gate, up := linear(n, gateW, w[in+"gate_proj.bias"], h), linear(n, w[in+"up_proj.weight"], w[in+"up_proj.bias"], h)
	for j, g := range gate {
		if cut := cfg.ClampedSwiGLU; cut != nil {
			g = min(g, cut.Limit)
			up[j] = (min(max(up[j], -cut.Limit), cut.Limit) + 1) * g / (1 + math.Exp(-cut.Alpha*g))
		} else {
			by := multipliers(cfg)
			up[j] *= by.Down * activation(cfg, by.Gate*g)
		}
	}
	return linear(up, w[in+"down_proj.weight"], w[in+"down_proj.bias"], len(gateW)/h)
}

// activation returns f(x) for the model's activation function f.
func activation(cfg *model.Config, x float64) float64 {
	switch cfg.Activation {
	case model.GELUTanh:
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	case model.GELU:
		return 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
	case model.ReLU:
		return max(0, x)
	case model.SquaredReLU:
		return max(0, x) * max(0, x)
	}
	return x / (1 + math.Exp(-x))
}

// xielu is the activation with two trained parameters: p for x > 0 and n for all other x. Source:
// transformers.activations.XIELUActivation.
func xielu(x, p, n float64) float64 {
	if x > 0 {
		return math.Log(1+math.Exp(p))*x*x + 0.5*x
	}
	return (0.5+math.Log(1+math.Exp(n)))*(math.Expm1(min(x, -1e-6))-x) + 0.5*x
}

// softcap returns limit·tanh(x/limit); limit 0: x.
func softcap(x, limit float64) float64 {
	if limit == 0 {
		return x
	}
	return limit * math.Tanh(x/limit)
}

// residual returns x + ResidualScale·out, where a ResidualScale of 0 stands for 1.
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

// linear returns x (T, in) · wᵀ + b for w (out, in).
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

// outNorm is hiddenNorm for an output of attention or of the MLP.
func outNorm(cfg *model.Config, w Weights, name string, x []float64) []float64 {
	of := *cfg
	of.RMSNormEps = cmp.Or(cfg.OutputNormEps, cfg.RMSNormEps)
	return hiddenNorm(&of, w, name, x)
}

// hiddenNorm norms x (T, h): by LayerNorm if the model has it, else by RMSNorm. The names of the norm's tensors begin
// with name. If name is "", there is no norm, and it returns x.
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

// norm returns the RMSNorm of x with weights w. Each group of len(w) consecutive elements is normed on its own.
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

// attention returns causal softmax(scale·q·kᵀ)·v of one sequence in block i, with shared key/value heads. Values may be
// narrower or wider than keys. sinks has one more score for each head; every softmax of the head includes it, with a
// value vector of 0. nil: no sinks. chosen has the keys that each token attends to; nil: all.
func attention(cfg *model.Config, i int, q, k, v, sinks []float64, chosen []map[int]bool) []float64 {
	d, dv, kvHeads := cfg.Heads(i).Dim, cfg.OutputCols(i)/cfg.NumHeads, cfg.Heads(i).KV
	group := cfg.NumHeads / kvHeads
	width, kWidth, vWidth := cfg.NumHeads*d, kvHeads*d, kvHeads*dv
	tokens := len(q) / width
	o := make([]float64, tokens*cfg.NumHeads*dv)
	scale := cfg.AttnScale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	if cfg.MLA != nil {
		scale *= mlaTemperature(cfg.Rope)
	}
	for h := range cfg.NumHeads {
		kv := h / group
		for t := range tokens {
			first := 0
			if n := cfg.Window(i); n > 0 {
				first = max(0, t+1-n)
			}
			if n := cfg.AttentionChunk(i); n > 0 {
				first = t - t%n
			}
			qr, out := q[t*width+h*d:][:d], o[(t*cfg.NumHeads+h)*dv:][:dv]
			scores := make([]float64, 0, t+1-first)
			for j := first; j <= t; j++ {
				score := softcap(dot(qr, k[j*kWidth+kv*d:][:d])*scale, cfg.AttnSoftcap)
				if chosen != nil && !chosen[t][j] {
					score = math.Inf(-1)
				}
				scores = append(scores, score)
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

// Derivative returns df/ds at 0, as a central difference of fourth order. Its truncation error is step⁴·f⁽⁵⁾/30. If f
// changes over an s of about one, this is far below fp32 rounding.
func Derivative(f func(s float64) float64) float64 {
	const step = 1e-3
	return (8*(f(step)-f(-step)) - (f(2*step) - f(-2*step))) / (12 * step)
}

// Perturbed adds s·dir[i] to x[i] for all i, calls f, restores x, and returns f's result.
func Perturbed(f func() float64, x, dir []float64, s float64) float64 {
	was := append([]float64(nil), x...)
	for i, d := range dir {
		x[i] += s * d
	}
	v := f()
	copy(x, was)
	return v
}

// mlaHeads returns q and k (T, H, D) and v (T, H, V) of block i with MLA, from its normed input n. The last elements of
// queries and keys are rotated; all heads have the same rotated elements of keys. Source: arXiv:2405.04434, section
// 2.1.
func mlaHeads(cfg *model.Config, w Weights, i int, n []float64) (q, k, v []float64) {
	l, heads, tokens := cfg.MLA, cfg.NumHeads, len(n)/cfg.HiddenSize
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
	if cfg.Turns(i) {
		rope(cfg, cfg.Rope, qTurns, tokens, l.RopeDim)
		rope(cfg, cfg.Rope, kTurns, tokens, l.RopeDim)
	}
	q = nil
	for t := range tokens {
		for h := range heads {
			at := t*heads + h
			q = append(append(q, qStays[at*l.NopeDim:][:l.NopeDim]...), qTurns[at*l.RopeDim:][:l.RopeDim]...)
			k = append(append(k, kStays[at*l.NopeDim:][:l.NopeDim]...), kTurns[t*l.RopeDim:][:l.RopeDim]...)
		}
	}
	scaleQueries(cfg, i, q)
	return q, k, v
}

// chosenKeys returns for each token the keys that the indexer of block i chooses, given the block's normed input n; nil:
// all. Among equal scores it chooses the first. Source: arXiv:2512.02556, section 2.1.
func chosenKeys(cfg *model.Config, w Weights, i int, n []float64) []map[int]bool {
	tokens := len(n) / cfg.HiddenSize
	if !cfg.Chooses(tokens) {
		return nil
	}
	l, x := cfg.MLA, cfg.MLA.Indexer
	weight := func(s string) []float64 { return w[tensor(i, "self_attn."+s)] }
	turning := *cfg
	turning.RopeInterleaved = x.Interleaved
	turn := func(v []float64) []float64 {
		turns, stays := columns(v, l.RopeDim, x.HeadDim-l.RopeDim)
		rope(&turning, cfg.Rope, turns, tokens, l.RopeDim)
		var out []float64
		for h := range len(v) / x.HeadDim {
			out = append(append(out, turns[h*l.RopeDim:][:l.RopeDim]...), stays[h*(x.HeadDim-l.RopeDim):][:x.HeadDim-l.RopeDim]...)
		}
		return out
	}
	latent := rmsNorm(linear(n, weight("q_a_proj.weight"), weight("q_a_proj.bias"), cfg.HiddenSize), weight("q_a_layernorm.weight"), float64(l.NormEps), float64(cfg.NormOffset))
	q := turn(linear(latent, weight("indexer.wq_b.weight"), nil, l.QRank))
	keys := linear(n, weight("indexer.wk.weight"), nil, cfg.HiddenSize)
	ln := *cfg
	ln.LayerNorm, ln.RMSNormEps = true, 1e-6
	keys = hiddenNorm(&ln, w, tensor(i, "self_attn.indexer.k_norm"), keys)
	keys = turn(keys)
	heads := linear(n, weight("indexer.weights_proj.weight"), nil, cfg.HiddenSize)
	out := make([]map[int]bool, tokens)
	for t := range out {
		scores, order := make([]float64, t+1), make([]int, t+1)
		for j := range scores {
			order[j] = j
			for h := range x.Heads {
				scores[j] += heads[t*x.Heads+h] * max(0, dot(q[(t*x.Heads+h)*x.HeadDim:][:x.HeadDim], keys[j*x.HeadDim:][:x.HeadDim]))
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
		out[t] = map[int]bool{}
		for _, j := range order[:min(t+1, x.TopK)] {
			out[t][j] = true
		}
	}
	return out
}

// columns splits every row of x, which has a+b elements, into its first a and its last b elements.
func columns(x []float64, a, b int) (left, right []float64) {
	for at := 0; at < len(x); at += a + b {
		left, right = append(left, x[at:at+a]...), append(right, x[at+a:at+a+b]...)
	}
	return left, right
}

// mlaTemperature returns the factor with which yarn multiplies the attention scores of MLA. Source: transformers,
// modeling_deepseek_v3.
func mlaTemperature(r model.Rope) float64 {
	if r.Type != "yarn" || r.MScaleAllDim == 0 {
		return 1
	}
	m := 1 + 0.1*r.MScaleAllDim*math.Log(max(r.Factor, 1))
	return m * m
}

// Routing adds up the choices and scores of a router over all calls of MoE that get the same Routing.
type Routing struct {
	Rows   int       // tokens, counted once per layer
	Counts []float64 // by expert: how many rows chose it
	Probs  []float64 // by expert: the sum of its scores, chosen or not
	Chosen []int     // the experts of every row, in the order in which they were chosen
}

// AuxLoss returns the auxiliary loss of r: coefficient · experts · Σ (Counts/Rows)·(Probs/Rows). Source:
// arXiv:2101.03961, in the form of Transformers' load_balancing_loss_func.
func (r *Routing) AuxLoss(cfg *model.Config) float64 {
	var sum float64
	for e, n := range r.Counts {
		sum += n / float64(r.Rows) * r.Probs[e] / float64(r.Rows)
	}
	return cfg.RouterAuxLossCoef * float64(cfg.NumExperts) * sum
}

func (r *Routing) take(p []float64, chosen []int) {
	if r == nil {
		return
	}
	if r.Counts == nil {
		r.Counts, r.Probs = make([]float64, len(p)), make([]float64, len(p))
	}
	r.Rows++
	for e, v := range p {
		r.Probs[e] += v
	}
	for _, e := range chosen {
		r.Counts[e]++
	}
	r.Chosen = append(r.Chosen, chosen...)
}

// MoE returns x + experts(norm(x)) for x (T, h): the second half of a block i with experts. r, unless nil, accumulates
// the routing.
func MoE(cfg *model.Config, w Weights, i int, x []float64, r *Routing) []float64 {
	if cfg.DenseBesideExperts {
		return denseAndExperts(cfg, w, i, x, r)
	}
	around := normsOf(w, i)
	n, h := hiddenNorm(cfg, w, around.mlp, x), cfg.HiddenSize
	in := tensor(i, "mlp.")
	y, router, by := append([]float64(nil), x...), in+"gate", cmp.Or(cfg.ResidualScale, 1)
	if around.mlpOut != "" { // the norm's output is scaled
		clear(y)
		by = 1
	}
	for t := range len(n) / h {
		row, out := n[t*h:(t+1)*h], y[t*h:(t+1)*h]
		logits := linear(row, w[router+".weight"], w[router+".bias"], h)
		p := scores(cfg, logits)
		chosen := choose(cfg, p, w[router+".e_score_correction_bias"])
		r.take(p, chosen)
		weights := expertWeights(cfg, p, chosen)
		if cfg.SparseMixer > 0 {
			weights = sparseMixerWeights(cfg, logits, chosen)
		}
		for k, weight := range weights {
			expert := fmt.Sprintf("%sexperts.%d.", in, chosen[k])
			if cfg.WeightedInputs {
				weighted := make([]float64, h)
				addScaled(weighted, weight, row)
				addScaled(out, by, mlp(cfg, w, expert, weighted))
				continue
			}
			addScaled(out, by*weight, mlp(cfg, w, expert, row))
		}
		if shared := in + "shared_experts."; w[shared+"down_proj.weight"] != nil {
			addScaled(out, by*sharedWeight(w[in+"shared_expert_gate.weight"], row), mlp(cfg, w, shared, row))
		}
	}
	if around.mlpOut != "" {
		return residual(cfg, x, outNorm(cfg, w, around.mlpOut, y))
	}
	return y
}

// denseAndExperts does the work of MoE for a block with a dense MLP beside the experts. Source: transformers,
// modeling_gemma4.
func denseAndExperts(cfg *model.Config, w Weights, i int, x []float64, r *Routing) []float64 {
	h := cfg.HiddenSize
	normed := func(s string, x []float64) []float64 { return norm(cfg, x, w[tensor(i, s)]) }
	dense := mlp(cfg, w, tensor(i, "mlp."), normed("pre_feedforward_layernorm.weight", x))
	n, routed := normed("pre_feedforward_layernorm_2.weight", x), normed("router.scale", x)
	sum := make([]float64, len(x))
	for t := range len(x) / h {
		logits := linear(routed[t*h:(t+1)*h], w[tensor(i, "mlp.gate.weight")], nil, h)
		for e := range logits {
			logits[e] /= math.Sqrt(float64(h))
		}
		p := scores(cfg, logits)
		chosen := choose(cfg, p, nil)
		r.take(p, chosen)
		for k, weight := range expertWeights(cfg, p, chosen) {
			weight *= w[tensor(i, "router.per_expert_scale")][chosen[k]]
			addScaled(sum[t*h:(t+1)*h], weight, mlp(cfg, w, tensor(i, fmt.Sprintf("mlp.experts.%d.", chosen[k])), n[t*h:(t+1)*h]))
		}
	}
	both := residual(cfg, normed("post_feedforward_layernorm_1.weight", dense), normed("post_feedforward_layernorm_2.weight", sum))
	y := residual(cfg, x, normed("post_feedforward_layernorm.weight", both))
	if by := w[tensor(i, "layer_scalar")]; by != nil {
		for j := range y {
			y[j] *= by[0]
		}
	}
	return y
}

// scores returns the score of every expert for one row (one token), from the router's logits: sigmoids or a softmax.
func scores(cfg *model.Config, logits []float64) []float64 {
	p, lse := make([]float64, len(logits)), logSumExp(logits)
	for e, v := range logits {
		if cfg.SigmoidScores {
			p[e] = sigmoid(v)
		} else {
			p[e] = math.Exp(v - lse)
		}
	}
	return p
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// choose returns the experts that the router chooses for one row, the best first. p has the scores of all experts. An
// expert's rank is by its score, plus its bias unless bias is nil. With groups of experts, only experts in the best
// groups are chosen.
func choose(cfg *model.Config, p, bias []float64) []int {
	keys := append([]float64(nil), p...)
	for e, b := range bias {
		keys[e] += b
	}
	if cfg.ExpertGroups > 0 {
		size, worth := len(keys)/cfg.ExpertGroups, make([]float64, cfg.ExpertGroups)
		for g := range worth {
			for _, e := range largest(keys[g*size:(g+1)*size], cfg.GroupBest) {
				worth[g] += keys[g*size+e]
			}
		}
		open := largest(worth, cfg.OpenGroups)
		for e := range keys {
			if !slices.Contains(open, e/size) {
				keys[e] = math.Inf(-1)
			}
		}
	}
	return largest(keys, cfg.NumExpertsPerTok)
}

// expertWeights returns the weight of each chosen expert, from the scores p of all experts.
func expertWeights(cfg *model.Config, p []float64, chosen []int) []float64 {
	out, all := make([]float64, len(chosen)), 1.0
	if cfg.NormTopKProb {
		all = 0
		for _, e := range chosen {
			all += p[e]
		}
	}
	for k, e := range chosen {
		out[k] = p[e] / all
		if cfg.RoutedScale != 0 {
			out[k] *= cfg.RoutedScale
		}
	}
	return out
}

// sparseMixerWeights returns the weights of the chosen experts by SparseMixer. An expert's weight is its share of a
// softmax over the experts with a similar logit; experts chosen earlier are left out.
func sparseMixerWeights(cfg *model.Config, logits []float64, chosen []int) (out []float64) {
	for k, e := range chosen {
		top, sum := logits[e], 0.0
		for i, s := range logits {
			if !slices.Contains(chosen[:k], i) && (top-s)/max(math.Abs(s), top) <= 2*cfg.SparseMixer {
				sum += math.Exp(s - top)
			}
		}
		out = append(out, 1/sum)
	}
	return out
}

// sharedWeight returns the factor for a shared expert's output: sigmoid(gate·row), or 1 without a gate.
func sharedWeight(gate, row []float64) float64 {
	if gate == nil {
		return 1
	}
	return sigmoid(dot(gate, row))
}

func addScaled(out []float64, by float64, x []float64) {
	for c, v := range x {
		out[c] += by * v
	}
}

// AuxLoss returns the auxiliary loss of a step with these sequences, over all layers with experts; 0 if the model has
// none.
func AuxLoss(cfg *model.Config, w Weights, seqs []Sequence) float64 {
	if !cfg.OutputRouterLogits || cfg.NumExperts == 0 {
		return 0
	}
	var r Routing
	for _, s := range seqs {
		x := embed(cfg, w, s)
		for i := range cfg.NumLayers {
			if cfg.HasExperts(i) {
				x = MoE(cfg, w, i, Attention(cfg, w, i, x), &r)
			} else {
				x = Block(cfg, w, i, x)
			}
		}
	}
	return r.AuxLoss(cfg)
}

// largest returns the indices of the k largest elements of p, the largest first.
func largest(p []float64, k int) []int {
	var out []int
	taken := make([]bool, len(p))
	for range k {
		best := -1
		for e, v := range p {
			if !taken[e] && (best < 0 || v > p[best]) {
				best = e
			}
		}
		taken[best] = true
		out = append(out, best)
	}
	return out
}

// gatedDelta returns the output of a gated delta net for its normed input n, computed token by token. Source:
// arXiv:2412.06464, equation 10; transformers, modeling_qwen3_next.
func gatedDelta(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	r, h := cfg.GatedDeltaNet, cfg.HiddenSize
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
			o := deltaStep(states[head], q, k, row[2*r.Keys()+head*r.ValueDim:][:r.ValueDim], beta, []float64{decay})
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

// recurrence returns the output of block i's recurrence for its normed input n.
func recurrence(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	switch {
	case cfg.ShortConv != nil:
		return gatedShortConv(cfg, w, i, n)
	case cfg.Mamba2 != nil:
		return mamba2(cfg, w, i, n)
	case cfg.KDA != nil:
		return kda(cfg, w, i, n)
	}
	return gatedDelta(cfg, w, i, n)
}

// kda returns the output of KDA for its normed input n, computed token by token. Source: arXiv:2510.26692, equation 1;
// transformers, modeling_kimi_linear.
func kda(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	r, h := cfg.KDA, cfg.HiddenSize
	weight := func(s string) []float64 { return w[tensor(i, "self_attn."+s)] }
	product := func(s string) []float64 { return linear(n, weight(s+".weight"), nil, h) }
	mixed := func(s string) []float64 {
		return shortConv(product(s+"_proj"), weight(s+"_conv1d.weight"), r.Width(), r.Taps)
	}
	widened := func(s string) []float64 { return linear(product(s+"_a_proj"), weight(s+"_b_proj.weight"), nil, r.Dim) }
	q, k, v, b, rates, z := mixed("q"), mixed("k"), mixed("v"), product("b_proj"), widened("f"), widened("g")
	out, states := make([]float64, 0, len(z)), make([][]float64, r.Heads)
	for j := range states {
		states[j] = make([]float64, r.Dim*r.Dim)
	}
	for t := range len(n) / h {
		for head := range r.Heads {
			at, decay := (t*r.Heads+head)*r.Dim, make([]float64, r.Dim)
			for c := range decay {
				decay[c] = math.Exp(-math.Exp(weight("A_log")[head]) * math.Log1p(math.Exp(rates[at+c]+weight("dt_bias")[head*r.Dim+c])))
			}
			o := deltaStep(states[head], unit(q[at:][:r.Dim]), unit(k[at:][:r.Dim]), v[at:][:r.Dim], sigmoid(b[t*r.Heads+head]), decay)
			for e := range o {
				o[e] /= math.Sqrt(float64(r.Dim))
			}
			for e, x := range rmsNorm(o, weight("o_norm.weight"), float64(cfg.RMSNormEps), 0) {
				out = append(out, x*sigmoid(z[at+e]))
			}
		}
	}
	return linear(out, weight("o_proj.weight"), nil, r.Width())
}

// mamba2 returns the output of a Mamba-2 mixer, computed token by token. Source: arXiv:2405.21060, section 6;
// transformers, modeling_granitemoehybrid.
func mamba2(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	r, h := cfg.Mamba2, cfg.HiddenSize
	weight := func(s string) []float64 { return w[tensor(i, "mamba."+s)] }
	in := linear(n, weight("in_proj.weight"), weight("in_proj.bias"), h)
	columns, inner, conv, by := r.Columns(), r.Inner(), r.Convolved(), multipliers(cfg)
	for j := range in {
		at, of := j%columns, 0
		for _, n := range []int{inner, inner, r.Groups * r.StateDim, r.Groups * r.StateDim} {
			if at < n {
				break
			}
			at, of = at-n, of+1
		}
		in[j] *= by.ScanIn[of]
	}
	var xbc []float64
	for t := range len(n) / h {
		xbc = append(xbc, in[t*columns+inner:][:conv]...)
	}
	xbc = convolution(xbc, weight("conv1d.weight"), weight("conv1d.bias"), conv, r.Taps)
	for j, v := range xbc {
		xbc[j] = v * sigmoid(v)
	}
	out, state := make([]float64, 0, len(n)/h*inner), make([]float64, inner*r.StateDim)
	for t := range len(n) / h {
		row, y := xbc[t*conv:][:conv], make([]float64, inner)
		for p := range y {
			head := p / r.HeadDim
			group := head / (r.Heads / r.Groups) * r.StateDim
			dt := math.Log1p(math.Exp(in[t*columns+inner+conv+head] + weight("dt_bias")[head]))
			dt = min(max(dt, r.DtMin), r.DtMax)
			y[p] = weight("D")[head] * row[p]
			for k := range r.StateDim {
				s := &state[p*r.StateDim+k]
				*s = *s*math.Exp(-math.Exp(weight("A_log")[head])*dt) + dt*row[p]*row[inner+group+k]
				y[p] += *s * row[inner+r.Groups*r.StateDim+group+k]
			}
			z := in[t*columns+p]
			y[p] *= z * sigmoid(z)
		}
		if r.NoNorm {
			for _, v := range y {
				out = append(out, by.ScanOut*v)
			}
			continue
		}
		width := inner / r.Groups
		for g := range r.Groups {
			out = append(out, rmsNorm(y[g*width:][:width], weight("norm.weight")[g*width:][:width], float64(cfg.RMSNormEps), 0)...)
		}
	}
	for j := range out {
		if !r.NoNorm {
			out[j] *= by.ScanOut
		}
	}
	return linear(out, weight("out_proj.weight"), weight("out_proj.bias"), inner)
}

// gatedShortConv returns the output of a gated short convolution. Source: transformers, modeling_lfm2.
func gatedShortConv(cfg *model.Config, w Weights, i int, n []float64) []float64 {
	weight := func(s string) []float64 { return w[tensor(i, "conv."+s)] }
	h := cfg.HiddenSize
	in := linear(n, weight("in_proj.weight"), weight("in_proj.bias"), h)
	x := make([]float64, 0, len(n))
	for t := range len(n) / h {
		for j := range h {
			x = append(x, in[t*3*h+j]*in[t*3*h+2*h+j])
		}
	}
	y := convolution(x, weight("conv.weight"), weight("conv.bias"), h, cfg.ShortConv.Taps)
	for j := range y {
		y[j] *= in[j/h*3*h+h+j%h]
	}
	return linear(y, weight("out_proj.weight"), weight("out_proj.bias"), h)
}

// shortConv returns SiLU(convolution(x, taps)) without a bias; x is (T, columns), with n taps for each column.
func shortConv(x, taps []float64, columns, n int) []float64 {
	y := convolution(x, taps, nil, columns, n)
	for i, v := range y {
		y[i] = v * sigmoid(v)
	}
	return y
}

// convolution returns the causal convolution of each column of x (T, columns) with its own n taps. bias may be nil.
func convolution(x, taps, bias []float64, columns, n int) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		if bias != nil {
			y[i] = bias[i%columns]
		}
		for j := range n {
			if at := i - (n-1-j)*columns; at >= 0 {
				y[i] += taps[i%columns*n+j] * x[at]
			}
		}
	}
	return y
}

// deltaStep advances the state (keys, values) of one head by one token, by the gated delta rule, and returns q·state.
// beta is the token's update rate and decay the factor on the old state.
func deltaStep(state, q, k, v []float64, beta float64, decay []float64) []float64 {
	values := len(v)
	memory, out := make([]float64, values), make([]float64, values)
	for n := range state {
		state[n] *= decay[n/values%len(decay)]
		memory[n%values] += state[n] * k[n/values]
	}
	for n := range state {
		state[n] += k[n/values] * beta * (v[n%values] - memory[n%values])
		out[n%values] += state[n] * q[n/values]
	}
	return out
}

// unit returns x scaled to length 1; an epsilon of 1e-6 in the root keeps a zero vector finite.
func unit(x []float64) (y []float64) {
	r := 1 / math.Sqrt(dot(x, x)+1e-6)
	for _, v := range x {
		y = append(y, r*v)
	}
	return y
}

// Frequencies returns the rotary embedding's angle per position for every rotated pair of elements, in a document of
// length tokens. Sources: Llama 3.1 (llama3); arXiv:2306.15595 and its successors (linear, dynamic); arXiv:2309.00071
// (yarn); arXiv:2402.13753 (longrope).
func Frequencies(cfg *model.Config, r model.Rope, length int) []float64 {
	dim := float64(cfg.HeadDim)
	if r.Dim != 0 {
		dim = float64(r.Dim)
	}
	if cfg.MLA != nil {
		dim = float64(cfg.MLA.RopeDim)
	}
	turning := dim
	if r.Partial != 0 {
		turning = math.Floor(dim * r.Partial)
	}
	if r.Type != "proportional" {
		dim = turning
	}
	theta := r.Theta
	if r.Alpha > 0 {
		theta *= math.Pow(r.Alpha, dim/(dim-2))
	}
	if r.Type == "dynamic" && length > cfg.MaxPositions {
		stretch := r.Factor*float64(length)/float64(cfg.MaxPositions) - r.Factor + 1
		theta *= math.Pow(stretch, dim/(dim-2))
	}
	f := make([]float64, int(dim)/2)
	for i := range f {
		f[i] = math.Pow(theta, -2*float64(i)/dim)
		switch r.Type {
		case "linear":
			f[i] /= r.Factor
		case "proportional":
			if r.Factor != 0 {
				f[i] /= r.Factor
			}
			if float64(i) >= math.Floor(turning/2) {
				f[i] = 0
			}
		case "llama3":
			turns := float64(r.OriginalMaxPositions) * f[i] / (2 * math.Pi)
			keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			keep = min(max(keep, 0), 1)
			f[i] *= keep + (1-keep)/r.Factor
		case "yarn":
			keep := yarnKeeps(r, dim, float64(i))
			f[i] *= keep + (1-keep)/r.Factor
		case "longrope":
			by := r.ShortFactor
			if length > r.OriginalMaxPositions {
				by = r.LongFactor
			}
			f[i] /= by[i]
		}
	}
	return f
}

// yarnKeeps returns the share of its frequency that yarn leaves to rotated pair i. It is 1 for pairs with a high
// frequency and 0 for pairs with a low one; in between it falls linearly.
func yarnKeeps(r model.Rope, dim, i float64) float64 {
	pairThatTurns := func(times float64) float64 {
		return dim / 2 * math.Log(float64(r.OriginalMaxPositions)/(2*math.Pi*times)) / math.Log(r.Theta)
	}
	fast, slow := 32.0, 1.0
	if r.BetaFast != 0 {
		fast = r.BetaFast
	}
	if r.BetaSlow != 0 {
		slow = r.BetaSlow
	}
	low, high := pairThatTurns(fast), pairThatTurns(slow)
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	return 1 - min(max((i-low)/(high-low), 0), 1)
}

// amplitude returns the factor with which the rope type multiplies cos and sin in a document of length tokens.
func amplitude(cfg *model.Config, r model.Rope, length int) float64 {
	temperature := func(m float64) float64 { return 1 + 0.1*m*math.Log(max(r.Factor, 1)) }
	if r.ShortMScale != 0 {
		if length > r.OriginalMaxPositions {
			return r.LongMScale
		}
		return r.ShortMScale
	}
	switch {
	case r.AttentionFactor != 0:
		return r.AttentionFactor
	case r.Type == "yarn" && r.MScale*r.MScaleAllDim != 0:
		return temperature(r.MScale) / temperature(r.MScaleAllDim)
	case r.Type == "yarn":
		return temperature(1)
	case r.Type == "longrope":
		original := float64(r.OriginalMaxPositions)
		factor := r.Factor
		if factor == 0 {
			factor = float64(cfg.MaxPositions) / original
		}
		return math.Sqrt(1 + math.Log(max(factor, 1))/math.Log(original))
	}
	return 1
}

// rope rotates the heads of x (tokens, heads, d) in place. Element i forms a pair with the element half the rotated
// width further on. If the model interleaves, elements 2i and 2i+1 form a pair.
func rope(cfg *model.Config, r model.Rope, x []float64, tokens, d int) {
	heads := len(x) / (tokens * d)
	freq, by := Frequencies(cfg, r, tokens), amplitude(cfg, r, tokens)
	for t := range tokens {
		for i, f := range freq {
			sin, cos := math.Sincos(float64(t) * f)
			for h := range heads {
				p := (t*heads + h) * d
				first, second := p+i, p+i+len(freq)
				if cfg.RopeInterleaved {
					first, second = p+2*i, p+2*i+1
				}
				a, b := x[first], x[second]
				x[first], x[second] = by*(a*cos-b*sin), by*(b*cos+a*sin)
			}
		}
	}
}

// Pair is a chosen and a rejected answer to a prompt, each with the prompt in front. Reference is the log p of the two
// answers' supervised tokens by the reference model.
type Pair struct {
	Chosen, Rejected Sequence
	Reference        [2]float64
}

// PreferenceLoss returns the mean loss of pairs, plus likelihood times the mean of −log p over the supervised tokens of
// all chosen answers. lossOf returns the loss of a pair from the two answers' sums of −log p and numbers of supervised
// tokens.
func PreferenceLoss(cfg *model.Config, w Weights, pairs []Pair, lossOf func(p Pair, sums [2]float64, targets [2]int) float64, likelihood float64) float64 {
	var loss, nats float64
	tokens := 0
	for _, p := range pairs {
		var sums [2]float64
		var counts [2]int
		for side, s := range [2]Sequence{p.Chosen, p.Rejected} {
			sums[side], counts[side] = SumOfLosses(cfg, w, s)
		}
		loss, nats, tokens = loss+lossOf(p, sums, counts), nats+sums[0], tokens+counts[0]
	}
	return loss/float64(len(pairs)) + likelihood*nats/float64(tokens)
}

// SumOfLosses returns the sum of −log p over the supervised tokens of a sequence, and their number.
func SumOfLosses(cfg *model.Config, w Weights, s Sequence) (sum float64, n int) {
	logits := logits(cfg, w, s)
	for t, target := range s.Targets {
		if target < 0 {
			continue
		}
		row := logits[t*cfg.VocabSize : (t+1)*cfg.VocabSize]
		sum, n = sum+logSumExp(row)-row[target], n+1
	}
	return sum, n
}
