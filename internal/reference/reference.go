package reference

import (
	"fmt"
	"math"

	"mt/model"
)

// Weights are a model's tensors, row-major, by their names in a Hugging Face
// checkpoint ("model.layers.0.self_attn.q_proj.weight"). A bias or q/k norm is
// applied where it is present; lm_head.weight may lack when it is tied.
type Weights map[string][]float64

// Sequence is one document: attention and positions start with it.
type Sequence struct {
	IDs []int32
	// Targets are the tokens to predict at each place, shifted already; negative
	// where none is.
	Targets []int32
}

// Loss is the sum of −log p over all targets by their number.
func Loss(cfg *model.Config, w Weights, seqs []Sequence) float64 {
	var sum float64
	var n int
	for _, s := range seqs {
		logits := Logits(cfg, w, s.IDs)
		for t, target := range s.Targets {
			if target < 0 {
				continue
			}
			row := logits[t*cfg.VocabSize : (t+1)*cfg.VocabSize]
			sum += logSumExp(row) - row[target]
			n++
		}
	}
	return sum / float64(n)
}

// Logits is the (T, V) logits of one sequence.
func Logits(cfg *model.Config, w Weights, ids []int32) []float64 {
	x := make([]float64, 0, len(ids)*cfg.HiddenSize)
	for _, id := range ids {
		at := int(id) * cfg.HiddenSize
		x = append(x, w["model.embed_tokens.weight"][at:at+cfg.HiddenSize]...)
	}
	for i := range cfg.NumLayers {
		x = Block(cfg, w, i, x)
	}
	head := w["lm_head.weight"]
	if head == nil {
		head = w["model.embed_tokens.weight"]
	}
	return linear(norm(cfg, x, w["model.norm.weight"]), head, nil, cfg.HiddenSize)
}

// Block is the output (T, h) of decoder block i for one sequence x (T, h).
func Block(cfg *model.Config, w Weights, i int, x []float64) []float64 {
	name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s", i, s) }
	project := func(s string, in []float64, width int) []float64 {
		return linear(in, w[name(s+".weight")], w[name(s+".bias")], width)
	}
	n := norm(cfg, x, w[name("input_layernorm.weight")])
	q := project("self_attn.q_proj", n, cfg.HiddenSize)
	k := project("self_attn.k_proj", n, cfg.HiddenSize)
	v := project("self_attn.v_proj", n, cfg.HiddenSize)
	if qw := w[name("self_attn.q_norm.weight")]; qw != nil {
		q, k = norm(cfg, q, qw), norm(cfg, k, w[name("self_attn.k_norm.weight")])
	}
	rope(cfg, q, cfg.NumHeads)
	rope(cfg, k, cfg.NumKVHeads)
	o := attention(cfg, q, k, v)
	x2 := add(x, project("self_attn.o_proj", o, cfg.NumHeads*cfg.HeadDim))
	n = norm(cfg, x2, w[name("post_attention_layernorm.weight")])
	gate, up := project("mlp.gate_proj", n, cfg.HiddenSize), project("mlp.up_proj", n, cfg.HiddenSize)
	for j, g := range gate {
		up[j] *= g / (1 + math.Exp(-g))
	}
	return add(x2, project("mlp.down_proj", up, cfg.IntermediateSize))
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
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

// norm is RMSNorm over groups of len(w) elements.
func norm(cfg *model.Config, x, w []float64) []float64 {
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += len(w) {
		var sum float64
		for _, v := range x[at : at+len(w)] {
			sum += v * v
		}
		r := 1 / math.Sqrt(sum/float64(len(w))+float64(cfg.RMSNormEps))
		for i, wv := range w {
			y[at+i] = x[at+i] * r * wv
		}
	}
	return y
}

// Frequencies are the rotary embedding's angles per position, for each of the
// HeadDim/2 pairs. Type llama3 lowers slow ones as Llama 3.1 does.
func Frequencies(cfg *model.Config) []float64 {
	r := cfg.Rope
	f := make([]float64, cfg.HeadDim/2)
	for i := range f {
		f[i] = math.Pow(r.Theta, -2*float64(i)/float64(cfg.HeadDim))
		if r.Type != "llama3" {
			continue
		}
		turns := float64(r.OriginalMaxPositions) * f[i] / (2 * math.Pi)
		keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
		keep = min(max(keep, 0), 1)
		f[i] *= keep + (1-keep)/r.Factor
	}
	return f
}

// rope rotates the heads of x (T, heads, D) in place: element i with i + D/2.
func rope(cfg *model.Config, x []float64, heads int) {
	freq, d := Frequencies(cfg), cfg.HeadDim
	for t := range len(x) / (heads * d) {
		for i, f := range freq {
			sin, cos := math.Sincos(float64(t) * f)
			for h := range heads {
				p := (t*heads + h) * d
				a, b := x[p+i], x[p+i+d/2]
				x[p+i], x[p+i+d/2] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
}

// attention is causal softmax(q·kᵀ/√D)·v of one sequence, with key heads shared.
func attention(cfg *model.Config, q, k, v []float64) []float64 {
	d, group := cfg.HeadDim, cfg.NumHeads/cfg.NumKVHeads
	width, kvWidth := cfg.NumHeads*d, cfg.NumKVHeads*d
	tokens := len(q) / width
	o := make([]float64, len(q))
	scores := make([]float64, tokens)
	for h := range cfg.NumHeads {
		kv := h / group * d
		for t := range tokens {
			qr, out := q[t*width+h*d:][:d], o[t*width+h*d:][:d]
			for j := range t + 1 {
				scores[j] = dot(qr, k[j*kvWidth+kv:][:d]) / math.Sqrt(float64(d))
			}
			lse := logSumExp(scores[:t+1])
			for j := range t + 1 {
				p := math.Exp(scores[j] - lse)
				for i, vv := range v[j*kvWidth+kv:][:d] {
					out[i] += p * vv
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

// Derivative is df/ds at 0 by a central difference of fourth order: its
// truncation error is step⁴·f⁽⁵⁾/30, far below fp32's rounding where f varies
// over s of order one.
func Derivative(f func(s float64) float64) float64 {
	const step = 1e-3
	return (8*(f(step)-f(-step)) - (f(2*step) - f(-2*step))) / (12 * step)
}

// Perturbed is f's value with x[i] changed by s·dir[i] for all i, x as it was
// afterwards.
func Perturbed(f func() float64, x, dir []float64, s float64) float64 {
	was := append([]float64(nil), x...)
	for i, d := range dir {
		x[i] += s * d
	}
	v := f()
	copy(x, was)
	return v
}
