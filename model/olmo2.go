package model

import "slices"

func init() {
	olmo2 := family{
		arch: "Olmo2ForCausalLM", modelType: "olmo2",
		defaults: map[string]any{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
		keys:     []string{"attention_bias"},
		options: func(c *Config, f *fields) {
			c.olmo(f)
			c.noWindow(f)
		},
		write: func(c *Config, m map[string]any) { m["attention_bias"] = c.QKVBias },
	}
	register(olmo2)
	register(family{
		arch: "Olmo3ForCausalLM", modelType: "olmo3",
		defaults:   map[string]any{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": olmo3Theta},
		localTheta: olmo3Theta,
		keys:       slices.Concat(olmo2.keys, []string{"sliding_window", "layer_types"}),
		options:    (*Config).olmo3,
		write: func(c *Config, m map[string]any) {
			olmo2.write(c, m)
			m["sliding_window"], m["layer_types"] = optional(c.SlidingWindow), c.layerTypes()
			delete(m, "rope_local_base_freq")
			if c.LocalRope != nil && c.LocalRope.Theta != olmo3Theta {
				m["rope_scaling"] = nil // only rope_parameters can express it
			}
		},
	})
}

// olmo sets how OLMo 2 and 3 differ from Llama. Attention and MLP read the residual stream without a norm, and their
// outputs are normed before the residual addition. The q/k norm runs over all heads at once. Source: arXiv:2501.00656,
// transformers.Olmo2Config.
func (c *Config) olmo(f *fields) {
	c.OutputNorms, c.QKNorm, c.QKNormWhole = true, true, true
	c.biases(f)
}

// olmo3Theta is the RoPE base that Transformers uses if the config has no rope_theta.
const olmo3Theta = 500000.0

// olmo3 sets OLMo 2 with a window in three blocks of four. Blocks with a window have a plain rotary embedding, the
// others that of rope_scaling. Source: transformers.Olmo3Config.
func (c *Config) olmo3(f *fields) {
	c.olmo(f)
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return (b+1)%4 != 0 })
	if theta := f.float("rope_theta", olmo3Theta, minTheta, maxTheta); theta != olmo3Theta && !f.has("rope_parameters") {
		f.fail("rope_theta", "%g: Transformers 4 has it in all layers, 5 in those without a window; say in rope_parameters which of %s and %s has it",
			theta, fullAttention, slidingAttention)
	}
}
