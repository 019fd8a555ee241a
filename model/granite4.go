package model

import "slices"

func init() {
	register(family{
		arch: "GraniteMoeHybridForCausalLM", modelType: "granitemoehybrid",
		tensors: tensors{
			RoleGateUp:       {"shared_mlp.input_linear.weight"},
			RoleDown:         {"shared_mlp.output_linear.weight"},
			RoleSharedGateUp: {"shared_mlp.input_linear.weight"},
			RoleSharedDown:   {"shared_mlp.output_linear.weight"},
			RoleRouter:       {"block_sparse_moe.router.layer.weight"},
			RoleExpertGateUp: {"block_sparse_moe.experts." + expertNumber + ".input_linear.weight"},
			RoleExpertDown:   {"block_sparse_moe.experts." + expertNumber + ".output_linear.weight"},
		},
		places: map[Role]placed{
			RoleExpertGateUp: {tensor: "block_sparse_moe.input_linear.weight", experts: true},
			RoleExpertDown:   {tensor: "block_sparse_moe.output_linear.weight", experts: true},
		},
		defaults: map[string]any{"max_position_embeddings": 2048, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024},
		keys: slices.Concat([]string{"attention_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
			"num_local_experts", "num_experts_per_tok", "shared_intermediate_size", "position_embedding_type", "layer_types", "layers_block_type"}, mamba2Keys, balanceKeys),
		prepare: func(f *fields) {
			if !f.has("layer_types") && f.has("layers_block_type") {
				f.setDefaults(map[string]any{"layer_types": f.vals["layers_block_type"]})
			}
		},
		options: (*Config).granite4,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["num_local_experts"], m["shared_intermediate_size"] = c.QKVBias, c.NumExperts, c.IntermediateSize
			if c.NumExperts > 0 {
				m["shared_intermediate_size"], m["intermediate_size"], m["num_experts_per_tok"] = c.SharedSize, c.MoEIntermediateSize, c.NumExpertsPerTok
				c.balanceJSON(m)
			}
			c.multipliersJSON(m)
			m["layer_types"], m["position_embedding_type"] = c.recurrentTypes("mamba", "attention"), nil
			m["mamba_n_heads"] = 1 // Transformers requires, even without Mamba-2, that this number divides hidden_size
			if c.Mamba2 != nil {
				c.Mamba2.json(m)
				m["mamba_expand"] = c.Mamba2.Inner() / c.HiddenSize
			}
			if c.NoRope == nil {
				m["position_embedding_type"] = "rope"
			}
		},
	})
}

// granite4 sets Granite 4. Most blocks have a Mamba-2 mixer, the others attention; a rotary embedding is optional.
// Every token passes the MLP. In a model with experts this MLP is the shared expert. Source:
// transformers.GraniteMoeHybridConfig.
func (c *Config) granite4(f *fields) {
	c.biases(f)
	c.multipliers(f)
	width := f.int("shared_intermediate_size", 0, 1, maxFFN)
	if c.NumExperts = f.int("num_local_experts", 0, 0, maxExperts); c.NumExperts == 0 {
		c.IntermediateSize = width
	} else {
		// The weights of the chosen experts are a softmax over their logits alone.
		c.NumExpertsPerTok, c.MoEIntermediateSize, c.NormTopKProb = f.int("num_experts_per_tok", 2, 1, maxExpertsUsed), c.IntermediateSize, true
		c.SharedSize, c.DecoderSparseStep = width, 1
		c.balance(f)
		c.expertBounds(f, "num_local_experts")
	}
	types := c.typesOfLayers(f)
	for b, t := range types { // older files have other names
		switch t {
		case "mamba":
			types[b] = linearAttention
		case "attention":
			types[b] = fullAttention
		}
	}
	c.recurrentBlocks(f, types, linearAttention, func(int) bool { return true })
	if c.Activation != SiLU && c.Recurrent != nil {
		f.fail("hidden_act", "%q is not supported with Mamba-2, only silu", f.str("hidden_act", ""))
	}
	if c.Recurrent != nil {
		c.Mamba2 = c.mamba2Fields(f, f.int("mamba_expand", 2, 1, 64)*c.HiddenSize)
	}
	if f.err != nil || f.str("position_embedding_type", "") == "rope" {
		return
	}
	c.NoRope = make([]bool, c.NumLayers)
	for b := range c.NoRope {
		c.NoRope[b] = true
	}
}
