package model

import (
	"cmp"
	"maps"
	"slices"
)

// Qwen3.5 has the blocks of Qwen3-Next, but each projection of the recurrence is a separate tensor. The MLP is dense or
// has experts, one of them shared. Each class exists as a language model alone and beside a vision tower. Multi-token
// prediction (tensors mtp.*) can be trained (PredictAhead). Sources: transformers.Qwen3_5TextConfig,
// Qwen3_5MoeTextConfig.
func init() {
	dense := family{
		arch: "Qwen3_5ForCausalLM", modelType: "qwen3_5_text",
		// Transformers writes the second prefix if it has read the model from a directory with a vision tower.
		prefixes: []prefix{usualPrefix, {"model.language_model.", "lm_head."}},
		tensors:  jointQueries,
		places:   jointQueryPlaces,
		defaults: map[string]any{"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
			"num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6},
		ropeTypes: mrope,
		partial:   true,
		ahead:     aheadModule,
		keys:      slices.Concat([]string{"attention_bias", "partial_rotary_factor"}, gatedDeltaKeys),
		options:   (*Config).qwen35,
		write:     (*Config).qwen35JSON,
	}
	register(dense)

	experts := dense
	experts.arch, experts.modelType = "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"
	experts.tensors = dense.tensors.and(qwenShared)
	experts.joined = map[Role]placed{
		RoleExpertGateUp: {tensor: "mlp.experts.gate_up_proj", experts: true},
		RoleExpertDown:   {tensor: "mlp.experts.down_proj", experts: true},
	}
	experts.defaults = maps.Clone(dense.defaults)
	maps.Copy(experts.defaults, map[string]any{"hidden_size": 2048, "intermediate_size": 512, "num_hidden_layers": 40, "num_key_value_heads": 2,
		"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true})
	experts.keys = slices.Concat(dense.keys, []string{"shared_expert_intermediate_size"},
		slices.DeleteFunc(slices.Clone(expertKeys), func(k string) bool { return k == "num_local_experts" }))
	experts.options = func(c *Config, f *fields) {
		c.qwen35(f)
		c.expertsAndShared(f)
		c.expertsEverywhere(f)
	}
	experts.write = func(c *Config, m map[string]any) {
		c.qwen35JSON(m)
		c.expertsJSON(m)
		m["shared_expert_intermediate_size"] = c.SharedSize
	}
	register(experts)

	for _, of := range []struct{ alone, arch, modelType string }{
		{dense.modelType, "Qwen3_5ForConditionalGeneration", "qwen3_5"}, {experts.modelType, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"},
	} {
		beside := dense
		if of.alone == experts.modelType {
			beside = experts
		}
		beside.arch, beside.modelType = of.arch, of.modelType
		beside.nested = &nested{key: "text_config", types: []string{of.alone}, alone: of.alone, topTies: true}
		beside.prefixes = []prefix{{"model.language_model.", "lm_head."}}
		register(beside)
	}
}

// qwen35 sets what the dense Qwen3.5 and the one with experts share.
func (c *Config) qwen35(f *fields) {
	c.QKNorm, c.NormOffset, c.OutputGate = true, 1, true
	c.biases(f)
	c.gatedDeltaFields(f)
	c.sections(f)
	c.aheadOwn = f.bool("mtp_use_dedicated_embeddings", false)
}

func (c *Config) qwen35JSON(m map[string]any) {
	m["attention_bias"], m["partial_rotary_factor"] = c.QKVBias, cmp.Or(float(c.Rope.Partial), 1)
	c.gatedDeltaJSON(m)
}
