package model

import "slices"

// Kimi Linear has KDA in three blocks of four and latent attention without a rotary embedding in the fourth. All blocks
// but the first have experts. Multi-token prediction layers, which follow the last block, are not trained and are saved
// unchanged. Source: arXiv:2510.26692; transformers.KimiLinearConfig.
func init() {
	const expert = "block_sparse_moe.experts." + expertNumber + "."
	register(family{
		arch: "KimiLinearForCausalLM", modelType: "kimi_linear",
		tensors: tensors{
			RoleRouter:       {"block_sparse_moe.gate.weight"},
			RoleChoiceBias:   {"block_sparse_moe.gate.e_score_correction_bias"},
			RoleExpertGateUp: {expert + "w1.weight", expert + "w3.weight"},
			RoleExpertDown:   {expert + "w2.weight"},
			RoleSharedGateUp: {"block_sparse_moe.shared_experts.gate_proj.weight", "block_sparse_moe.shared_experts.up_proj.weight"},
			RoleSharedDown:   {"block_sparse_moe.shared_experts.down_proj.weight"},
		},
		others: tensors{ // Transformers saves dense blocks so
			RoleGateUp: {"block_sparse_moe.gate_proj.weight", "block_sparse_moe.up_proj.weight"},
			RoleDown:   {"block_sparse_moe.down_proj.weight"},
		},
		names: map[string]string{"max_position_embeddings": "model_max_length", "norm_topk_prob": "moe_renormalize", "n_group": "num_expert_group",
			"num_experts_per_tok": "num_experts_per_token", "n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"},
		eitherName: true,
		defaults: map[string]any{"vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "num_attention_heads": 32,
			"max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
			"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
			"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
			"first_k_dense_replace": 1, "routed_scaling_factor": 2.446},
		keys: slices.Concat(mlaKeys, sigmoidKeys, []string{"model_max_length", "moe_renormalize", "num_expert_group", "num_experts_per_token", "num_experts",
			"num_shared_experts", "mlp_layer_types", "layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim",
			"linear_attn_config", "mla_use_nope", "moe_router_activation_func", "pretraining_tp"}),
		prepare: kimiLinearKeys,
		options: (*Config).kimiLinear,
		write: func(c *Config, m map[string]any) {
			c.mlaJSON(m)
			c.sigmoidJSON(m)
			c.mlpTypesJSON(m)
			for _, key := range rotaryKeys {
				delete(m, key)
			}
			m["layer_types"] = c.recurrentTypes(linearAttention, fullAttention)
			if r := c.KDA; r != nil {
				m["linear_head_dim"], m["linear_num_heads"], m["linear_conv_kernel_dim"] = r.Dim, r.Heads, r.Taps
			}
		},
	})
}

// rotaryKeys are the keys of rotary embeddings.
var rotaryKeys = []string{"rope_theta", "rope_scaling", "rope_parameters"}

// kimiLinearKeys sets the keys of Transformers from those that published files have in linear_attn_config. It removes
// the keys of rotary embeddings, which the class ignores.
func kimiLinearKeys(f *fields) {
	for _, key := range rotaryKeys {
		delete(f.vals, key)
	}
	if !f.has("head_dim") {
		f.vals["head_dim"] = f.vals["qk_rope_head_dim"]
	}
	if !f.has("linear_attn_config") {
		return
	}
	in := f.object("linear_attn_config")
	if in == nil {
		return
	}
	for key, inner := range map[string]string{"linear_head_dim": "head_dim", "linear_num_heads": "num_heads", "linear_conv_kernel_dim": "short_conv_kernel_size"} {
		if in.has(inner) {
			f.vals[key] = in.vals[inner]
		}
	}
	if !f.has("layer_types") && in.has("full_attn_layers") && in.has("kda_layers") {
		types := make([]any, f.need("num_hidden_layers", 1, maxLayers))
		for _, list := range [...]struct{ key, kind string }{{"kda_layers", linearAttention}, {"full_attn_layers", fullAttention}} {
			for _, number := range in.ints(list.key, len(types)) { // from 1 on
				if number == 0 || types[number-1] != nil {
					in.fail(list.key, "layer %d: layers count from 1, each in one list", number)
					continue
				}
				types[number-1] = list.kind
			}
		}
		for i, t := range types {
			if t == nil {
				in.fail("kda_layers", "layer %d is in no list", i+1)
			}
		}
		f.vals["layer_types"] = types
	}
	if in.err != nil && f.err == nil {
		f.err = in.err
	}
}

func (c *Config) kimiLinear(f *fields) {
	c.mlaFields(f)
	c.sigmoidExperts(f)
	if f.has("mlp_layer_types") {
		c.mlpTypes(f)
	}
	if !f.bool("mla_use_nope", true) {
		f.fail("mla_use_nope", "false is not supported: Transformers' class has no rotary embedding")
	}
	if is := f.str("moe_router_activation_func", "sigmoid"); is != "sigmoid" {
		f.fail("moe_router_activation_func", "%q is not supported; known: sigmoid", is)
	}
	r := &KDA{Heads: f.int("linear_num_heads", 32, 1, maxRecurHeads), Dim: f.int("linear_head_dim", 128, 1, maxRecurDim),
		Taps: f.int("linear_conv_kernel_dim", 4, 1, maxTaps)}
	c.recurrentBlocks(f, c.typesOfLayers(f), linearAttention, func(b int) bool { return b == 0 || b%4 != 0 })
	if c.Recurrent != nil {
		c.KDA = r
	}
	if c.Activation != SiLU {
		f.fail("hidden_act", "%s is not supported, only silu", show(f.vals["hidden_act"]))
	}
	c.NoRope = make([]bool, c.NumLayers)
	for b := range c.NoRope {
		c.NoRope[b] = true
	}
}
