package model

func init() {
	register(family{
		arch: "Cohere2ForCausalLM", modelType: "cohere2",
		names: map[string]string{"rms_norm_eps": "layer_norm_eps"},
		defaults: map[string]any{"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
			"num_attention_heads": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
			"pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 255001, "sliding_window": 4096},
		keys:    []string{"attention_bias", "logit_scale", "sliding_window", "sliding_window_pattern", "layer_types", "rotary_pct"},
		options: (*Config).cohere2,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["logit_scale"] = c.QKVBias, float(c.LogitScale)
			m["sliding_window"], m["layer_types"] = optional(c.SlidingWindow), c.layerTypes()
		},
	})
}

// cohere2 sets how Cohere 2 (Command R7B, Command A) differs from Llama. Attention and a parallel MLP share a
// LayerNorm without bias, only blocks with a window have (interleaved) rotary embeddings, and logits are scaled.
// Source: arXiv:2504.00698, transformers.Cohere2Config.
func (c *Config) cohere2(f *fields) {
	c.LayerNorm, c.Parallel, c.SharedNorm, c.RopeInterleaved = true, true, true, true
	c.biases(f)
	c.LogitScale = f.float("logit_scale", 0.0625, 1e-6, 1e6)
	every := f.int("sliding_window_pattern", 4, 1, maxLayers)
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return (b+1)%every != 0 })
	if f.err != nil {
		return
	}
	c.turnInWindows()
	if p := f.float("rotary_pct", 1, 0, 1); p != 1 {
		f.fail("rotary_pct", "%g is not supported, only 1%s", p, addOne)
	}
}
