package model

// gpt-oss is planned and not trained: see family.untrained. Source: the model card,
// arXiv:2508.10925; transformers.GptOssConfig.
func init() {
	register(family{
		arch: "GptOssForCausalLM", modelType: "gpt_oss",
		untrained: "attention sinks, biases of routers and experts, and a gate that is cut off",
		planned:   "sinks and the gate cost nothing; all else is counted as it is",
		tensors: tensors{
			RoleSinks:            {"self_attn.sinks"},
			RoleRouter:           {"mlp.router.weight"},
			RoleRouterBias:       {"mlp.router.bias"},
			RoleExpertGateUpBias: {"mlp.experts." + expertNumber + ".gate_proj.bias", "mlp.experts." + expertNumber + ".up_proj.bias"},
			RoleExpertDownBias:   {"mlp.experts." + expertNumber + ".down_proj.bias"},
		},
		places: map[Role]placed{
			RoleExpertGateUp:     {tensor: "mlp.experts.gate_up_proj", experts: true, transposed: true, woven: byRows},
			RoleExpertGateUpBias: {tensor: "mlp.experts.gate_up_proj_bias", experts: true, woven: byRows},
			RoleExpertDown:       {tensor: "mlp.experts.down_proj", experts: true, transposed: true},
			RoleExpertDownBias:   {tensor: "mlp.experts.down_proj_bias", experts: true},
		},
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": true},
		keys: append([]string{"attention_bias", "sliding_window", "layer_types", "experts_per_token", "swiglu_limit",
			"initial_context_length"}, expertKeys...),
		options: func(c *Config, f *fields) {
			c.biases(f)
			c.experts(f)
			// An expert is as wide as intermediate_size says, and the weights of those that are
			// chosen are a softmax over them alone.
			c.MoEIntermediateSize, c.NormTopKProb = c.IntermediateSize, true
			c.Sinks, c.RouterBias, c.ExpertBias = true, true, true
			c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return b%2 == 0 })
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["sliding_window"], m["layer_types"] = c.QKVBias, optional(c.SlidingWindow), c.layerTypes()
			c.expertsJSON(m)
		},
	})
}
