package model

// DeepSeek-V3 is planned and not trained: see family.untrained. Its layers that predict
// further tokens are not counted, as they are not in the published number of parameters.
// Source: arXiv:2412.19437; transformers.DeepseekV3Config.
func init() {
	register(family{
		arch: "DeepseekV3ForCausalLM", modelType: "deepseek_v3",
		untrained: "shared experts, and routing by groups with sigmoid scores",
		planned:   "the shared expert, whose parameters and products are counted, has no workspace of its own",
		tensors: tensors{
			RoleRouterBias:   {"mlp.gate.e_score_correction_bias"},
			RoleSharedGateUp: {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"},
			RoleSharedDown:   {"mlp.shared_experts.down_proj.weight"},
		},
		defaults: map[string]any{"max_position_embeddings": 4096, "q_lora_rank": 1536, "kv_lora_rank": 512},
		keys: append([]string{"n_routed_experts", "n_shared_experts", "first_k_dense_replace", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "n_group",
			"topk_group", "topk_method", "scoring_func", "routed_scaling_factor", "num_nextn_predict_layers", "moe_layer_freq", "ep_size",
			"aux_loss_alpha", "seq_aux", "pretraining_tp", "rope_interleave"}, latentKeys...),
		options: (*Config).deepSeek,
		write: func(c *Config, m map[string]any) {
			c.latentJSON(m)
			m["n_routed_experts"], m["n_shared_experts"], m["num_experts_per_tok"] = c.NumExperts, c.SharedExperts, c.NumExpertsPerTok
			m["moe_intermediate_size"], m["first_k_dense_replace"] = c.MoEIntermediateSize, len(c.MLPOnlyLayers)
			m["norm_topk_prob"] = c.NormTopKProb
		},
	})
}

// deepSeek reads what is DeepSeek's own.
func (c *Config) deepSeek(f *fields) {
	c.latentFields(f)
	c.NumExperts = f.int("n_routed_experts", 256, 1, maxExperts)
	c.SharedExperts = f.int("n_shared_experts", 1, 0, maxExpertsUsed)
	c.NumExpertsPerTok = f.int("num_experts_per_tok", 8, 1, min(c.NumExperts, maxExpertsUsed))
	c.MoEIntermediateSize = f.int("moe_intermediate_size", 2048, 1, maxFFN/maxExpertsUsed)
	c.NormTopKProb, c.RouterBias, c.DecoderSparseStep = f.bool("norm_topk_prob", true), true, 1
	c.MLPOnlyLayers = nil
	for b := range f.int("first_k_dense_replace", 3, 0, c.NumLayers) {
		c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
	}
	if c.NumExperts*c.NumLayers > maxExpertsAll {
		f.fail("n_routed_experts", "%d experts in %d layers are more than %d in all", c.NumExperts, c.NumLayers, maxExpertsAll)
	}
}
