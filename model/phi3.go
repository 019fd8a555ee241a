package model

func init() {
	register(family{
		arch: "Phi3ForCausalLM", modelType: "phi3",
		tensors: tensors{
			RoleQKV:    {"self_attn.qkv_proj.weight"},
			RoleGateUp: {"mlp.gate_up_proj.weight"},
		},
		defaults: map[string]any{"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
		// Early configs of Phi-3 call the rope type longrope su or yarn.
		ropeTypes: map[string]string{"su": "longrope", "yarn": "longrope"},
		partial:   true,
		keys: []string{"sliding_window", "resid_pdrop", "embd_pdrop", "attention_bias", "original_max_position_embeddings",
			"partial_rotary_factor"},
		options: func(c *Config, f *fields) {
			if f.bool("attention_bias", false) {
				f.fail("attention_bias", "true is not supported: the tensors of this architecture have no biases")
			}
			c.uniformWindow(f)
		},
		write: func(c *Config, m map[string]any) {
			m["sliding_window"] = optional(c.SlidingWindow)
			m["resid_pdrop"], m["embd_pdrop"] = float(0), float(0)
			if c.Rope.OriginalMaxPositions > 0 {
				m["original_max_position_embeddings"] = c.Rope.OriginalMaxPositions
			}
			if r := c.Rope; r.Type == "longrope" && r.Factor == 0 && r.AttentionFactor == 0 {
				// Transformers 4 requires exactly these three keys in rope_scaling of Phi-3.
				m["rope_scaling"] = map[string]any{"type": r.Type, "short_factor": floatList(r.ShortFactor), "long_factor": floatList(r.LongFactor)}
			}
		},
	})
}
