package model

import "slices"

// MiniMax-M2 has experts in every block. Their scores are sigmoids of the logits. One norm covers all heads of the
// queries, and one all heads of the keys. Tensors have Mixtral's names. Published files give the number of rotated
// elements of a head in rotary_dim. Source: transformers.MiniMaxM2Config.
func init() {
	register(family{
		arch: "MiniMaxM2ForCausalLM", modelType: "minimax_m2",
		tensors: mixtralTensors.and(tensors{RoleChoiceBias: {"block_sparse_moe.e_score_correction_bias"}}),
		defaults: map[string]any{"vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
			"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196608, "rms_norm_eps": 1e-6, "rope_theta": 5e6,
			"bos_token_id": 200034, "eos_token_id": 200020, "num_local_experts": 256, "num_experts_per_tok": 8},
		partial: true,
		keys: slices.Concat(mixtralKeys, []string{"rotary_dim", "partial_rotary_factor", "use_qk_norm", "qk_norm_type", "scoring_func", "use_routing_bias",
			"shared_intermediate_size", "attn_type_list"}),
		prepare: func(f *fields) {
			if n, d := f.int("rotary_dim", 0, 2, maxHeadDim), f.int("head_dim", 0, 2, maxHeadDim); n > 0 && d > 0 {
				f.setDefaults(map[string]any{"partial_rotary_factor": float64(n) / float64(d)})
			}
		},
		options: (*Config).miniMaxM2,
		write: func(c *Config, m map[string]any) {
			m["num_local_experts"], m["num_experts_per_tok"] = c.NumExperts, c.NumExpertsPerTok
			m["router_jitter_noise"] = float(0)
			c.balanceJSON(m)
		},
	})
}

func (c *Config) miniMaxM2(f *fields) {
	c.QKNorm, c.QKNormWhole = true, true
	c.mixtralExperts(f)
	c.SigmoidScores, c.ChoiceBias = true, true
	if c.OutputRouterLogits {
		f.fail("output_router_logits", "true: a loss of a router whose scores are sigmoids is not supported")
	}
	for key, only := range map[string]any{"use_qk_norm": true, "use_routing_bias": true, "qk_norm_type": "per_layer", "scoring_func": "sigmoid"} {
		if v := f.vals[key]; v != nil && v != only {
			f.fail(key, "%s is not supported in %s, only %v", show(v), c.Arch, only)
		}
	}
	if n := f.int("shared_intermediate_size", 0, 0, maxFFN); n > 0 {
		f.fail("shared_intermediate_size", "%d: a shared expert is not supported in %s", n, c.Arch)
	}
	if slices.Contains(f.ints("attn_type_list", 1), 0) {
		f.fail("attn_type_list", "0 stands for linear attention, which %s does not have", c.Arch)
	}
}
