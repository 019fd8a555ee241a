package model

// mrope lets a family's rope type mrope (multimodal RoPE) count as default. mrope rotates by three
// positions of a token: time, image row and image column. In text all three are equal, so it is the
// ordinary rotary embedding.
var mrope = map[string]string{"mrope": "default"}

func init() {
	two := family{
		arch: "Qwen2VLForConditionalGeneration", modelType: "qwen2_vl",
		nested: &nested{key: "text_config", types: []string{"qwen2_vl_text"}, alone: "qwen2", flat: true, topTies: true},
		// Newer files have the first prefix, the Hub's the second.
		prefixes:  []prefix{{"model.language_model.", "lm_head."}, {"model.", "lm_head."}},
		ropeTypes: mrope,
		defaults: map[string]any{"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
			"num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
			"sliding_window": 4096, "max_window_layers": 80, "bos_token_id": 151643, "eos_token_id": 151645, "rope_theta": 1e6},
		keys: qwenWindow,
		options: func(c *Config, f *fields) {
			c.QKVBias = true
			c.qwenWindow(f)
			c.sections(f)
		},
	}
	register(two)

	// Qwen2.5-VL differs only in its vision tower.
	two.arch, two.modelType = "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"
	two.nested = &nested{key: "text_config", types: []string{"qwen2_5_vl_text"}, alone: "qwen2", flat: true, topTies: true}
	register(two)
}

// sections checks that mrope_section adds up. The list has the number of a head's pairs that rotate
// by time, by image row and by image column. Source: arXiv:2409.12191.
func (c *Config) sections(f *fields) {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		o := f.object(key)
		if o == nil || !o.has("mrope_section") {
			continue
		}
		sum, parts := 0, o.ints("mrope_section", maxHeadDim)
		for _, n := range parts {
			sum += n
		}
		rotary := c.HeadDim
		if c.family.partial {
			rotary = int(float64(rotary) * o.float("partial_rotary_factor", f.float("partial_rotary_factor", 1, 0, 1), 0, 1))
		}
		if len(parts) != 3 || sum != rotary/2 {
			o.fail("mrope_section", "%v are not three numbers whose sum is half of a head's %d elements", parts, rotary)
		}
		if f.err == nil {
			f.err = o.err
		}
	}
}
