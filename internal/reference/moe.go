package reference

import (
	"fmt"
	"math"

	"mt/model"
)

// Routing adds up what routers did in all the calls of MoE that it was passed to.
type Routing struct {
	Rows   int       // tokens, once for every layer
	Counts []float64 // by expert: how many rows chose it
	Probs  []float64 // by expert: the sum of its probabilities, chosen or not
	Chosen []int     // the experts of every row, the most probable first
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
	y := append([]float64(nil), x...)
	router := tensor(i, "mlp.gate")
	if w[router+".weight"] == nil {
		router = tensor(i, "mlp.router")
	}
	for t := range len(n) / h {
		row := n[t*h : (t+1)*h]
		p := linear(row, w[router+".weight"], w[router+".bias"], h)
		lse := logSumExp(p)
		for e, v := range p {
			p[e] = math.Exp(v - lse)
		}
		chosen := largest(p, cfg.NumExpertsPerTok)
		r.take(p, chosen)
		all := 1.0
		if cfg.NormTopKProb {
			all = 0
			for _, e := range chosen {
				all += p[e]
			}
		}
		for _, e := range chosen {
			for c, v := range mlp(cfg, w, tensor(i, fmt.Sprintf("mlp.experts.%d.", e)), row) {
				y[t*h+c] += p[e] / all * v
			}
		}
	}
	return y
}

// AuxLoss is the auxiliary loss of a step with these sequences, over all layers
// with experts; 0 where the model has no such loss.
func AuxLoss(cfg *model.Config, w Weights, seqs []Sequence) float64 {
	if !cfg.OutputRouterLogits || cfg.NumExperts == 0 {
		return 0
	}
	var r Routing
	for _, s := range seqs {
		x := embed(cfg, w, s.IDs)
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
