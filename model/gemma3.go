package model

import "maps"

func init() {
	text := family{
		arch: "Gemma3ForCausalLM", modelType: "gemma3_text",
		// Published configs rely on these defaults.
		defaults: map[string]any{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
			"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
			"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "query_pre_attn_scalar": 256, "sliding_window": 4096,
			"hidden_act": "gelu_pytorch_tanh", "rope_theta": 1e6},
		names:      map[string]string{"hidden_act": "hidden_activation"},
		localTheta: 10000,
		keys: []string{"attention_bias", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "layer_types",
			"query_pre_attn_scalar", "hidden_activation", "attn_logit_softcapping", "final_logit_softcapping",
			"rope_local_base_freq", "use_bidirectional_attention"},
		options: (*Config).gemma3,
		write:   (*Config).gemma3JSON,
	}
	register(text)

	// The multimodal class: its directories hold the same language model and a vision tower, which
	// is not trained.
	text.arch, text.modelType = "Gemma3ForConditionalGeneration", "gemma3"
	text.nested = &nested{key: "text_config", types: []string{"gemma3_text"}, alone: "gemma3_text"}
	text.defaults = maps.Clone(text.defaults)
	maps.Copy(text.defaults, map[string]any{"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0})
	// Transformers does not cap logits in this class.
	text.options = func(c *Config, f *fields) { c.gemma3(f); c.LogitSoftcap = 0 }
	text.prefixes = towerPrefixes
	register(text)
}

// gemma3 sets how Gemma 3 differs from Llama: norms with 1+w, four norms in a block, scaled embeddings, windows in
// five blocks of six. Source: arXiv:2503.19786, transformers.Gemma3TextConfig.
func (c *Config) gemma3(f *fields) {
	c.gemma(f)
	c.QKNorm = true
	// Transformers 4.57 and 5.23 read attn_logit_softcapping, the cap on scores, but do not apply it. No published
	// model sets it.
	f.float("attn_logit_softcapping", 0, 1e-3, 1e6)
	every := f.int("sliding_window_pattern", f.int("_sliding_window_pattern", 6, 1, maxLayers), 1, maxLayers)
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return (b+1)%every != 0 })
}

func (c *Config) gemma3JSON(m map[string]any) {
	c.gemmaJSON(m)
	m["attn_logit_softcapping"] = nil
}
