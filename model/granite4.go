package model

func init() {
	register(family{
		arch: "GraniteMoeHybridForCausalLM", modelType: "granitemoehybrid",
		tensors: tensors{
			RoleGateUp: {"shared_mlp.input_linear.weight"},
			RoleDown:   {"shared_mlp.output_linear.weight"},
		},
		defaults: map[string]any{"max_position_embeddings": 2048, "num_local_experts": 8, "shared_intermediate_size": 1024},
		keys: []string{"attention_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling",
			"num_local_experts", "shared_intermediate_size", "position_embedding_type", "layer_types"},
		options: (*Config).granite4,
		write: func(c *Config, m map[string]any) {
			m["attention_bias"], m["num_local_experts"], m["shared_intermediate_size"] = c.QKVBias, 0, c.IntermediateSize
			c.multipliersJSON(m)
			m["layer_types"], m["position_embedding_type"] = c.layerTypes(), nil
			m["mamba_n_heads"] = 1 // no layer uses it, but Transformers requires that it divides hidden_size
			if c.NoRope == nil {
				m["position_embedding_type"] = "rope"
			}
		},
	})
}

// granite4 sets Granite 4 for its dense models with attention in all layers (micro, 1b, 350m). Their MLP is the shared
// expert of the MoE models, and a rotary embedding is optional. Source: transformers.GraniteMoeHybridConfig.
func (c *Config) granite4(f *fields) {
	c.biases(f)
	c.multipliers(f)
	c.IntermediateSize = f.int("shared_intermediate_size", 0, 1, maxFFN)
	if n := f.int("num_local_experts", 0, 0, maxExperts); n > 0 {
		f.fail("num_local_experts", "%d: experts beside an MLP that adds to them are not supported here, only 0 of them%s", n, addOne)
	}
	types := c.typesOfLayers(f)
	if types == nil {
		f.fail("layer_types", "missing, which makes all layers Mamba's: these are not supported%s", addOne)
	}
	for b, t := range types {
		if t != "attention" && t != fullAttention {
			f.fail("layer_types", "layer %d is %q; only attention is supported%s", b, t, addOne)
		}
	}
	if f.err != nil || f.str("position_embedding_type", "") == "rope" {
		return
	}
	c.NoRope = make([]bool, c.NumLayers)
	for b := range c.NoRope {
		c.NoRope[b] = true
	}
}
