package model

import "slices"

var mixtralTensors = tensors{
	RoleRouter:       {"block_sparse_moe.gate.weight"},
	RoleExpertGateUp: {"block_sparse_moe.experts." + expertNumber + ".w1.weight", "block_sparse_moe.experts." + expertNumber + ".w3.weight"},
	RoleExpertDown:   {"block_sparse_moe.experts." + expertNumber + ".w2.weight"},
}

// Mixtral has experts in every block, of the width intermediate_size. The chosen experts' weights sum to 1. Source:
// arXiv:2401.04088; transformers.MixtralConfig.
func init() {
	register(family{
		arch: "MixtralForCausalLM", modelType: "mixtral",
		tensors: mixtralTensors,
		defaults: map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8,
			"num_experts_per_tok": 2},
		keys: slices.Concat([]string{"sliding_window", "layer_types"}, mixtralKeys),
		options: func(c *Config, f *fields) {
			c.mixtralExperts(f)
			c.uniformWindow(f)
		},
		write: func(c *Config, m map[string]any) {
			m["num_local_experts"], m["num_experts_per_tok"] = c.NumExperts, c.NumExpertsPerTok
			m["sliding_window"], m["router_jitter_noise"] = optional(c.SlidingWindow), float(0)
			c.balanceJSON(m)
		},
	})
}

// mixtralKeys are the keys of config.json that Config.mixtralExperts reads.
var mixtralKeys = slices.Concat([]string{"num_experts", "num_local_experts", "num_experts_per_tok", "router_jitter_noise"}, balanceKeys)

// mixtralExperts reads the experts of models that have them in every block and whose experts are
// intermediate_size wide.
func (c *Config) mixtralExperts(f *fields) {
	c.NumExperts = f.need("num_local_experts", 1, maxExperts)
	if n := f.int("num_experts", c.NumExperts, 0, maxExperts); n != c.NumExperts {
		f.fail("num_experts", "%d, and num_local_experts is %d; remove one of them", n, c.NumExperts)
	}
	c.NumExpertsPerTok = f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize, c.NormTopKProb, c.DecoderSparseStep = c.IntermediateSize, true, 1
	c.balance(f)
	c.expertBounds(f, "num_local_experts")
	f.noNoise("router_jitter_noise")
}
