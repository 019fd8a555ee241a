package model

import (
	"maps"
	"slices"
)

func init() {
	experts := "feed_forward.experts."
	text := family{
		arch: "Llama4ForCausalLM", modelType: "llama4_text",
		tensors: tensors{
			RoleGateUp:       {"feed_forward.gate_proj.weight", "feed_forward.up_proj.weight"},
			RoleDown:         {"feed_forward.down_proj.weight"},
			RoleRouter:       {"feed_forward.router.weight"},
			RoleExpertGateUp: {experts + expertNumber + ".gate_proj.weight", experts + expertNumber + ".up_proj.weight"},
			RoleExpertDown:   {experts + expertNumber + ".down_proj.weight"},
			RoleSharedGateUp: {"feed_forward.shared_expert.gate_proj.weight", "feed_forward.shared_expert.up_proj.weight"},
			RoleSharedDown:   {"feed_forward.shared_expert.down_proj.weight"},
		},
		places: map[Role]placed{
			RoleExpertGateUp: {tensor: experts + "gate_up_proj", experts: true, transposed: true},
			RoleExpertDown:   {tensor: experts + "down_proj", experts: true, transposed: true},
		},
		defaults: map[string]any{"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
			"num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
			"rms_norm_eps": 1e-5, "rope_theta": 5e5, "bos_token_id": 1, "eos_token_id": 2, "num_local_experts": 16, "num_experts_per_tok": 1,
			"interleave_moe_layer_step": 1, "use_qk_norm": true, "attention_chunk_size": 8192, "attn_temperature_tuning": true,
			"floor_scale": 8192, "attn_scale": 0.1},
		keys: []string{"intermediate_size_mlp", "attention_bias", "num_local_experts", "num_experts_per_tok", "moe_layers",
			"interleave_moe_layer_step", "use_qk_norm", "no_rope_layers", "no_rope_layer_interval", "layer_types", "attention_chunk_size",
			"attn_temperature_tuning", "floor_scale", "attn_scale", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise"},
		prepare: llama4Spellings,
		options: (*Config).llama4,
		write:   (*Config).llama4JSON,
	}
	register(text)

	// The multimodal class: its directories hold the same language model and a vision tower, which
	// is not trained.
	text.arch, text.modelType = "Llama4ForConditionalGeneration", "llama4"
	text.nested = &nested{key: "text_config", types: []string{"llama4_text"}, alone: "llama4_text"}
	text.defaults = maps.Clone(text.defaults)
	text.prefixes = []prefix{{"language_model.model.", "language_model.lm_head."}}
	register(text)
}

// llama4Spellings turns a number at attn_temperature_tuning, as published files have it, into a
// boolean: 0 is false, any other number true.
func llama4Spellings(f *fields) {
	if x, ok := number(f.vals["attn_temperature_tuning"]); ok {
		f.vals["attn_temperature_tuning"] = x != 0
	}
}

// llama4 sets how Llama 4 differs from Llama: rotary embeddings and chunked attention in three blocks of four, and
// scaled queries in the fourth, which has neither. It has routed experts with weighted inputs and a shared expert.
// Transformers norms q and k after the rotation; that is the same, because a rotation keeps norms and the norm has no
// weights. Source: transformers.Llama4TextConfig.
func (c *Config) llama4(f *fields) {
	c.biases(f)
	c.noRope(f)
	c.RopeInterleaved = true
	c.QKNorm = f.bool("use_qk_norm", false)
	c.QKNormPlain, c.QKNormTurning = c.QKNorm, c.QKNorm
	c.chunkedFields(f)
	if f.bool("attn_temperature_tuning", false) && c.NoRope != nil {
		c.QueryScaling = &QueryScaling{Scale: f.float("attn_scale", 0, 0, 1e3), Every: f.float("floor_scale", 1, 1, maxPositions), Ahead: 1}
	}
	c.MoEIntermediateSize, c.SharedSize = c.IntermediateSize, c.IntermediateSize
	c.IntermediateSize = f.need("intermediate_size_mlp", 1, maxFFN)
	c.SigmoidScores, c.WeightedInputs = true, true
	c.NumExperts = f.int("num_local_experts", 0, 1, maxExperts)
	c.NumExpertsPerTok = f.int("num_experts_per_tok", 1, 1, maxExpertsUsed)
	c.llama4ExpertBlocks(f)
	c.expertBounds(f, "num_local_experts")
	c.noBalance(f)
	f.noNoise("router_jitter_noise")
}

// llama4ExpertBlocks reads the blocks with experts: moe_layers or, without it, every interleave_moe_layer_step-th
// block.
func (c *Config) llama4ExpertBlocks(f *fields) {
	c.DecoderSparseStep = f.int("interleave_moe_layer_step", 1, 1, maxLayers)
	if f.has("moe_layers") {
		listed := f.ints("moe_layers", c.NumLayers-1)
		c.DecoderSparseStep = 1
		for b := range c.NumLayers {
			if !slices.Contains(listed, b) {
				c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
			}
		}
	}
	if c.ExpertBlocks() == 0 {
		c.NumExperts, c.NumExpertsPerTok, c.SharedSize = 0, 0, 0
	}
}

func (c *Config) llama4JSON(m map[string]any) {
	m["intermediate_size"], m["intermediate_size_mlp"] = c.MoEIntermediateSize, c.IntermediateSize
	m["attention_bias"], m["use_qk_norm"] = c.QKVBias, c.QKNorm
	m["num_local_experts"], m["num_experts_per_tok"] = max(1, c.NumExperts), max(1, c.NumExpertsPerTok)
	moe, turns := []int{}, make([]int, c.NumLayers)
	for b := range turns {
		if c.HasExperts(b) {
			moe = append(moe, b)
		}
		if c.Turns(b) {
			turns[b] = 1
		}
	}
	m["moe_layers"], m["interleave_moe_layer_step"], m["no_rope_layers"], m["layer_types"] = moe, 1, turns, c.layerTypes()
	m["attention_chunk_size"], m["attn_temperature_tuning"] = optional(c.ChunkSize), c.QueryScaling != nil
	if c.QueryScaling != nil {
		m["attn_scale"], m["floor_scale"] = float(c.QueryScaling.Scale), int(c.QueryScaling.Every)
	}
	m["output_router_logits"], m["router_jitter_noise"] = false, float(0)
}
