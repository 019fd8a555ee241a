package model

import "cmp"

func init() {
	register(family{
		arch: "Exaone4ForCausalLM", modelType: "exaone4",
		defaults: map[string]any{"max_position_embeddings": 2048, "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": exaone4Window},
		keys:     []string{"sliding_window", "sliding_window_pattern", "layer_types"},
		options:  (*Config).exaone4,
		write: func(c *Config, m map[string]any) {
			m["sliding_window"], m["layer_types"] = optional(c.SlidingWindow), c.layerTypes()
			if c.NoRope != nil { // with a window, blocks without it are not rotated
				m["sliding_window"] = cmp.Or(c.SlidingWindow, exaone4Window)
			}
		},
	})
}

const exaone4Window = 4096

// exaone4 sets how EXAONE 4 differs from Llama. Norms apply to the outputs of attention and MLP, not to their inputs,
// and to q and k. If there is a window, every fourth block has neither the window nor a rotary embedding. Source:
// arXiv:2507.11407, transformers.Exaone4Config.
func (c *Config) exaone4(f *fields) {
	c.OutputNorms, c.QKNorm = true, true
	size := f.int("sliding_window", 0, 1, maxPositions)
	every := 4
	switch _, word := f.vals["sliding_window_pattern"].(string); {
	case !f.has("layer_types") && size == 0:
		f.fail("layer_types", "missing, and sliding_window is null: Transformers makes no layers of it")
	case !f.has("layer_types") && word:
		f.fail("layer_types", "missing, and sliding_window_pattern %s says them in a way that Transformers does not read", show(f.vals["sliding_window_pattern"]))
	case !word:
		every = f.int("sliding_window_pattern", 4, 0, maxLayers)
	}
	every = max(every, 1)
	c.windows(f, size, func(b int) bool { return (b+1)%every != 0 })
	if size > 0 && f.err == nil {
		c.turnInWindows()
	}
}
