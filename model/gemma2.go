package model

import (
	"cmp"
	"math"
)

func init() {
	register(family{
		arch: "Gemma2ForCausalLM", modelType: "gemma2",
		defaults: map[string]any{"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
			"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
			"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "query_pre_attn_scalar": 256, "sliding_window": 4096,
			"hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 50, "final_logit_softcapping": 30,
			"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0},
		names: map[string]string{"hidden_act": "hidden_activation"},
		keys: []string{"attention_bias", "sliding_window", "layer_types", "query_pre_attn_scalar", "hidden_activation",
			"attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"},
		options: (*Config).gemma2,
		write:   (*Config).gemma2JSON,
	})
}

// gemma2 sets how Gemma 2 differs from Llama. It is Gemma 3 with capped scores in place of q/k norm, and windows in
// every other block. Source: arXiv:2408.00118, transformers.Gemma2Config.
func (c *Config) gemma2(f *fields) {
	c.gemma(f)
	c.AttnSoftcap = f.float("attn_logit_softcapping", 0, 1e-3, 1e6)
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return b%2 == 0 })
}

func (c *Config) gemma2JSON(m map[string]any) {
	c.gemmaJSON(m)
	m["attn_logit_softcapping"] = optionalFloat(c.AttnSoftcap)
}

// gemma sets what Gemma 2 and 3 share: norms with 1+w, four norms in a block, scaled embeddings, a scale on scores and
// a cap on logits.
func (c *Config) gemma(f *fields) {
	c.NormOffset, c.SandwichNorms = 1, true
	c.EmbedScale, c.EmbedRounded = math.Sqrt(float64(c.HiddenSize)), true
	c.AttnScale = 1 / math.Sqrt(f.float("query_pre_attn_scalar", 256, 1e-6, 1e9))
	c.LogitSoftcap = f.float("final_logit_softcapping", 0, 1e-3, 1e6)
	c.biases(f)
	if f.bool("use_bidirectional_attention", false) {
		f.fail("use_bidirectional_attention", "true is not supported: attention is causal")
	}
	if !f.has("sliding_window") && !f.has("layer_types") {
		f.fail("sliding_window", "null, and no layer_types that say which layers do without")
	}
}

func (c *Config) gemmaJSON(m map[string]any) {
	m["attention_bias"] = c.QKVBias
	// AttnScale is 1/√query_pre_attn_scalar, and a square root's square is not exact. Rounding to
	// nine decimals gives 256 back, not 256.00000000000006.
	m["query_pre_attn_scalar"] = math.Round(1e9/(c.AttnScale*c.AttnScale)) / 1e9
	m["final_logit_softcapping"] = optionalFloat(c.LogitSoftcap)
	// Transformers builds the window's mask even if no layer has a window.
	m["sliding_window"], m["layer_types"] = cmp.Or(c.SlidingWindow, 4096), c.layerTypes()
}
