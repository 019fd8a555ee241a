package model

func init() {
	register(family{
		arch: "GPT2LMHeadModel", modelType: "gpt2",
		// Tensor names in the Hub's files of the first GPT-2 models have no prefix.
		prefixes: []prefix{{"transformer.", "lm_head."}, {"", "lm_head."}},
		blocks:   "h.",
		tensors: tensors{
			RoleEmbed: {"wte.weight"}, RolePositions: {"wpe.weight"},
			RoleFinalNorm: {"ln_f.weight"}, RoleFinalNormBias: {"ln_f.bias"},
			RoleAttnNorm: {"ln_1.weight"}, RoleAttnNormBias: {"ln_1.bias"},
			RoleMLPNorm: {"ln_2.weight"}, RoleMLPNormBias: {"ln_2.bias"},
			RoleQKV: {"attn.c_attn.weight"}, RoleQKVBias: {"attn.c_attn.bias"},
			RoleO: {"attn.c_proj.weight"}, RoleOBias: {"attn.c_proj.bias"},
			RoleUp: {"mlp.c_fc.weight"}, RoleUpBias: {"mlp.c_fc.bias"},
			RoleDown: {"mlp.c_proj.weight"}, RoleDownBias: {"mlp.c_proj.bias"},
		},
		places: map[Role]placed{RoleQKV: {transposed: true}, RoleO: {transposed: true}, RoleUp: {transposed: true}, RoleDown: {transposed: true}},
		names: map[string]string{"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
			"max_position_embeddings": "n_positions", "intermediate_size": "n_inner", "rms_norm_eps": "layer_norm_epsilon",
			"hidden_act": "activation_function"},
		defaults: map[string]any{"vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
			"max_position_embeddings": 1024, "hidden_act": "gelu_new", "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
			"bos_token_id": 50256, "eos_token_id": 50256},
		dropout: true,
		keys: []string{"n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
			"reorder_and_upcast_attn", "add_cross_attention"},
		prepare: func(f *fields) {
			if n, ok := number(f.vals["hidden_size"]); ok && !f.has("intermediate_size") {
				f.vals["intermediate_size"] = 4 * n
			}
		},
		options: (*Config).gpt2,
		write:   (*Config).gpt2JSON,
	})
}

// gpt2 sets how GPT-2 differs from Llama: learned positions, LayerNorm, an MLP without a gate, biases everywhere.
// Source: transformers.GPT2Config and its module.
func (c *Config) gpt2(f *fields) {
	c.LearnedPositions, c.LayerNorm, c.NormBias, c.Ungated, c.ResidualInit = true, true, true, true, true
	c.QKVBias, c.OBias, c.MLPBias = true, true, true
	// reorder_and_upcast_attn is not checked: it changes how attention is computed, not its
	// mathematics.
	for key, known := range map[string]bool{"scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false, "add_cross_attention": false} {
		if v := f.bool(key, known); v != known {
			f.fail(key, "%t is not supported, only %t%s", v, known, addOne)
		}
	}
	c.asManyKeyHeads(f)
}

// asManyKeyHeads refuses settings that the architecture cannot express: fewer key/value heads than query heads, or a
// head_dim other than hidden_size / heads.
func (c *Config) asManyKeyHeads(f *fields) {
	if c.NumKVHeads != c.NumHeads {
		f.fail("num_key_value_heads", "%d for %d heads: this architecture has as many", c.NumKVHeads, c.NumHeads)
	}
	c.hiddenByHeads(f)
}

func (c *Config) gpt2JSON(m map[string]any) {
	for _, key := range []string{"attn_pdrop", "embd_pdrop", "resid_pdrop"} {
		m[key] = float(0)
	}
	for _, key := range []string{"num_key_value_heads", "head_dim", "attention_dropout"} {
		delete(m, key)
	}
	if c.Activation == GELUTanh {
		m["hidden_act"] = "gelu_new"
	}
}
