package reference

import (
	"fmt"
	"math"
	"slices"

	"mt/model"
)

// Routing adds up what routers did in all the calls of MoE that it was passed to.
type Routing struct {
	Rows   int       // tokens, once for every layer
	Counts []float64 // by expert: how many rows chose it
	Probs  []float64 // by expert: the sum of its scores, chosen or not
	Chosen []int     // the experts of every row, those with the largest keys first
}

// AuxLoss is the auxiliary loss of everything in r: coefficient · experts · Σ
// (Counts/Rows)·(Probs/Rows). Source: arXiv:2101.03961, in the form of
// Transformers' load_balancing_loss_func.
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

// MoE is x + experts(norm(x)) for x (T, h): the second half of block i, where that
// has experts. Unless r is nil, the routing is added to it.
func MoE(cfg *model.Config, w Weights, i int, x []float64, r *Routing) []float64 {
	n, h := hiddenNorm(cfg, w, tensor(i, "post_attention_layernorm"), x), cfg.HiddenSize
	in := tensor(i, "mlp.")
	y, router := append([]float64(nil), x...), in+"gate"
	for t := range len(n) / h {
		row, out := n[t*h:(t+1)*h], y[t*h:(t+1)*h]
		logits := linear(row, w[router+".weight"], w[router+".bias"], h)
		p := scores(cfg, logits)
		chosen := choose(cfg, p, w[router+".e_score_correction_bias"])
		r.take(p, chosen)
		weights := expertWeights(cfg, p, chosen)
		if cfg.NearExperts > 0 {
			weights = nearWeights(cfg, logits, chosen)
		}
		for k, weight := range weights {
			expert := fmt.Sprintf("%sexperts.%d.", in, chosen[k])
			if cfg.WeightedInputs {
				weighted := make([]float64, h)
				addScaled(weighted, weight, row)
				addScaled(out, 1, mlp(cfg, w, expert, weighted))
				continue
			}
			addScaled(out, weight, mlp(cfg, w, expert, row))
		}
		if shared := in + "shared_experts."; w[shared+"down_proj.weight"] != nil {
			addScaled(out, sharedWeight(w[in+"shared_expert_gate.weight"], row), mlp(cfg, w, shared, row))
		}
	}
	return y
}

// scores are the experts' scores of a row, by its logits.
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

// choose are the experts of a row: those with the largest scores, or scores + bias, in the groups
// that are open, the largest first.
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

// expertWeights are those of the chosen experts.
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

// nearWeights are those of the chosen experts where each is a softmax over the experts that stay when the ones before it are out, and
// that are near it.
func nearWeights(cfg *model.Config, logits []float64, chosen []int) (out []float64) {
	for k, e := range chosen {
		top, sum := logits[e], 0.0
		for i, s := range logits {
			if !slices.Contains(chosen[:k], i) && (top-s)/max(math.Abs(s), top) <= 2*cfg.NearExperts {
				sum += math.Exp(s - top)
			}
		}
		out = append(out, 1/sum)
	}
	return out
}

// sharedWeight is what a shared expert's output is multiplied by, 1 without a gate.
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

// AuxLoss is the auxiliary loss of a step with these sequences, over all layers
// with experts; 0 where the model has no such loss.
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

// largest are the indices of the k largest elements of p, the largest first.
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
