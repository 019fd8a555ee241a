package model

// qwenWindow are the keys of config.json for the sliding window of a Qwen model.
var qwenWindow = []string{"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}

func init() {
	register(family{
		arch: "Qwen2ForCausalLM", modelType: "qwen2",
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     qwenWindow,
		options: func(c *Config, f *fields) {
			c.QKVBias = true
			c.qwenWindow(f)
		},
		write: (*Config).qwenWindowJSON,
	})
}

// qwenWindow reads the sliding window. With use_sliding_window the blocks from max_window_layers on have it, unless
// layer_types says otherwise.
func (c *Config) qwenWindow(f *fields) {
	first := f.int("max_window_layers", 28, 0, maxPositions)
	c.windows(f, usedWindow(f), func(b int) bool { return b >= first })
}

// usedWindow returns the window's size if use_sliding_window is set; 0: no window.
func usedWindow(f *fields) int {
	if !f.bool("use_sliding_window", false) {
		return 0
	}
	return f.int("sliding_window", 0, 1, maxPositions)
}

func (c *Config) qwenWindowJSON(m map[string]any) {
	m["use_sliding_window"], m["sliding_window"] = c.SlidingWindow > 0, optional(c.SlidingWindow)
	m["max_window_layers"] = c.NumLayers
	if c.SlidingWindow > 0 {
		m["layer_types"] = c.layerTypes()
	}
}
