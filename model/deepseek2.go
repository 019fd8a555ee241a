package model

import "slices"

// DeepSeek-V2 and V2-Lite, whose queries are made of the hidden state. Their routers take a softmax of all logits for
// scores; where experts are in groups, a group is worth its best one. The loss that balances their load is not in
// Transformers' class, nor here. mlp_bias gives biases to dense MLPs and to the shared expert, not to the experts
// that the router chooses. Source: arXiv:2405.04434; transformers.DeepseekV2Config.
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

// groupLimited is the topk_method by which DeepSeek-V2 chooses experts of some groups alone.
const groupLimited = "group_limited_greedy"
