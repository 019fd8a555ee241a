package model

import "slices"

// DeepSeek-V2 and V2-Lite. V2-Lite projects queries from the hidden state, without a latent vector. The router's scores
// are a softmax of all logits, and a group of experts has the score of its best expert. Neither Transformers' class nor
// mt has the load-balancing loss. mlp_bias gives biases to dense MLPs and to the shared expert, not to routed experts.
// Source: arXiv:2405.04434; transformers.DeepseekV2Config.
func init() {
	register(family{
		arch: "DeepseekV2ForCausalLM", modelType: "deepseek_v2",
		defaults: map[string]any{"max_position_embeddings": 2048, "q_lora_rank": 1536, "kv_lora_rank": 512, "n_routed_experts": 64,
			"n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0, "routed_scaling_factor": 1.0},
		keys: slices.Concat(mlaKeys, routedKeys, []string{"mlp_bias", "ep_size", "aux_loss_alpha", "seq_aux", "pretraining_tp"}),
		options: func(c *Config, f *fields) {
			c.RopeInterleaved = true
			c.mlaFields(f)
			c.routedExperts(f, "softmax", "greedy", groupLimited)
			c.MLPBias = f.bool("mlp_bias", false)
			if c.SharedBias = c.MLPBias; c.MLPBias && c.SharedSize == 0 {
				f.fail("mlp_bias", "true is not supported with n_shared_experts 0: Transformers' class then has a shared expert that is a bias alone")
			}
			if f.bool("norm_topk_prob", false) {
				f.fail("norm_topk_prob", "true is not supported in %s: Transformers' class takes no notice of it", c.Arch)
			}
			if f.str("topk_method", "greedy") == groupLimited {
				c.expertGroups(f, 1)
			}
		},
		write: func(c *Config, m map[string]any) {
			c.mlaJSON(m)
			m["mlp_bias"] = c.MLPBias
			c.routedJSON(m)
			if c.ExpertGroups > 0 {
				m["topk_method"] = groupLimited
			}
		},
	})
}

// groupLimited is the topk_method of DeepSeek-V2 that chooses experts from the best groups only.
const groupLimited = "group_limited_greedy"
