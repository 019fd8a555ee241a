package model

// Hunyuan's dense models norm queries and keys after the rotation. Source: transformers.HunYuanDenseV1Config.
func init() {
	register(family{
		arch: "HunYuanDenseV1ForCausalLM", modelType: "hunyuan_v1_dense",
		tensors: tensors{
			RoleQNorm: {"self_attn.query_layernorm.weight"},
			RoleKNorm: {"self_attn.key_layernorm.weight"},
		},
		defaults:  map[string]any{"rms_norm_eps": 1e-5},
		ropeAlpha: true,
		keys:      []string{"attention_bias", "use_qk_norm", "eod_token_id", "pretraining_tp"},
		options: func(c *Config, f *fields) {
			c.QKNorm, c.QKNormRotated = true, true
			c.biases(f)
			if !f.bool("use_qk_norm", true) {
				f.fail("use_qk_norm", "false is not supported: Transformers' class always has these norms")
			}
		},
		write: func(c *Config, m map[string]any) { m["attention_bias"] = c.QKVBias },
	})
}
