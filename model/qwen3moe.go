package model

import "slices"

func init() {
	register(family{
		arch: "Qwen3MoeForCausalLM", modelType: "qwen3_moe",
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     slices.Concat([]string{"attention_bias"}, qwenWindow, expertKeys),
		options: func(c *Config, f *fields) {
			c.QKNorm = true
			c.biases(f)
			c.experts(f)
			if f.bool("use_sliding_window", false) {
				c.uniformWindow(f)
			} else {
				c.noWindow(f)
			}
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"] = c.QKVBias
			m["use_sliding_window"], m["sliding_window"] = c.SlidingWindow > 0, optional(c.SlidingWindow)
			c.expertsJSON(m)
		},
	})
}

// Bounds on experts: what the router's operation takes, and how many parts a
// parameter table may have in all.
const (
	maxExperts     = 1024
	maxExpertsUsed = 32
	maxExpertsAll  = 1 << 17
)

var expertKeys = []string{"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
	"decoder_sparse_step", "mlp_only_layers", "output_router_logits", "router_aux_loss_coef"}

// experts reads what says which blocks have experts, and how many of what size.
// Source: arXiv:2505.09388; transformers.Qwen3MoeConfig.
func (c *Config) experts(f *fields) {
	key := "num_experts"
	if !f.has(key) {
		key = "num_local_experts"
	}
	c.NumExperts = f.int(key, 128, 0, maxExperts)
	c.NumExpertsPerTok = f.int("num_experts_per_tok", 8, 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.int("moe_intermediate_size", 768, 1, maxFFN)
	c.NormTopKProb = f.bool("norm_topk_prob", false)
	c.DecoderSparseStep = f.int("decoder_sparse_step", 1, 1, maxLayers)
	c.MLPOnlyLayers = f.ints("mlp_only_layers", 0, c.NumLayers-1)
	slices.Sort(c.MLPOnlyLayers)
	c.MLPOnlyLayers = slices.Compact(c.MLPOnlyLayers)
	c.OutputRouterLogits = f.bool("output_router_logits", false)
	c.RouterAuxLossCoef = f.float("router_aux_loss_coef", 0.001, 0, 1e6)
	if n := f.int("num_local_experts", c.NumExperts, 0, maxExperts); n != c.NumExperts {
		f.fail("num_local_experts", "%d, and num_experts is %d; remove one of them", n, c.NumExperts)
	}
	if c.NumExperts > 0 && c.NumExpertsPerTok > c.NumExperts {
		f.fail("num_experts_per_tok", "%d of %d experts cannot be chosen", c.NumExpertsPerTok, c.NumExperts)
	}
	if c.NumExperts*c.NumLayers > maxExpertsAll {
		f.fail(key, "%d experts in %d layers are more than %d in all", c.NumExperts, c.NumLayers, maxExpertsAll)
	}
}

func (c *Config) expertsJSON(m map[string]any) {
	m["num_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
	m["norm_topk_prob"], m["decoder_sparse_step"] = c.NormTopKProb, c.DecoderSparseStep
	m["mlp_only_layers"] = append([]int{}, c.MLPOnlyLayers...)
	m["output_router_logits"], m["router_aux_loss_coef"] = c.OutputRouterLogits, float(c.RouterAuxLossCoef)
}
