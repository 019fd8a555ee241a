package model

import "cmp"

func init() {
	register(family{
		arch: "GPTNeoXForCausalLM", modelType: "gpt_neox",
		prefixes: []prefix{{"gpt_neox.", "embed_out."}},
		tensors: tensors{
			RoleEmbed:     {"embed_in.weight"},
			RoleFinalNorm: {"final_layer_norm.weight"}, RoleFinalNormBias: {"final_layer_norm.bias"},
			RoleO: {"attention.dense.weight"}, RoleOBias: {"attention.dense.bias"},
			RoleUp: {"mlp.dense_h_to_4h.weight"}, RoleUpBias: {"mlp.dense_h_to_4h.bias"},
			RoleDown: {"mlp.dense_4h_to_h.weight"}, RoleDownBias: {"mlp.dense_4h_to_h.bias"},
		},
		places: map[Role]placed{
			RoleQKV:     {tensor: "attention.query_key_value.weight", woven: byHeads},
			RoleQKVBias: {tensor: "attention.query_key_value.bias", woven: byHeads},
		},
		names: map[string]string{"rms_norm_eps": "layer_norm_eps"},
		defaults: map[string]any{"vocab_size": 50432, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44,
			"num_attention_heads": 64, "hidden_act": "gelu", "rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 2},
		partial: true,
		keys: []string{"attention_bias", "use_parallel_residual", "hidden_dropout", "classifier_dropout", "rotary_pct", "rotary_emb_base",
			"is_decoder", "partial_rotary_factor"},
		prepare: func(f *fields) { // rotary_pct and rotary_emb_base are the class's older names
			f.setDefaults(map[string]any{"partial_rotary_factor": cmp.Or[any](f.vals["rotary_pct"], 0.25)})
			if f.has("rotary_emb_base") {
				f.setDefaults(map[string]any{"rope_theta": f.vals["rotary_emb_base"]})
			}
		},
		options: (*Config).gptNeoX,
		write:   (*Config).gptNeoXJSON,
	})
}

// gptNeoX sets how GPT-NeoX and Pythia differ from Llama: LayerNorm, an MLP without a gate, and parallel attention and
// MLP with a norm each. A quarter of a head's elements is rotated. Source: arXiv:2204.06745,
// transformers.GPTNeoXConfig.
func (c *Config) gptNeoX(f *fields) {
	c.LayerNorm, c.NormBias, c.Ungated, c.MLPBias = true, true, true, true
	c.QKVBias = f.bool("attention_bias", true)
	c.OBias = c.QKVBias
	c.Parallel = f.bool("use_parallel_residual", true)
	c.asManyKeyHeads(f)
}

func (c *Config) gptNeoXJSON(m map[string]any) {
	m["attention_bias"], m["use_parallel_residual"] = c.QKVBias, c.Parallel
	m["hidden_dropout"] = float(0)
	m["rotary_pct"], m["rotary_emb_base"] = cmp.Or(float(c.Rope.Partial), 1), float(c.Rope.Theta)
	delete(m, "num_key_value_heads")
	delete(m, "head_dim")
}
