package model

func init() {
	register(family{
		arch: "Qwen3ForCausalLM", modelType: "qwen3",
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128},
		keys:     append([]string{"attention_bias"}, qwenWindow...),
		options: func(c *Config, f *fields) {
			c.QKNorm = true
			c.biases(f)
			c.qwenWindow(f)
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"] = c.QKVBias
			c.qwenWindowJSON(m)
		},
	})
}
