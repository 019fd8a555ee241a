package model

import "slices"

// ERNIE 4.5 with experts. The router chooses by the softmax of all logits plus a bias. Multi-token prediction layers
// are not trained and are saved unchanged. Source: transformers.Ernie4_5_MoeConfig.
func init() {
	register(family{
		arch: "Ernie4_5_MoeForCausalLM", modelType: "ernie4_5_moe",
		tensors: tensors{RoleChoiceBias: {"mlp.moe_statics.e_score_correction_bias"}},
		places:  map[Role]placed{RoleChoiceBias: {row: true}},
		names:   map[string]string{"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
		defaults: map[string]any{"vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
			"num_attention_heads": 20, "num_key_value_heads": 4, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
			"rope_theta": 5e5, "tie_word_embeddings": true, "num_experts": 64, "num_experts_per_tok": 6, "moe_num_shared_experts": 2,
			"moe_intermediate_size": 1536, "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
		keys: slices.Concat(balanceKeys, []string{"use_bias", "num_experts", "num_experts_per_tok", "moe_num_experts", "moe_k", "moe_num_shared_experts",
			"moe_intermediate_size", "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_norm_min"}),
		options: (*Config).ernieMoE,
		write: func(c *Config, m map[string]any) {
			m["use_bias"] = c.QKVBias
			m["num_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
			m["moe_num_shared_experts"], m["moe_layer_interval"] = c.SharedSize/c.MoEIntermediateSize, c.DecoderSparseStep
			m["moe_layer_start_index"], m["moe_layer_end_index"] = c.expertRange()
			c.balanceJSON(m)
		},
	})
}

func (c *Config) ernieMoE(f *fields) {
	c.QKVBias = f.bool("use_bias", false)
	c.OBias, c.MLPBias = c.QKVBias, c.QKVBias
	c.RopeInterleaved = true
	c.noWindow(f)
	c.NumExperts = f.need("num_experts", 1, maxExperts)
	c.NumExpertsPerTok = f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.need("moe_intermediate_size", 1, maxFFN/maxExpertsUsed)
	c.SharedSize = f.need("moe_num_shared_experts", 0, maxExpertsUsed) * c.MoEIntermediateSize
	c.SharedBias = c.MLPBias && c.SharedSize > 0
	c.NormTopKProb, c.ChoiceBias = true, true
	c.DecoderSparseStep = f.need("moe_layer_interval", 1, maxLayers)
	first, last := f.need("moe_layer_start_index", 0, maxLayers), f.need("moe_layer_end_index", -1, maxLayers)
	for b := range c.NumLayers {
		if b < first || last >= 0 && b > last {
			c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
		}
	}
	c.expertBounds(f, "num_experts")
	c.balance(f)
	f.float("moe_norm_min", 1e-12, 0, 1e-9) // the chosen scores, of which one is at least a third of 1/experts, are never so small
	if c.ExpertBlocks() == 0 {
		f.fail("moe_layer_start_index", "no layer has experts; take model_type ernie4_5")
	}
}

// expertRange returns the first and the last block with experts, for the keys of config.json that
// give the range. The blocks without experts, before and after the range, are in c.MLPOnlyLayers.
func (c *Config) expertRange() (first, last int) {
	last = c.NumLayers - 1
	for slices.Contains(c.MLPOnlyLayers, first) {
		first++
	}
	for slices.Contains(c.MLPOnlyLayers, last) {
		last--
	}
	return first, last
}
