package model

import "slices"

// deepseek3 is DeepSeek-V3, and others with its architecture such as Moonlight and Kimi-K2. Checkpoints have multi-token
// prediction layers after the last block. The first can be trained (Config.PredictAhead), the others are saved
// unchanged. Source: arXiv:2412.19437; transformers.DeepseekV3Config.
var deepseek3 = family{
	arch: "DeepseekV3ForCausalLM", modelType: "deepseek_v3", otherTypes: []string{"kimi_k2"},
	defaults: map[string]any{"max_position_embeddings": 4096, "q_lora_rank": 1536, "kv_lora_rank": 512, "n_routed_experts": 256,
		"n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
		"topk_group": 4, "routed_scaling_factor": 2.5, "rope_interleave": true},
	keys:  slices.Concat(mlaKeys, sigmoidKeys, []string{"rope_interleave", "ep_size", "aux_loss_alpha", "seq_aux", "pretraining_tp"}),
	ahead: aheadBlock,
	options: func(c *Config, f *fields) {
		c.RopeInterleaved = f.bool("rope_interleave", false)
		c.mlaFields(f)
		c.sigmoidExperts(f)
	},
	write: func(c *Config, m map[string]any) {
		m["rope_interleave"] = c.RopeInterleaved
		c.mlaJSON(m)
		c.sigmoidJSON(m)
	},
}

func init() { register(deepseek3) }
