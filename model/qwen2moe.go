package model

import "slices"

// qwenShared names the tensors of the shared expert in Qwen's checkpoints.
var qwenShared = tensors{
	RoleSharedGateUp: {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"},
	RoleSharedDown:   {"mlp.shared_expert.down_proj.weight"},
}

// Qwen2-MoE is Qwen2 with routed experts and a gated shared expert. Source: arXiv:2407.10671;
// transformers.Qwen2MoeConfig.
func init() {
	register(family{
		arch: "Qwen2MoeForCausalLM", modelType: "qwen2_moe",
		tensors: qwenShared,
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 60, "num_experts_per_tok": 4,
			"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
		keys: slices.Concat([]string{"qkv_bias", "shared_expert_intermediate_size"}, qwenWindow, expertKeys),
		options: func(c *Config, f *fields) {
			c.QKVBias = f.bool("qkv_bias", true)
			c.expertsAndShared(f)
			last := f.int("max_window_layers", 28, 0, maxPositions)
			c.windows(f, usedWindow(f), func(b int) bool { return b%2 == 0 && b < last })
		},
		write: func(c *Config, m map[string]any) {
			m["qkv_bias"], m["shared_expert_intermediate_size"] = c.QKVBias, c.SharedSize
			c.expertsJSON(m)
			c.qwenWindowJSON(m)
		},
	})
}
