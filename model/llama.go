package model

func init() {
	register(family{
		arch: "LlamaForCausalLM", modelType: "llama",
		defaults: map[string]any{"max_position_embeddings": 2048},
		keys:     []string{"attention_bias", "mlp_bias", "pretraining_tp", "layer_types"},
		options: func(c *Config, f *fields) {
			c.biases(f)
			c.MLPBias = f.bool("mlp_bias", false)
			c.noWindow(f)
		},
		write: func(c *Config, m map[string]any) { m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias },
	})
}

// biases reads attention_bias, which gives biases to q, k, v and o.
func (c *Config) biases(f *fields) {
	c.QKVBias = f.bool("attention_bias", false)
	c.OBias = c.QKVBias
}
