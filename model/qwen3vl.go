package model

import "slices"

func init() {
	dense := family{
		arch: "Qwen3VLForConditionalGeneration", modelType: "qwen3_vl",
		nested:    &nested{key: "text_config", types: []string{"qwen3_vl_text"}, alone: "qwen3", topTies: true},
		prefixes:  []prefix{{"model.language_model.", "lm_head."}},
		ropeTypes: mrope,
		defaults: map[string]any{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000, "rope_theta": 5e5},
		keys:    []string{"attention_bias", "layer_types"},
		options: (*Config).qwen3VL,
	}
	register(dense)

	experts := dense
	experts.arch, experts.modelType = "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"
	experts.nested = &nested{key: "text_config", types: []string{"qwen3_vl_moe_text"}, alone: "qwen3_moe", topTies: true}
	experts.defaults = map[string]any{"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
		"num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 128000, "rope_theta": 5e5,
		"num_experts_per_tok": 4, "moe_intermediate_size": 1408, "norm_topk_prob": true}
	// The Hub's files have shape (experts, in, out); Transformers 5 writes (experts, out, in).
	experts.places = map[Role]placed{
		RoleExpertGateUp: {tensor: "mlp.experts.gate_up_proj", experts: true, transposed: true},
		RoleExpertDown:   {tensor: "mlp.experts.down_proj", experts: true, transposed: true},
	}
	experts.eitherWay = true
	experts.keys = slices.Concat(dense.keys, expertKeys)
	experts.prepare = func(f *fields) {
		if !f.has("num_experts") && !f.has("num_local_experts") {
			f.vals["num_experts"] = 60
		}
	}
	experts.options = func(c *Config, f *fields) {
		c.qwen3VL(f)
		c.experts(f)
		if !c.NormTopKProb {
			f.fail("norm_topk_prob", "false is not supported: the weights of an expert's choice are made to sum to 1 in %s", c.Arch)
		}
	}
	register(experts)
}

// qwen3VL sets the language model of Qwen3-VL: Qwen3 without a sliding window. The vision tower adds to the first
// layers' hidden states (deepstack) only at images. Source: transformers.Qwen3VLTextConfig.
func (c *Config) qwen3VL(f *fields) {
	c.QKNorm = true
	c.biases(f)
	c.noWindow(f)
	c.sections(f)
}
