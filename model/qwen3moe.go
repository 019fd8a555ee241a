package model

import "slices"

func init() {
	register(family{
		arch: "Qwen3MoeForCausalLM", modelType: "qwen3_moe",
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     slices.Concat([]string{"attention_bias"}, qwenWindow, expertKeys),
		options: func(c *Config, f *fields) {
			c.QKNorm = true
			c.biases(f)
			c.experts(f)
			if f.bool("use_sliding_window", false) {
				c.uniformWindow(f)
			} else {
				c.noWindow(f)
			}
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"] = c.QKVBias
			m["use_sliding_window"], m["sliding_window"] = c.SlidingWindow > 0, optional(c.SlidingWindow)
			c.expertsJSON(m)
		},
	})
}
