package model

// gpt-oss, whose experts are stored in MXFP4. Source: the gpt-oss model card, arXiv:2508.10925;
// transformers.GptOssConfig.
func init() {
	register(family{
		arch: "GptOssForCausalLM", modelType: "gpt_oss",
		mxfp4:   true,
		tensors: tensors{RoleRouter: {"mlp.router.weight"}, RoleRouterBias: {"mlp.router.bias"}},
		places: map[Role]placed{
			RoleExpertGateUp:     {tensor: "mlp.experts.gate_up_proj", experts: true, transposed: true, woven: byRows},
			RoleExpertGateUpBias: {tensor: "mlp.experts.gate_up_proj_bias", experts: true, woven: byRows},
			RoleExpertDown:       {tensor: "mlp.experts.down_proj", experts: true, transposed: true},
			RoleExpertDownBias:   {tensor: "mlp.experts.down_proj_bias", experts: true},
		},
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": true, "head_dim": 64,
			"rms_norm_eps": 1e-5, "num_local_experts": 128, "num_experts_per_tok": 4, "rope_theta": 150000.0},
		keys: []string{"attention_bias", "sliding_window", "layer_types", "num_experts", "num_local_experts", "num_experts_per_tok",
			"experts_per_token", "swiglu_alpha", "swiglu_limit", "initial_context_length", "output_router_logits", "router_aux_loss_coef"},
		options: func(c *Config, f *fields) {
			if !f.has("rope_scaling") && !f.has("rope_parameters") { // the class's default
				f.vals["rope_parameters"] = map[string]any{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
					"truncate": false, "original_max_position_embeddings": 4096.0}
			}
			c.biases(f)
			c.experts(f)
			if n := f.int("experts_per_token", c.NumExpertsPerTok, 1, maxExpertsUsed); n != c.NumExpertsPerTok {
				f.fail("experts_per_token", "%d, and num_experts_per_tok is %d; remove one of them", n, c.NumExpertsPerTok)
			}
			// intermediate_size is the width of an expert. The chosen experts' weights are a softmax over their logits
			// alone.
			c.MoEIntermediateSize, c.NormTopKProb = c.IntermediateSize, true
			c.Sinks, c.RouterBias, c.ExpertBias = true, true, true
			c.ClampedSwiGLU = &ClampedSwiGLU{Alpha: f.float("swiglu_alpha", 1.702, 1e-3, 1e3), Limit: f.float("swiglu_limit", 7, 1e-3, 1e6)}
			c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return b%2 == 0 })
		},
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["sliding_window"], m["layer_types"] = c.QKVBias, optional(c.SlidingWindow), c.layerTypes()
			m["swiglu_alpha"], m["swiglu_limit"] = float(c.ClampedSwiGLU.Alpha), float(c.ClampedSwiGLU.Limit)
			m["num_local_experts"], m["num_experts_per_tok"] = c.NumExperts, c.NumExpertsPerTok
			m["output_router_logits"], m["router_aux_loss_coef"] = c.OutputRouterLogits, float(c.RouterAuxLossCoef)
		},
	})
}
