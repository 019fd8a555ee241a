package model

import "slices"

// GLM-4.5. Checkpoints have a multi-token prediction layer after the last block, which can be trained (PredictAhead).
// Source: arXiv:2508.06471; transformers.Glm4MoeConfig.
func init() {
	register(family{
		arch: "Glm4MoeForCausalLM", modelType: "glm4_moe",
		partial: true,
		ahead:   aheadBlock,
		defaults: map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
			"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
			"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0},
		keys: slices.Concat([]string{"attention_bias", "use_qk_norm", "partial_rotary_factor"}, sigmoidKeys),
		options: func(c *Config, f *fields) {
			c.QKVBias, c.QKNorm = f.bool("attention_bias", false), f.bool("use_qk_norm", false)
			c.sigmoidExperts(f)
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["use_qk_norm"] = c.QKVBias, c.QKNorm
			c.sigmoidJSON(m)
		},
	})
}
