package model

import (
	"cmp"
	"slices"
)

// Qwen3-Next has a gated delta net in three blocks of four, attention with an output gate in the fourth, and routed
// experts with a shared one. Source: transformers.Qwen3NextConfig.
func init() {
	register(family{
		arch: "Qwen3NextForCausalLM", modelType: "qwen3_next",
		tensors: tensors{
			RoleRecurIn:    {"linear_attn.q.weight", "linear_attn.k.weight", "linear_attn.v.weight", "linear_attn.z.weight"},
			RoleRecurGates: {"linear_attn.b.weight", "linear_attn.a.weight"},
		}.and(jointQueries).and(qwenShared),
		places: map[Role]placed{
			RoleQKV:        jointQueryPlaces[RoleQKV],
			RoleQKVBias:    jointQueryPlaces[RoleQKVBias],
			RoleRecurIn:    {tensor: "linear_attn.in_proj_qkvz.weight", woven: byKeyHeads},
			RoleRecurGates: {tensor: "linear_attn.in_proj_ba.weight", woven: byKeyHeads},
		},
		defaults: map[string]any{"vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 256, "partial_rotary_factor": 0.25,
			"intermediate_size": 5632, "num_key_value_heads": 2,
			"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true},
		partial: true,
		ahead:   aheadModule,
		keys: slices.Concat([]string{"attention_bias", "partial_rotary_factor", "shared_expert_intermediate_size"}, gatedDeltaKeys,
			slices.DeleteFunc(slices.Clone(expertKeys), func(k string) bool { return k == "num_local_experts" })),
		options: (*Config).qwen3Next,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["partial_rotary_factor"] = c.QKVBias, cmp.Or(float(c.Rope.Partial), 1)
			m["shared_expert_intermediate_size"] = c.SharedSize
			c.expertsJSON(m)
			c.gatedDeltaJSON(m)
		},
	})
}

func (c *Config) qwen3Next(f *fields) {
	c.QKNorm, c.NormOffset, c.OutputGate = true, 1, true
	c.biases(f)
	c.expertsAndShared(f)
	c.gatedDeltaFields(f)
}
