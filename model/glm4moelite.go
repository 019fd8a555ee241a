package model

import "slices"

// GLM-4.7-Flash has the attention of DeepSeek-V3 (MLA) and the experts of GLM-4.5. A multi-token prediction layer, which
// follows the last block, can be trained (PredictAhead). Source: transformers.Glm4MoeLiteConfig.
func init() {
	register(family{
		arch: "Glm4MoeLiteForCausalLM", modelType: "glm4_moe_lite",
		defaults: map[string]any{"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
			"num_attention_heads": 20, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
			"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
			"n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
			"first_k_dense_replace": 1, "routed_scaling_factor": 1.8, "rope_interleave": true},
		ahead: aheadBlock,
		keys:  slices.Concat(mlaKeys, sigmoidKeys, []string{"mlp_layer_types", "rope_interleave", "partial_rotary_factor", "pretraining_tp"}),
		prepare: func(f *fields) { // hidden_size need not be a multiple of the heads, whose sizes are MLA's
			if !f.has("head_dim") {
				f.setDefaults(map[string]any{"head_dim": f.vals["qk_rope_head_dim"]})
			}
		},
		options: func(c *Config, f *fields) {
			c.RopeInterleaved = f.bool("rope_interleave", false)
			c.mlaFields(f)
			c.sigmoidExperts(f)
			c.mlpTypes(f)
		},
		write: func(c *Config, m map[string]any) {
			m["rope_interleave"] = c.RopeInterleaved
			c.mlaJSON(m)
			c.sigmoidJSON(m)
			c.mlpTypesJSON(m)
		},
	})
}
