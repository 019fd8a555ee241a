package model

func init() {
	register(family{
		arch: "Starcoder2ForCausalLM", modelType: "starcoder2",
		tensors: tensors{
			RoleUp: {"mlp.c_fc.weight"}, RoleUpBias: {"mlp.c_fc.bias"},
			RoleDown: {"mlp.c_proj.weight"}, RoleDownBias: {"mlp.c_proj.bias"},
		},
		names: map[string]string{"rms_norm_eps": "norm_epsilon"},
		defaults: map[string]any{"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
			"num_attention_heads": 24, "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 4096,
			"rms_norm_eps": 1e-5, "initializer_range": 0.018042, "tie_word_embeddings": true, "bos_token_id": 50256, "eos_token_id": 50256},
		dropout: true,
		keys:    []string{"sliding_window", "use_bias", "residual_dropout", "embedding_dropout", "norm_type", "mlp_type"},
		options: (*Config).starcoder2,
		write: func(c *Config, m map[string]any) {
			m["use_bias"], m["sliding_window"] = c.QKVBias, optional(c.SlidingWindow)
			m["residual_dropout"], m["embedding_dropout"] = float(0), float(0)
		},
	})
}

// starcoder2 sets how StarCoder2 differs from Llama: LayerNorm, an MLP without a gate, biases everywhere, and a window
// in every block. Source: arXiv:2402.19173, transformers.Starcoder2Config.
func (c *Config) starcoder2(f *fields) {
	c.LayerNorm, c.NormBias, c.Ungated = true, true, true
	c.QKVBias = f.bool("use_bias", true)
	c.OBias, c.MLPBias = c.QKVBias, c.QKVBias
	c.uniformWindow(f)
	// Published files have these values of norm_type and mlp_type, which Transformers ignores.
	// Other values are refused.
	for key, known := range map[string]string{"norm_type": "layer_norm", "mlp_type": "default"} {
		if v := f.str(key, known); v != known {
			f.fail(key, "%q is not supported; known: %s", v, known)
		}
	}
}
