package model

import (
	"math"
	"slices"
)

// AFMoE (Trinity) has four norms in a block, an output gate and norms of queries and keys. Only blocks with a sliding
// window rotate. The first blocks are dense, all others have experts and a shared one. Their scores are sigmoids, and
// their sum is normed. Source: transformers.AfmoeConfig.
func init() {
	register(family{
		arch: "AfmoeForCausalLM", modelType: "afmoe",
		tensors: tensors{
			RoleMLPNorm:     {"pre_mlp_layernorm.weight"},
			RolePostMLPNorm: {"post_mlp_layernorm.weight"},
			RoleRouter:      {"mlp.router.gate.weight"},
			RoleChoiceBias:  {"mlp.expert_bias"},
		},
		defaults: map[string]any{"vocab_size": 200192, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32,
			"num_attention_heads": 16, "head_dim": 128, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "num_experts": 64,
			"num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408, "num_dense_layers": 1, "sliding_window": 1024},
		keys: slices.Concat(biasedKeys, []string{"num_dense_layers", "route_scale", "global_attn_every_n_layers", "sliding_window",
			"layer_types", "mup_enabled", "score_func", "route_norm", "n_group", "num_expert_groups"}),
		options: (*Config).afmoe,
		write:   (*Config).afmoeJSON,
	})
}

func (c *Config) afmoe(f *fields) {
	c.SandwichNorms, c.QKNorm, c.OutputGate = true, true, true
	if f.bool("mup_enabled", false) {
		c.EmbedScale = math.Sqrt(float64(c.HiddenSize))
	}
	every := f.int("global_attn_every_n_layers", 4, 1, maxLayers)
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return (b+1)%every != 0 })
	if f.err != nil {
		return
	}
	c.turnInWindows()
	c.biasedExperts(f, "route_scale")
	for b := range f.need("num_dense_layers", 0, c.NumLayers) {
		c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
	}
	for key, only := range map[string]any{"score_func": "sigmoid", "route_norm": true} {
		if v := f.vals[key]; v != nil && v != only {
			f.fail(key, "%s is not supported in %s, only %v", show(v), c.Arch, only)
		}
	}
	for _, key := range []string{"n_group", "num_expert_groups"} {
		if n := f.int(key, 1, 1, maxExpertGroups); n > 1 {
			f.fail(key, "%d: groups of experts are not supported in %s, nor in Transformers' class", n, c.Arch)
		}
	}
}

func (c *Config) afmoeJSON(m map[string]any) {
	m["mup_enabled"], m["num_dense_layers"] = c.EmbedScale != 0, len(c.MLPOnlyLayers)
	m["sliding_window"], m["layer_types"] = optional(c.SlidingWindow), c.layerTypes()
	c.biasedJSON(m, "route_scale")
}
