package model

func init() {
	register(family{
		arch: "MistralForCausalLM", modelType: "mistral",
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 4096},
		keys:     []string{"sliding_window", "layer_types"},
		options:  (*Config).uniformWindow,
		write:    func(c *Config, m map[string]any) { m["sliding_window"] = optional(c.SlidingWindow) },
	})
}
