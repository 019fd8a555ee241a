package model

import "slices"

// Nemotron-H has blocks with a single part each: a Mamba-2 mixer, attention without RoPE, an MLP without a gate, or
// experts with such MLPs. Source: arXiv:2504.03624; transformers.NemotronHConfig.
func init() {
	expert, shared := "mixer.experts."+expertNumber+".", "mixer.shared_experts."
	register(family{
		arch: "NemotronHForCausalLM", modelType: "nemotron_h",
		prefixes: []prefix{{"backbone.", "lm_head."}, usualPrefix},
		tensors: tensors{
			RoleEmbed: {"embeddings.weight"}, RoleFinalNorm: {"norm_f.weight"}, RoleAttnNorm: {"norm.weight"}, RoleMLPNorm: {"norm.weight"},
			RoleQKV:     {"mixer.q_proj.weight", "mixer.k_proj.weight", "mixer.v_proj.weight"},
			RoleO:       {"mixer.o_proj.weight"},
			RoleRecurIn: {"mixer.in_proj.weight"}, RoleRecurInBias: {"mixer.in_proj.bias"},
			RoleRecurTaps: {"mixer.conv1d.weight"}, RoleRecurTapsBias: {"mixer.conv1d.bias"},
			RoleRecurDecay: {"mixer.A_log"}, RoleRecurDtBias: {"mixer.dt_bias"}, RoleRecurSkip: {"mixer.D"}, RoleRecurNorm: {"mixer.norm.weight"},
			RoleRecurOut: {"mixer.out_proj.weight"}, RoleRecurOutBias: {"mixer.out_proj.bias"},
			RoleUp: {"mixer.up_proj.weight"}, RoleUpBias: {"mixer.up_proj.bias"}, RoleDown: {"mixer.down_proj.weight"}, RoleDownBias: {"mixer.down_proj.bias"},
			RoleRouter: {"mixer.gate.weight"}, RoleChoiceBias: {"mixer.gate.e_score_correction_bias"},
			RoleExpertGateUp: {expert + "up_proj.weight"}, RoleExpertDown: {expert + "down_proj.weight"},
			RoleSharedGateUp: {shared + "up_proj.weight"}, RoleSharedDown: {shared + "down_proj.weight"},
			RoleSharedGateUpBias: {shared + "up_proj.bias"}, RoleSharedDownBias: {shared + "down_proj.bias"},
		},
		names: map[string]string{"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "mlp_hidden_act", "layer_types": "layers_block_type",
			"mamba_n_heads": "mamba_num_heads", "mamba_d_head": "mamba_head_dim", "mamba_d_state": "ssm_state_size", "mamba_n_groups": "n_groups",
			"mamba_d_conv": "conv_kernel", "mamba_conv_bias": "use_conv_bias", "mamba_proj_bias": "use_bias"},
		eitherName: true,
		defaults: map[string]any{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 8,
			"head_dim": 128, "max_position_embeddings": 4096, "hidden_act": "relu2", "rms_norm_eps": 1e-5, "mamba_n_heads": 128, "mamba_d_head": 64,
			"mamba_d_state": 128, "mamba_n_groups": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
			"moe_shared_expert_intermediate_size": 7688, "time_step_min": 0.001},
		keys: slices.Concat([]string{"attention_bias", "mlp_bias", "use_bias", "layers_block_type", "hybrid_override_pattern", "mamba_num_heads",
			"mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "use_conv_bias", "mamba_hidden_act", "mlp_hidden_act", "layer_norm_epsilon",
			"moe_shared_expert_intermediate_size", "moe_latent_size", "time_step_min", "mamba_dt_min"}, mamba2Keys, sigmoidKeys),
		prepare: nemotronHBlocks,
		options: (*Config).nemotronH,
		write:   (*Config).nemotronHJSON,
	})
}

// nemotronHTypes maps the letters of hybrid_override_pattern, and older names of block types, to
// values of layer_types.
var nemotronHTypes = map[string]string{"M": linearAttention, "*": fullAttention, "E": "moe", "-": "mlp", "mamba": linearAttention, "attention": fullAttention}

// nemotronHBlocks sets layer_types from hybrid_override_pattern, which has a letter per block, if
// layer_types is missing. It also sets the number of blocks to the length of layer_types, as the
// class in Transformers does.
func nemotronHBlocks(f *fields) {
	types, _ := f.vals["layer_types"].([]any)
	if types == nil {
		for _, letter := range f.str("hybrid_override_pattern", "ME*-") {
			types = append(types, string(letter))
		}
	}
	types = slices.Clone(types)
	for i, t := range types {
		if name, ok := t.(string); ok && nemotronHTypes[name] != "" {
			types[i] = nemotronHTypes[name]
		}
	}
	f.vals["layer_types"], f.vals["num_hidden_layers"] = types, len(types)
	if f.has("mamba_dt_min") {
		f.vals["time_step_min"] = f.vals["mamba_dt_min"]
	}
	f.vals["time_step_limit"] = []any{f.vals["time_step_min"], maxStep} // the class ignores the file's
}

func (c *Config) nemotronH(f *fields) {
	c.Ungated = true
	c.MLPBias = f.bool("mlp_bias", false)
	for _, key := range []string{"attention_bias", tiedKey} {
		if f.bool(key, false) {
			f.fail(key, "true is not supported: Transformers' class takes no notice of it")
		}
	}
	types := c.typesOfLayers(f)
	if f.err != nil {
		return
	}
	c.NoRope, c.Alone, c.Recurrent = make([]bool, c.NumLayers), make([]Half, c.NumLayers), make([]bool, c.NumLayers)
	for b, t := range types {
		c.NoRope[b], c.Alone[b] = true, FirstHalf
		switch t {
		case linearAttention:
			c.Recurrent[b] = true
		case "moe", "mlp":
			c.Alone[b] = SecondHalf
		case fullAttention:
		default:
			f.fail("layers_block_type", "layer %d is %q; known: %s, %s, moe, mlp", b, t, linearAttention, fullAttention)
		}
		if t != "moe" {
			c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
		}
	}
	if c.RecurrentBlocks() > 0 {
		c.Mamba2 = c.mamba2Fields(f, f.need("mamba_n_heads", 1, maxScanHeads)*f.need("mamba_d_head", 1, maxScanHead))
	} else {
		c.Recurrent = nil
	}
	if act := f.str("mamba_hidden_act", "silu"); act != "silu" {
		f.fail("mamba_hidden_act", "%q is not supported, only silu", act)
	}
	if len(c.MLPOnlyLayers) < c.NumLayers {
		c.nemotronHExperts(f)
	}
}

func (c *Config) nemotronHExperts(f *fields) {
	c.NumExperts, c.NumExpertsPerTok = f.need("n_routed_experts", 1, maxExperts), f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize, c.SharedSize = f.need("moe_intermediate_size", 1, maxFFN), f.need("moe_shared_expert_intermediate_size", 1, maxFFN)
	c.RoutedScale, c.NormTopKProb = f.float("routed_scaling_factor", 1, 1e-6, 1e6), f.bool("norm_topk_prob", true)
	c.SigmoidScores, c.ChoiceBias, c.SharedBias, c.DecoderSparseStep = true, true, c.MLPBias, 1
	if f.has("moe_latent_size") {
		f.fail("moe_latent_size", "%s: experts of a latent size are not supported", show(f.vals["moe_latent_size"]))
	}
	c.expertGroups(f, 2)
	c.expertBounds(f, "n_routed_experts")
	c.noBalance(f)
}

func (c *Config) nemotronHJSON(m map[string]any) {
	types := make([]string, c.NumLayers)
	for b := range types {
		switch {
		case c.HasExperts(b):
			types[b] = "moe"
		case !c.Mixes(b):
			types[b] = "mlp"
		case c.IsRecurrent(b):
			types[b] = linearAttention
		default:
			types[b] = fullAttention
		}
	}
	m["layer_types"], m["mlp_bias"] = types, c.MLPBias
	if r := c.Mamba2; r != nil {
		r.json(m)
		delete(m, "time_step_limit")
		m["time_step_min"] = float(r.DtMin)
	}
	if c.NumExperts > 0 {
		m["n_routed_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
		m["moe_shared_expert_intermediate_size"], m["norm_topk_prob"] = c.SharedSize, c.NormTopKProb
		m["routed_scaling_factor"], m["n_group"], m["topk_group"] = float(c.RoutedScale), max(1, c.ExpertGroups), max(1, c.OpenGroups)
	}
}
