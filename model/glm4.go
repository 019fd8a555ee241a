package model

import (
	"cmp"
	"maps"
)

func init() {
	glm := family{
		arch: "GlmForCausalLM", modelType: "glm",
		tensors: tensors{RoleGateUp: {"mlp.gate_up_proj.weight"}},
		defaults: map[string]any{"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
			"attention_bias": true, "partial_rotary_factor": 0.5},
		partial: true,
		keys:    []string{"attention_bias", "partial_rotary_factor"},
		options: (*Config).glm,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["partial_rotary_factor"] = c.QKVBias, float(cmp.Or(c.Rope.Partial, 1))
		},
	}
	register(glm)

	// GLM-4-0414 norms outputs in addition to inputs.
	glm4 := glm
	glm4.arch, glm4.modelType = "Glm4ForCausalLM", "glm4"
	glm4.tensors = maps.Clone(glm.tensors)
	maps.Copy(glm4.tensors, tensors{
		RolePostAttnNorm: {"post_self_attn_layernorm.weight"},
		RoleMLPNorm:      {"post_attention_layernorm.weight"},
		RolePostMLPNorm:  {"post_mlp_layernorm.weight"},
	})
	glm4.options = func(c *Config, f *fields) {
		c.glm(f)
		c.SandwichNorms = true
	}
	register(glm4)
}

// glm sets how GLM-4 differs from Llama: gate and up are one tensor, q, k and v have biases, and interleaved rotary
// embeddings rotate the first half of a head. Source: transformers.GlmConfig, Glm4Config.
func (c *Config) glm(f *fields) {
	c.RopeInterleaved = true
	c.QKVBias = f.bool("attention_bias", false)
	c.noWindow(f)
}
