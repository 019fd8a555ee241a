package model

func init() {
	register(family{
		arch: "MistralForCausalLM", modelType: "mistral",
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 4096},
		keys:     []string{"sliding_window", "layer_types"},
		options: func(c *Config, f *fields) {
			c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(int) bool { return true })
		},
		write: func(c *Config, m map[string]any) {
			m["sliding_window"] = optional(c.SlidingWindow)
			if c.Sliding != nil { // Transformers recognises Ministral's class by layer_types
				m["layer_types"] = c.layerTypes()
			}
		},
	})
}
