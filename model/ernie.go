package model

func init() {
	register(family{
		arch: "Ernie4_5ForCausalLM", modelType: "ernie4_5",
		defaults: map[string]any{"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
			"rope_theta": 5e5, "tie_word_embeddings": true},
		keys: []string{"use_bias"},
		options: func(c *Config, f *fields) {
			c.QKVBias = f.bool("use_bias", false)
			c.OBias, c.MLPBias = c.QKVBias, c.QKVBias
			c.RopeInterleaved = true // transformers.Ernie4_5ForCausalLM
			c.noWindow(f)
		},
		write: func(c *Config, m map[string]any) { m["use_bias"] = c.QKVBias },
	})
}
