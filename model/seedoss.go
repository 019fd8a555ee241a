package model

func init() {
	register(family{
		arch: "SeedOssForCausalLM", modelType: "seed_oss",
		defaults: map[string]any{"max_position_embeddings": 524288, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": true,
			"attention_dropout": 0.1, "residual_dropout": 0.1},
		dropout: true,
		keys:    []string{"attention_bias", "attention_out_bias", "mlp_bias", "residual_dropout", "pretraining_tp"},
		options: func(c *Config, f *fields) { // transformers.SeedOssConfig
			c.QKVBias, c.OBias = f.bool("attention_bias", false), f.bool("attention_out_bias", false)
			c.MLPBias = f.bool("mlp_bias", false)
			c.noWindow(f)
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["attention_out_bias"], m["mlp_bias"] = c.QKVBias, c.OBias, c.MLPBias
			m["residual_dropout"] = float(0)
		},
	})
}
