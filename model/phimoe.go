package model

import "slices"

// Phi-3.5-MoE has LayerNorm, biases of attention and logits, and SparseMixer routing: a chosen expert is weighted by a
// softmax over the experts with similar logits. Source: arXiv:2404.14219, arXiv:2409.12136 (SparseMixer-v2);
// transformers.PhimoeConfig.
func init() {
	experts := "block_sparse_moe.experts." + expertNumber
	register(family{
		arch: "PhimoeForCausalLM", modelType: "phimoe",
		tensors: tensors{
			RoleRouter:       {"block_sparse_moe.gate.weight"},
			RoleExpertGateUp: {experts + ".w1.weight", experts + ".w3.weight"},
			RoleExpertDown:   {experts + ".w2.weight"},
		},
		defaults: map[string]any{"vocab_size": 32064, "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
			"bos_token_id": 1, "eos_token_id": 2, "num_local_experts": 16, "num_experts_per_tok": 2, "router_jitter_noise": 0.01},
		mscales: true,
		prepare: phimoeLength,
		keys: slices.Concat([]string{"attention_bias", "lm_head_bias", "sliding_window", "layer_types", "num_local_experts", "num_experts_per_tok",
			"router_jitter_noise", "input_jitter_noise", "original_max_position_embeddings"}, balanceKeys),
		options: (*Config).phimoe,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["lm_head_bias"], m["sliding_window"] = c.QKVBias, c.HeadBias, optional(c.SlidingWindow)
			m["num_local_experts"], m["num_experts_per_tok"] = c.NumExperts, c.NumExpertsPerTok
			m["router_jitter_noise"], m["input_jitter_noise"] = float(c.SparseMixer), float(0)
			c.balanceJSON(m)
		},
	})
}

// phimoeLength drops the top-level key original_max_position_embeddings if rope_scaling or
// rope_parameters has it too. In PhiMoE the inner key takes precedence, in all other families the
// outer one.
func phimoeLength(f *fields) {
	const key = "original_max_position_embeddings"
	for _, rope := range []string{"rope_scaling", "rope_parameters"} {
		if o, ok := f.vals[rope].(map[string]any); ok && o[key] != nil {
			delete(f.vals, key)
		}
	}
}

// phimoe reads the options. In training, Transformers draws a token's experts at random by their
// logits. mt always chooses as Transformers does in evaluation. Given the same choice, both compute
// the same gradient.
func (c *Config) phimoe(f *fields) {
	c.biases(f)
	c.LayerNorm, c.NormBias, c.HeadBias = true, true, f.bool("lm_head_bias", false)
	c.uniformWindow(f)
	c.NumExperts = f.need("num_local_experts", 2, maxExperts)
	c.NumExpertsPerTok = f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize, c.DecoderSparseStep = c.IntermediateSize, 1
	c.expertBounds(f, "num_local_experts")
	c.balance(f)
	if c.NumExpertsPerTok != 2 {
		f.fail("num_experts_per_tok", "%d is not supported: SparseMixer chooses 2", c.NumExpertsPerTok)
	}
	if c.SparseMixer = f.float("router_jitter_noise", 0, 0, 1); c.SparseMixer == 0 {
		f.fail("router_jitter_noise", "0 is not supported: all weights would be 1, and routers would have no gradient")
	}
	f.noNoise("input_jitter_noise")
}
