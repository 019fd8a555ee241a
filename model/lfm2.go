package model

import "slices"

// LFM2 has gated short convolutions in most blocks and attention with q/k norm in the others. Source:
// arXiv:2511.23404; transformers.Lfm2Config.
func init() {
	register(family{
		arch: "Lfm2ForCausalLM", modelType: "lfm2",
		tensors: tensors{
			RoleAttnNorm: {"operator_norm.weight"}, RoleMLPNorm: {"ffn_norm.weight"}, RoleFinalNorm: {"embedding_norm.weight"},
			RoleQNorm: {"self_attn.q_layernorm.weight"}, RoleKNorm: {"self_attn.k_layernorm.weight"}, RoleO: {"self_attn.out_proj.weight"},
			RoleGateUp: {"feed_forward.w1.weight", "feed_forward.w3.weight"}, RoleDown: {"feed_forward.w2.weight"},
		},
		defaults: map[string]any{"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 8, "max_position_embeddings": 128000, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": true},
		names:   map[string]string{"rms_norm_eps": "norm_eps"},
		keys:    []string{"conv_bias", "conv_L_cache", "layer_types", "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "full_attn_idxs"},
		prepare: lfm2Names,
		options: (*Config).lfm2,
		write: func(c *Config, m map[string]any) {
			m["layer_types"] = c.recurrentTypes(convLayer, fullAttention)
			m["block_auto_adjust_ff_dim"] = false // intermediate_size is the width of the MLP
			if r := c.ShortConv; r != nil {
				m["conv_bias"], m["conv_L_cache"] = r.Bias, r.Taps
			}
		},
	})
}

// convLayer is the value of layer_types for blocks with a gated short convolution.
const convLayer = "conv"

// lfm2Names copies two keys, which published files spell otherwise, to their usual names.
func lfm2Names(f *fields) {
	for to, from := range map[string]string{"tie_word_embeddings": "tie_embedding", "intermediate_size": "block_ff_dim"} {
		if f.has(from) {
			f.vals[to] = f.vals[from]
		}
	}
}

func (c *Config) lfm2(f *fields) {
	c.QKNorm = true
	if f.bool("block_auto_adjust_ff_dim", true) {
		c.IntermediateSize = adjustedWidth(c.IntermediateSize, f)
	}
	types, attends := c.typesOfLayers(f), f.ints("full_attn_idxs", c.NumLayers-1)
	c.recurrentBlocks(f, types, convLayer, func(b int) bool { return attends != nil && !slices.Contains(attends, b) })
	if c.Recurrent != nil {
		c.ShortConv = &ShortConv{Channels: c.HiddenSize, Taps: f.int("conv_L_cache", 3, 1, maxTaps), Bias: f.bool("conv_bias", false)}
	}
}

// adjustedWidth returns the width of the MLP, which the class in Transformers derives from intermediate_size: two
// thirds of it, times block_ffn_dim_multiplier, rounded up to a multiple of block_multiple_of.
func adjustedWidth(size int, f *fields) int {
	size = 2 * size / 3
	if by, given := f.vals["block_ffn_dim_multiplier"]; given && by == nil {
		return size
	}
	size = int(f.float("block_ffn_dim_multiplier", 1, 1e-3, 1e3) * float64(size))
	multiple := f.int("block_multiple_of", 256, 1, maxFFN)
	return (size + multiple - 1) / multiple * multiple
}
