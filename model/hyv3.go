package model

import "slices"

// HY 3 has norms of queries and keys, and experts, one of them shared. The router chooses by sigmoids of the logits
// plus a bias. Multi-token prediction layers, which follow the last block, are not trained and are saved unchanged.
// Source: transformers.HYV3Config.
func init() {
	register(family{
		arch: "HYV3ForCausalLM", modelType: "hy_v3",
		tensors: tensors{
			RoleRouter:           {"mlp.router.gate.weight"},
			RoleChoiceBias:       {"mlp.expert_bias"},
			RoleSharedGateUp:     {"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight"},
			RoleSharedDown:       {"mlp.shared_mlp.down_proj.weight"},
			RoleSharedGateUpBias: {"mlp.shared_mlp.gate_proj.bias", "mlp.shared_mlp.up_proj.bias"},
			RoleSharedDownBias:   {"mlp.shared_mlp.down_proj.bias"},
		},
		defaults: map[string]any{"vocab_size": 120832, "hidden_size": 4096, "intermediate_size": 13312, "num_hidden_layers": 80,
			"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
			"initializer_range": 0.006, "rms_norm_eps": 1e-5, "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8,
			"num_shared_experts": 1, "moe_intermediate_size": 1536, "router_scaling_factor": 2.826},
		keys: slices.Concat(biasedKeys, []string{"attention_bias", "mlp_bias", "router_scaling_factor", "mlp_layer_types", "enable_moe_fp32_combine",
			"qk_norm", "num_nextn_predict_layers"}),
		options: func(c *Config, f *fields) {
			c.QKNorm = true
			c.biases(f)
			c.MLPBias = f.bool("mlp_bias", false)
			c.SharedBias = c.MLPBias
			c.biasedExperts(f, "router_scaling_factor")
			c.mlpTypes(f)
			f.bool("enable_moe_fp32_combine", true) // outputs of experts are always added in fp32
			if !f.bool("qk_norm", true) {
				f.fail("qk_norm", "false is not supported: Transformers' class always has these norms")
			}
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
			m["enable_moe_fp32_combine"] = true
			c.biasedJSON(m, "router_scaling_factor")
			c.mlpTypesJSON(m)
		},
	})
}
