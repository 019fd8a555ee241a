package model

func init() {
	register(family{
		arch: "SmolLM3ForCausalLM", modelType: "smollm3",
		defaults: map[string]any{"max_position_embeddings": 32768, "num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": true},
		keys: []string{"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "sliding_window",
			"max_window_layers", "layer_types", "pretraining_tp"},
		options: (*Config).smolLM3,
		write:   (*Config).smolLM3JSON,
	})
}

// smolLM3 sets how SmolLM3 differs from Llama: some blocks have no rotary embedding. Source:
// transformers.SmolLM3Config; arXiv:2501.18795 for the idea.
func (c *Config) smolLM3(f *fields) {
	c.biases(f)
	c.MLPBias = f.bool("mlp_bias", false)
	c.noRope(f)
	c.windows(f, usedWindow(f), func(b int) bool { return !c.Turns(b) })
}

// noRope reads no_rope_layers. As in Transformers, 1 stands for a block with a rotary embedding,
// and 0 for a block without. If the key is missing, every no_rope_layer_interval-th block has none.
func (c *Config) noRope(f *fields) {
	turns := f.ints("no_rope_layers", 1)
	every := f.int("no_rope_layer_interval", 4, 1, maxLayers)
	if turns != nil && len(turns) < c.NumLayers {
		f.fail("no_rope_layers", "%d of them for %d layers", len(turns), c.NumLayers)
		return
	}
	none, some := make([]bool, c.NumLayers), false
	for b := range none {
		none[b] = (b+1)%every == 0
		if turns != nil {
			none[b] = turns[b] == 0
		}
		some = some || none[b]
	}
	if some {
		c.NoRope = none
	}
}

func (c *Config) smolLM3JSON(m map[string]any) {
	m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
	turns := make([]int, c.NumLayers)
	for b := range turns {
		if c.Turns(b) {
			turns[b] = 1
		}
	}
	m["no_rope_layers"] = turns
	m["use_sliding_window"], m["sliding_window"], m["layer_types"] = c.SlidingWindow > 0, optional(c.SlidingWindow), c.layerTypes()
}
