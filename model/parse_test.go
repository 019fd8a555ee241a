package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func base() map[string]any {
	return map[string]any{
		"architectures": []any{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": 320, "hidden_size": 64,
		"intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
	}
}

// parse parses a config.json made of base, a small Llama's keys, with changes. A nil value removes
// the key.
func parse(t *testing.T, changes map[string]any) (*Config, error) {
	t.Helper()
	m := base()
	maps.Copy(m, changes)
	for k, v := range changes {
		if v == nil {
			delete(m, k)
		}
	}
	raw := testkit.Must(json.Marshal(m))(t)
	return ParseConfig(raw, "dir/config.json")
}

// changed returns the changes that make base, a small Llama's config, one of the given model type,
// together with further changes.
func changed(modelType string, changes map[string]any) map[string]any {
	m := map[string]any{"architectures": nil, "model_type": modelType}
	maps.Copy(m, changes)
	return m
}

func gemma4Config(changes map[string]any) map[string]any {
	m := map[string]any{"num_hidden_layers": 6, "hidden_size_per_layer_input": 0}
	maps.Copy(m, changes)
	return changed("gemma4_text", m)
}

func phiConfig(changes map[string]any) map[string]any { return changed("phi3", changes) }

var eights = []any{1, 1, 1, 1, 1, 1, 1, 1}

// isGemma says whether c has all settings by which Gemma 3 differs from Llama, with the class's
// defaults.
func isGemma(c *Config) bool {
	return c.NormOffset == 1 && c.SandwichNorms && c.QKNorm && c.EmbedScale == 8 && c.Activation == GELUTanh && c.AttnScale == 1.0/16 &&
		c.TieEmbeddings && c.HeadDim == 256 && c.Window(0) == 4096 && c.Window(5) == 0 && c.Window(6) == 4096 &&
		c.RopeOf(0) == 1 && c.RopeOf(5) == 0 && c.Ropes()[0].Theta == 1e6 && c.Ropes()[1].Theta == 1e4
}

func TestParseSpellings(t *testing.T) {
	llama3 := Rope{Type: "llama3", Theta: 5e5, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	scaling := map[string]any{"factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
	with := func(kv ...any) map[string]any {
		m := maps.Clone(scaling)
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	cases := []struct {
		name    string
		changes map[string]any
		check   func(c *Config) bool
	}{
		{"head_dim default", nil, func(c *Config) bool { return c.HeadDim == 16 && c.MaxPositions == 2048 }},
		{"kv default", map[string]any{"num_key_value_heads": nil}, func(c *Config) bool { return c.NumKVHeads == 4 }},
		{"model_type alone", map[string]any{"architectures": nil}, func(c *Config) bool { return c.Arch == "LlamaForCausalLM" }},
		{"architectures alone", map[string]any{"model_type": nil}, func(c *Config) bool { return c.ModelType == "llama" }},
		{"theta 4", map[string]any{"rope_theta": 5e5}, func(c *Config) bool { return reflect.DeepEqual(c.Rope, Rope{Type: "default", Theta: 5e5}) }},
		{"theta 5", map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5e5}},
			func(c *Config) bool { return reflect.DeepEqual(c.Rope, Rope{Type: "default", Theta: 5e5}) }},
		{"llama3 4, type", map[string]any{"rope_theta": 5e5, "rope_scaling": with("type", "llama3")}, func(c *Config) bool { return reflect.DeepEqual(c.Rope, llama3) }},
		{"llama3 4", map[string]any{"rope_theta": 5e5, "rope_scaling": with("rope_type", "llama3")}, func(c *Config) bool { return reflect.DeepEqual(c.Rope, llama3) }},
		{"llama3 5", map[string]any{"rope_parameters": with("rope_type", "llama3", "rope_theta", 5e5)}, func(c *Config) bool { return reflect.DeepEqual(c.Rope, llama3) }},
		{"both", map[string]any{"rope_theta": 5e5, "rope_scaling": with("rope_type", "llama3"), "rope_parameters": with("rope_type", "llama3", "rope_theta", 5e5)},
			func(c *Config) bool { return reflect.DeepEqual(c.Rope, llama3) }},
		{"eos list", map[string]any{"eos_token_id": []any{7, 9}, "bos_token_id": 1, "pad_token_id": -1},
			func(c *Config) bool {
				return reflect.DeepEqual(c.EOS, []int{7, 9}) && reflect.DeepEqual(c.BOS, []int{1}) && c.PAD == nil
			}},
		{"llama biases", map[string]any{"attention_bias": true, "mlp_bias": true}, func(c *Config) bool { return c.QKVBias && c.OBias && c.MLPBias && !c.QKNorm }},
		{"qwen2", map[string]any{"architectures": []any{"Qwen2ForCausalLM"}, "model_type": "qwen2", "use_sliding_window": false, "sliding_window": 4096},
			func(c *Config) bool { return c.QKVBias && !c.OBias && !c.MLPBias && !c.QKNorm && c.HeadDim == 16 }},
		{"qwen2, window", changed("qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2}),
			func(c *Config) bool { return c.Window(0) == 0 && c.Window(1) == 0 && c.Window(2) == 9 }},
		{"qwen2, layer_types go first", changed("qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2,
			"layer_types": []any{"sliding_attention", "full_attention", "full_attention"}}),
			func(c *Config) bool { return c.Window(0) == 9 && c.Window(1) == 0 && c.Window(2) == 0 }},
		{"mistral", changed("mistral", nil), func(c *Config) bool {
			return c.Arch == "MistralForCausalLM" && c.Window(2) == 4096 && c.Sliding == nil && c.MaxPositions == 131072 && !c.QKVBias
		}},
		{"mistral, windows in some blocks", changed("mistral", map[string]any{"sliding_window": 8, "layer_types": []any{"full_attention", "sliding_attention", "sliding_attention"}}),
			func(c *Config) bool { return c.Window(0) == 0 && c.Window(1) == 8 && c.Window(2) == 8 }},
		{"mistral, a window in no block", changed("mistral", map[string]any{"sliding_window": 8, "layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
			func(c *Config) bool { return c.SlidingWindow == 0 }},
		{"cohere2, heads of their own size", changed("cohere2", map[string]any{"vocab_size": 256000, "head_dim": 8}),
			func(c *Config) bool { return c.HeadDim == 8 && c.OutputCols(0) == 32 }},
		{"a gate by the exact GELU", map[string]any{"hidden_act": "gelu"}, func(c *Config) bool { return c.Activation == GELU && !c.Ungated }},
		{"a gate by ReLU", changed("qwen3", map[string]any{"hidden_act": "relu"}), func(c *Config) bool { return c.Activation == ReLU && !c.Ungated }},
		{"no gate, ReLU", changed("gpt2", map[string]any{"num_key_value_heads": nil, "vocab_size": 50257, "activation_function": "relu"}), func(c *Config) bool { return c.Activation == ReLU && c.Ungated }},
		{"mistral, no window", changed("mistral", map[string]any{"sliding_window": json.RawMessage("null")}),
			func(c *Config) bool { return c.Window(2) == 0 }},
		{"phi3", phiConfig(map[string]any{"partial_rotary_factor": 0.75, "sliding_window": 5}), func(c *Config) bool {
			return c.Rotary(0) == 12 && c.Window(0) == 5 && c.RMSNormEps == 1e-5 && len(c.Layers()[1].Params[1].Stored) == 1
		}},
		{"phi3, its own original length goes first", phiConfig(map[string]any{"original_max_position_embeddings": 16,
			"rope_scaling": map[string]any{"type": "yarn", "original_max_position_embeddings": 99, "short_factor": eights, "long_factor": eights}}),
			func(c *Config) bool { return c.Rope.Type == "longrope" && c.Rope.OriginalMaxPositions == 16 }},
		{"yarn's length is max_position_embeddings by default", map[string]any{"rope_scaling": map[string]any{"type": "yarn", "factor": 2}},
			func(c *Config) bool { return c.Rope.OriginalMaxPositions == 2048 }},
		{"gemma4", gemma4Config(map[string]any{"attention_k_eq_v": true, "num_global_key_value_heads": 1}), func(c *Config) bool {
			return c.Heads(0) == Heads{Dim: 256, KV: 2} && c.Heads(5) == Heads{Dim: 512, KV: 1, KeysAreValues: true} && c.Rotary(0) == 512 && c.Rotary(1) == 256 &&
				reflect.DeepEqual(c.Rope, Rope{Type: "proportional", Theta: 1e6, Partial: 0.25, Dim: 512}) && c.LocalRope.Theta == 1e4 && c.Window(5) == 0
		}},
		{"gemma4, last layer", gemma4Config(map[string]any{"num_hidden_layers": 2, "layer_types": []any{"sliding_attention", "sliding_attention"},
			"global_head_dim": 256}), func(c *Config) bool {
			return c.Window(0) == 512 && c.Window(1) == 0 && c.GlobalHeadDim == 0 && c.Heads(1) == Heads{Dim: 256, KV: 2}
		}},
		{"gemma4, small", gemma4Config(map[string]any{"hidden_size_per_layer_input": nil, "num_kv_shared_layers": 2, "num_hidden_layers": 5, "use_double_wide_mlp": true,
			"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"}}), func(c *Config) bool {
			last := c.Layers()[6]
			return c.PerLayerSize == 256 && c.PerLayerVocab == 262144 && !c.LendsKV(0) && c.LendsKV(1) && c.LendsKV(2) && c.SharesKV(3) && c.LastReader(3) && c.LastReader(4) &&
				!c.LastReader(2) && c.MLPSize(2) == c.IntermediateSize && c.MLPSize(3) == 2*c.IntermediateSize && last.Params[1].Rows == 4*512 && len(last.Params[1].Stored) == 1
		}},
		{"gemma3", changed("gemma3_text", map[string]any{"num_hidden_layers": 7}), isGemma},
		{"gemma3, pattern", changed("gemma3_text", map[string]any{"sliding_window_pattern": 2, "query_pre_attn_scalar": 16}), func(c *Config) bool {
			return c.Window(0) == 4096 && c.Window(1) == 0 && c.Window(2) == 4096 && c.AttnScale == 0.25
		}},
		{"gemma3, caps", changed("gemma3_text", map[string]any{"attn_logit_softcapping": 50, "final_logit_softcapping": 30.0}),
			func(c *Config) bool { return c.AttnSoftcap == 0 && c.LogitSoftcap == 30 }},
		{"smollm3", changed("smollm3", map[string]any{"num_hidden_layers": 5, "num_key_value_heads": nil, "hidden_size": 128, "num_attention_heads": 8}), func(c *Config) bool {
			return c.TieEmbeddings && c.NumKVHeads == 4 && c.Rope.Theta == 2e6 && c.MaxPositions == 32768 && reflect.DeepEqual(c.NoRope, []bool{false, false, false, true, false}) && !c.Turns(3)
		}},
		{"smollm3, its own blocks", changed("smollm3", map[string]any{"no_rope_layers": []any{0, 1, 0, 1}, "use_sliding_window": true, "sliding_window": 7, "mlp_bias": true}), func(c *Config) bool {
			return reflect.DeepEqual(c.NoRope, []bool{true, false, true}) && c.Window(0) == 7 && c.Window(1) == 0 && c.MLPBias && !c.QKVBias
		}},
		{"smollm3, interval", changed("smollm3", map[string]any{"no_rope_layer_interval": 9}), func(c *Config) bool { return c.NoRope == nil && c.Turns(2) }},
		{"granite", changed("granite", map[string]any{"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 16}),
			func(c *Config) bool {
				return c.EmbedScale == 12 && !c.EmbedRounded && c.ResidualScale == 0.22 && c.AttnScale == 1.0/128 && c.LogitScale == 1.0/16
			}},
		{"granite 4", changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "shared_intermediate_size": 99, "residual_multiplier": 0.22, "position_embedding_type": "rope",
			"layer_types": []any{"attention", "attention", "full_attention"}}), func(c *Config) bool {
			return c.IntermediateSize == 99 && c.ResidualScale == 0.22 && c.NoRope == nil && c.Layers()[1].Params[5].Stored[0].Name == "model.layers.0.shared_mlp.output_linear.weight"
		}},
		{"granite, defaults", changed("granite", nil), func(c *Config) bool { return c.AttnScale == 1 && c.LogitScale == 1 && c.ResidualScale == 1 }},
		{"glm4", changed("glm4", nil), func(c *Config) bool {
			return c.SandwichNorms && c.RopeInterleaved && c.QKVBias && !c.OBias && c.Rotary(0) == 64 && c.HeadDim == 128 && c.RMSNormEps == 1.5625e-7 &&
				len(c.Layers()[1].Params) == 9 && c.Layers()[1].Params[6].Stored[0].Name == "model.layers.0.mlp.gate_up_proj.weight"
		}},
		{"glm", changed("glm", nil), func(c *Config) bool {
			return !c.SandwichNorms && c.RopeInterleaved && c.QKVBias && c.Rotary(0) == 64 && len(c.Layers()[1].Params) == 7
		}},
		{"glm, its own share in rope_parameters", changed("glm", map[string]any{"head_dim": 6, "rope_parameters": map[string]any{"partial_rotary_factor": 0.7}}),
			func(c *Config) bool { return c.Rotary(0) == 4 }},
		{"glm, the share by default", changed("glm", map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e4}}),
			func(c *Config) bool { return c.Rotary(0) == 64 }},
		{"ernie4_5", changed("ernie4_5", map[string]any{"use_bias": true}), func(c *Config) bool {
			return c.RopeInterleaved && c.QKVBias && c.OBias && c.MLPBias && c.HeadDim == 128 && c.Rope.Theta == 5e5 && c.TieEmbeddings
		}},
		{"seed_oss", changed("seed_oss", map[string]any{"num_key_value_heads": 2, "attention_out_bias": true}), func(c *Config) bool {
			return c.Dropout == "attention_dropout 0.1, residual_dropout 0.1" && c.QKVBias && c.OBias && !c.MLPBias && c.HeadDim == 128 && !c.RopeInterleaved
		}},
		{"exaone4", changed("exaone4", map[string]any{"num_hidden_layers": 5}), func(c *Config) bool {
			return c.OutputNorms && c.QKNorm && !c.QKNormWhole && c.Window(2) == 4096 && c.Window(3) == 0 && reflect.DeepEqual(c.NoRope, []bool{false, false, false, true, false})
		}},
		{"exaone4, no window", changed("exaone4", map[string]any{"sliding_window": json.RawMessage("null"), "sliding_window_pattern": json.RawMessage("null"),
			"layer_types": []any{"full_attention", "full_attention", "full_attention"}}), func(c *Config) bool { return c.NoRope == nil && c.SlidingWindow == 0 }},
		{"exaone4, a window and no layer that has it", changed("exaone4", map[string]any{"sliding_window_pattern": "LLLG", "layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
			func(c *Config) bool { return !c.Turns(0) && !c.Turns(2) && c.SlidingWindow == 0 }},
		{"olmo2", changed("olmo2", map[string]any{"attention_bias": true}), func(c *Config) bool {
			return c.OutputNorms && !c.SandwichNorms && c.QKNorm && c.QKNormWhole && c.QKVBias && c.OBias && c.RMSNormEps == 1e-5 && c.Rope.Theta == 1e4 && c.SlidingWindow == 0
		}},
		{"olmo3", changed("olmo3", map[string]any{"num_hidden_layers": 5, "rope_theta": 5e5,
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 8192, "attention_factor": 1.2}}), func(c *Config) bool {
			return c.OutputNorms && c.QKNormWhole && c.Window(2) == 4096 && c.Window(3) == 0 && c.Window(4) == 4096 && c.Ropes()[0].Type == "yarn" &&
				reflect.DeepEqual(c.Ropes()[1], Rope{Type: "default", Theta: 5e5}) && c.RopeOf(2) == 1 && c.RopeOf(3) == 0
		}},
		{"gemma2", changed("gemma2", nil), func(c *Config) bool {
			return c.AttnSoftcap == 50 && c.LogitSoftcap == 30 && !c.QKNorm && c.Window(0) == 4096 && c.Window(1) == 0 && c.HeadDim == 256
		}},
		{"gemma3, bases 4", changed("gemma3_text", map[string]any{"num_hidden_layers": 6, "rope_theta": 5e5, "rope_local_base_freq": 5e3, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 8}}),
			func(c *Config) bool {
				return reflect.DeepEqual(c.Ropes(), []Rope{{Type: "linear", Theta: 5e5, Factor: 8}, {Type: "default", Theta: 5e3}})
			}},
		{"gemma3, bases 5", changed("gemma3_text", map[string]any{"num_hidden_layers": 6, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "linear", "factor": 8}, "sliding_attention": map[string]any{"rope_theta": 5e3}}}),
			func(c *Config) bool {
				return reflect.DeepEqual(c.Ropes(), []Rope{{Type: "linear", Theta: 1e6, Factor: 8}, {Type: "default", Theta: 5e3}})
			}},
		{"gemma3 with images", map[string]any{"architectures": nil, "model_type": "gemma3", "text_config": map[string]any{
			"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}}, func(c *Config) bool {
			return c.VocabSize == 262208 && c.NumHeads == 8 && c.HiddenSize == 2560 && c.Layers()[0].Params[0].Stored[0].Name == "language_model.model.embed_tokens.weight"
		}},
		{"gemma3 with images, token ids of the whole", map[string]any{"architectures": nil, "model_type": "gemma3", "eos_token_id": []any{1, 106}, "pad_token_id": 3,
			"tie_word_embeddings": true, "text_config": map[string]any{"hidden_size": 64, "eos_token_id": 1, "bos_token_id": 2, "model_type": "gemma3_text"}}, func(c *Config) bool {
			return reflect.DeepEqual([][]int{c.EOS, c.BOS, c.PAD}, [][]int{{1, 106}, {2}, {3}})
		}},
		{"starcoder2", changed("starcoder2", map[string]any{"vocab_size": 60000, "norm_epsilon": 1e-3, "rms_norm_eps": 0.5, "sliding_window": 9, "attention_dropout": 0.1, "residual_dropout": 0.1}), func(c *Config) bool {
			return c.LayerNorm && c.NormBias && c.Ungated && c.QKVBias && c.OBias && c.MLPBias && c.TieEmbeddings && c.Activation == GELUTanh && c.Window(2) == 9 &&
				c.RMSNormEps == 1e-3 && c.Dropout == "attention_dropout 0.1, residual_dropout 0.1" && !c.Parallel
		}},
		{"gpt_neox, old keys", changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "vocab_size": 320, "rotary_pct": 0.5, "rotary_emb_base": 500, "use_parallel_residual": false}), func(c *Config) bool {
			return c.Rotary(0) == 8 && c.Rope.Theta == 500 && !c.Parallel && c.QKVBias && c.Activation == GELU && c.RMSNormEps == 1e-5 && !c.TieEmbeddings
		}},
		{"gpt_neox, new keys", changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "rope_parameters": map[string]any{"partial_rotary_factor": 1.0, "rope_theta": 700}, "attention_bias": false}), func(c *Config) bool {
			return c.Rotary(0) == 16 && c.Rope.Theta == 700 && c.Parallel && !c.SharedNorm && !c.QKVBias && c.MLPBias &&
				c.Layers()[1].Params[0].Stored[0].Name == "gpt_neox.layers.0.input_layernorm.weight"
		}},
		{"gpt2", changed("gpt2", map[string]any{"num_key_value_heads": nil, "vocab_size": 50257, "hidden_size": 5, "n_embd": 48, "n_layer": 2, "n_inner": json.RawMessage("null"), "attn_pdrop": 0.1}), func(c *Config) bool {
			l := c.Layers()
			return c.HiddenSize == 48 && c.NumLayers == 2 && c.NumHeads == 12 && c.IntermediateSize == 192 && c.MaxPositions == 1024 && c.LearnedPositions &&
				c.Dropout == "attn_pdrop 0.1" && len(l) == 5 && l[1].Kind == Positions && l[1].Params[0].Rows == 1024 && len(c.Ropes()) == 0 && !c.Turns(0) &&
				l[2].Params[2].Stored[0].Tensor() == "transformer.h.0.attn.c_attn.weight" && l[2].Params[2].Stored[0].Place.Transposed
		}},
		{"gpt2, its own width", changed("gpt2", map[string]any{"num_key_value_heads": nil, "vocab_size": 50257, "n_inner": 100}), func(c *Config) bool { return c.IntermediateSize == 100 && c.HiddenSize == 768 }},
		{"cohere2", changed("cohere2", map[string]any{"vocab_size": 256000, "num_hidden_layers": 5, "rotary_pct": 1.0}), func(c *Config) bool {
			return c.Parallel && c.SharedNorm && c.LayerNorm && !c.NormBias && c.RopeInterleaved && c.LogitScale == 0.0625 && c.Window(2) == 4096 && c.Window(3) == 0 &&
				c.Turns(2) && !c.Turns(3) && c.Turns(4) && c.TieEmbeddings
		}},
		{"cohere2, layer_types", changed("cohere2", map[string]any{"vocab_size": 256000, "layer_types": []any{"full_attention", "sliding_attention", "sliding_attention"}}),
			func(c *Config) bool { return !c.Turns(0) && c.Turns(1) }},
		{"gemma3, null activation", changed("gemma3_text", map[string]any{"hidden_activation": json.RawMessage("null")}), func(c *Config) bool { return c.Activation == GELUTanh }},
		{"gemma3, no window anywhere", changed("gemma3_text", map[string]any{"sliding_window": json.RawMessage("null"),
			"layer_types": []any{"full_attention", "full_attention", "full_attention"}}), func(c *Config) bool { return c.SlidingWindow == 0 && c.LocalRope == nil }},
		{"other architectures' keys that say nothing", phiConfig(map[string]any{"attention_bias": false, "lm_head_bias": false, "mlp_bias": false, "full_attn_mod": 1,
			"interpolate_factor": 1.0, "logit_scale": 1, "is_causal": true, "num_local_experts": 0, "no_rope_layers": []any{}, "clip_qkv": json.RawMessage("null")}),
			func(c *Config) bool { return !c.MLPBias }},
		{"qwen3 moe", changed("qwen3_moe", map[string]any{"num_experts": 8, "decoder_sparse_step": 2, "norm_topk_prob": true, "head_dim": 16}), func(c *Config) bool {
			return c.NumExperts == 8 && c.NumExpertsPerTok == 8 && !c.HasExperts(0) && c.HasExperts(1) && !c.HasExperts(2) && c.NormTopKProb && c.QKNorm
		}},
		{"qwen3 moe, dense layers", changed("qwen3_moe", map[string]any{"num_local_experts": 9, "mlp_only_layers": []any{1}, "output_router_logits": true}), func(c *Config) bool {
			return c.NumExperts == 9 && c.HasExperts(0) && !c.HasExperts(1) && c.HasExperts(2) && c.OutputRouterLogits && c.RouterAuxLossCoef == 0.001
		}},
		{"mixtral", map[string]any{"architectures": []any{"MixtralForCausalLM"}, "model_type": "mixtral", "num_local_experts": 4, "router_jitter_noise": 0.0, "sliding_window": json.RawMessage("null")},
			func(c *Config) bool {
				return c.NumExperts == 4 && c.NumExpertsPerTok == 2 && c.MoEIntermediateSize == c.IntermediateSize && c.NormTopKProb && c.HasExperts(0) && c.Rope.Theta == 1e6 &&
					c.SlidingWindow == 0 && c.Layers()[2].Params[2].Stored[1].Name == "model.layers.0.block_sparse_moe.experts.0.w3.weight"
			}},
		{"qwen2 moe", changed("qwen2_moe", map[string]any{"mlp_only_layers": []any{1}}), func(c *Config) bool {
			return c.NumExperts == 60 && c.NumExpertsPerTok == 4 && c.SharedSize == 5632 && c.SharedGate && c.QKVBias && !c.NormTopKProb && !c.HasExperts(1) &&
				c.MoEIntermediateSize == 1408 && c.AllExperts() == 61 && c.AllChosen() == 5
		}},
		{"qwen2 moe, windows", changed("qwen2_moe", map[string]any{"qkv_bias": false, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1}), func(c *Config) bool {
			return !c.QKVBias && c.Window(0) == 9 && c.Window(1) == 0 && c.Window(2) == 0
		}},
		{"qwen2 moe, no experts", changed("qwen2_moe", map[string]any{"num_experts": 0}), func(c *Config) bool { return c.SharedSize == 0 && c.AllExperts() == 0 }},
		{"glm4 moe", changed("glm4_moe", map[string]any{"head_dim": 16, "n_shared_experts": 2, "first_k_dense_replace": 2, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}), func(c *Config) bool {
			return c.SigmoidScores && c.ChoiceBias && c.NumExperts == 128 && c.NumExpertsPerTok == 8 && c.SharedSize == 2*1408 && c.NormTopKProb && c.RoutedScale == 2.5 &&
				!c.HasExperts(1) && c.HasExperts(2) && c.ExpertGroups == 0 && !c.QKNorm && c.Rotary(0) == 8
		}},
		{"glm4 moe, groups", changed("glm4_moe", map[string]any{"n_group": 8, "topk_group": 4, "use_qk_norm": true, "attention_bias": true, "topk_method": "noaux_tc"}), func(c *Config) bool {
			return c.ExpertGroups == 8 && c.OpenGroups == 4 && c.GroupBest == 2 && c.QKNorm && c.QKVBias && !c.OBias
		}},
		{"glm4 moe, all groups open", changed("glm4_moe", map[string]any{"n_group": 8, "topk_group": 8}), func(c *Config) bool { return c.ExpertGroups == 0 }},
		{"gpt-oss", changed("gpt_oss", nil), func(c *Config) bool {
			return c.NumExperts == 128 && c.NumExpertsPerTok == 4 && c.MoEIntermediateSize == c.IntermediateSize && c.NormTopKProb && c.HasExperts(0) &&
				c.Sinks && c.RouterBias && c.ExpertBias && c.QKVBias && c.OBias && *c.ClampedSwiGLU == ClampedSwiGLU{1.702, 7} && c.Window(0) == 128 && c.Window(1) == 0 &&
				c.HeadDim == 64 && reflect.DeepEqual(c.Rope, Rope{Type: "yarn", Theta: 150000, Factor: 32, BetaFast: 32, BetaSlow: 1, NoTruncate: true, OriginalMaxPositions: 4096})
		}},
		{"gpt-oss, as published", changed("gpt_oss", map[string]any{"experts_per_token": 2, "num_experts_per_tok": 2, "num_local_experts": 3, "swiglu_limit": 5.0,
			"initial_context_length": 4096, "rope_theta": 1e4, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 8.0, "truncate": false,
				"original_max_position_embeddings": 64}}), func(c *Config) bool {
			return c.NumExperts == 3 && c.NumExpertsPerTok == 2 && c.ClampedSwiGLU.Limit == 5 && c.Rope.Theta == 1e4 && c.Rope.Factor == 8 && c.Rope.NoTruncate
		}},
		{"qwen2, window after the last layer", map[string]any{"architectures": nil, "model_type": "qwen2", "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3},
			func(c *Config) bool { return c.ModelType == "qwen2" }},
		{"qwen3", map[string]any{"architectures": []any{"Qwen3ForCausalLM"}, "model_type": "qwen3"},
			func(c *Config) bool { return !c.QKVBias && !c.OBias && c.QKNorm && c.HeadDim == 128 }},
		{"qwen3 biases", map[string]any{"architectures": nil, "model_type": "qwen3", "attention_bias": true, "head_dim": 24},
			func(c *Config) bool { return c.QKVBias && c.OBias && c.HeadDim == 24 }},
	}
	for _, tc := range cases {
		c, err := parse(t, tc.changes)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if !tc.check(c) {
			t.Errorf("%s: got %+v", tc.name, c)
		}
	}
}

// allArchs lists the architectures that mt knows, in the form that error messages have.
func allArchs() string {
	var archs []string
	for _, f := range families {
		archs = append(archs, f.arch)
	}
	return strings.Join(archs, ", ")
}

func TestParseRefuses(t *testing.T) {
	cases := []struct {
		changes map[string]any
		want    string // all of it, after the file's name
	}{
		{map[string]any{"architectures": []any{"BertModel"}, "model_type": "bert"},
			"architectures: BertModel is not supported; known: " + allArchs() + "; docs/adding-a-family.md in mt's sources shows how one more is added"},
		{map[string]any{"architectures": nil, "model_type": "bert"}, "model_type: bert is not supported; known: "},
		{map[string]any{"architectures": nil, "model_type": nil}, "model_type: missing, and no architectures either"},
		{map[string]any{"model_type": "qwen2"}, `architectures: LlamaForCausalLM does not go with model_type "qwen2"`},
		{changed("mixtral", map[string]any{"router_jitter_noise": 0.1}), "router_jitter_noise: 0.1: noise in the router's input is not supported; set it to 0"},
		{changed("mixtral", map[string]any{"num_experts": 4}), "num_experts: 4, and num_local_experts is 8; remove one of them"},
		{changed("qwen2_moe", map[string]any{"num_experts": 1024}), "num_experts: 1024 experts and a shared one are more than 1024"},
		{changed("qwen2_moe", map[string]any{"num_experts_per_tok": 32}), "num_experts_per_tok: 32 experts and a shared one are more than 32"},
		{changed("glm4_moe", map[string]any{"topk_method": "greedy"}), `topk_method: "greedy" is not supported; known: noaux_tc`},
		{changed("glm4_moe", map[string]any{"scoring_func": "softmax"}), `scoring_func: "softmax" is not supported; known: sigmoid`},
		{changed("glm4_moe", map[string]any{"n_group": 3, "topk_group": 4}), "topk_group: 4 of 3 groups cannot be chosen"},
		{changed("glm4_moe", map[string]any{"n_group": 3, "topk_group": 2}), "n_group: 128 experts are not 3 groups of 2 and more"},
		{changed("glm4_moe", map[string]any{"n_group": 32, "topk_group": 1}), "num_experts_per_tok: 8 of the 4 experts in 1 groups cannot be chosen"},
		{changed("glm4_moe", map[string]any{"output_router_logits": true}), "output_router_logits: true: Glm4MoeForCausalLM has no loss of its router"},
		{changed("glm4_moe", map[string]any{"moe_layer_freq": 2}), "moe_layer_freq: 2 is not supported"},
		{map[string]any{"hidden_size": nil}, "hidden_size: missing"},
		{map[string]any{"hidden_size": 0}, "hidden_size: 0 is out of range"},
		{map[string]any{"hidden_size": -8}, "hidden_size: -8 is out of range"},
		{map[string]any{"hidden_size": 1e15}, "hidden_size: 1000000000000000 is out of range"},
		{map[string]any{"hidden_size": 64.5}, "hidden_size: 64.5 is not a whole number"},
		{map[string]any{"hidden_size": "64"}, `hidden_size: "64" is not a whole number`},
		{map[string]any{"hidden_size": 66}, "hidden_size: 66 is not a multiple of num_attention_heads, 4"},
		{map[string]any{"head_dim": 15}, "head_dim: 15 must be even"},
		{map[string]any{"num_key_value_heads": 3}, "num_attention_heads: 4 is not a multiple of num_key_value_heads, 3"},
		{map[string]any{"num_hidden_layers": 100000}, "num_hidden_layers: 100000 is out of range"},
		{map[string]any{"tie_word_embeddings": "yes"}, `tie_word_embeddings: "yes" is not true or false`},
		{map[string]any{"eos_token_id": 320}, "eos_token_id: 320 is not a token id below vocab_size 320"},
		{map[string]any{"eos_token_id": []any{1, "x"}}, `eos_token_id: "x" is not a token id`},
		{map[string]any{"attention_dropout": 0.1}, "attention_dropout: 0.1: dropout is not supported"},
		{map[string]any{"rope_scaling": map[string]any{"type": "mrope", "factor": 2}}, `rope_scaling: rope_type: "mrope" is not supported; known: default, linear, dynamic, yarn, longrope, llama3`},
		{map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn"}}, "rope_parameters: factor: missing; rope type yarn needs it"},
		{map[string]any{"rope_scaling": map[string]any{"type": "linear"}}, "rope_scaling: factor: missing"},
		{map[string]any{"rope_scaling": map[string]any{"type": "longrope", "short_factor": []any{1, 2}, "long_factor": []any{1, 2}}}, "rope_scaling: short_factor: 2 numbers for 8 pairs"},
		{map[string]any{"rope_scaling": map[string]any{"type": "longrope", "long_factor": []any{1}}}, "rope_scaling: short_factor: missing"},
		{map[string]any{"rope_scaling": map[string]any{"type": "longrope", "short_factor": []any{"x"}, "long_factor": []any{1}}}, `rope_scaling: short_factor: "x" is not a number`},
		{map[string]any{"rope_scaling": map[string]any{"type": "dynamic", "factor": 2}, "head_dim": 2}, "rope_scaling: rope_type: dynamic needs more than 2"},
		{map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2}, "rope_parameters": map[string]any{"rope_type": "linear", "factor": 3}},
			"rope_parameters: says otherwise than rope_scaling"},
		{map[string]any{"rope_scaling": map[string]any{"type": "llama3", "factor": 2}}, "rope_scaling: low_freq_factor: missing"},
		{map[string]any{"rope_scaling": map[string]any{"type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 1}},
			"rope_scaling: original_max_position_embeddings: 1 is out of range"},
		{map[string]any{"rope_scaling": "x"}, `rope_scaling: "x" is not a mapping`},
		{map[string]any{"rope_theta": 1e4, "rope_parameters": map[string]any{"rope_theta": 5e5}}, "rope_parameters: rope_theta is 500000 there and 10000 at the top level"},
		{map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.5}}, "rope_parameters: partial_rotary_factor: 0.5 is not supported"},
		{phiConfig(map[string]any{"partial_rotary_factor": 0.45}), "partial_rotary_factor: 0.45 turns 7 of a head's 16"},
		{phiConfig(map[string]any{"resid_pdrop": 0.1}), "resid_pdrop: 0.1: dropout"},
		{changed("phimoe", map[string]any{"vocab_size": 32064, "sliding_window": 8, "layer_types": []any{"full_attention", "sliding_attention", "sliding_attention"}}),
			"layer_types: this architecture has the sliding window in every layer"},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}), `layer_types: layer 1 is "sliding_attention", and there is no sliding window`},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention"}}), "layer_types: 1 of them for 3 layers"},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention", "linear_attention", "full_attention"}}), `layer_types: layer 1 is "linear_attention"; known: full_attention, sliding_attention`},
		{gemma4Config(map[string]any{"num_kv_shared_layers": 6}), "num_kv_shared_layers: 6: layer 0 finds no earlier layer of its type"},
		{gemma4Config(map[string]any{"num_kv_shared_layers": 1}), "num_kv_shared_layers: 1: layer 5 finds no earlier layer of its type"},
		{gemma4Config(map[string]any{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 9}), "vocab_size_per_layer_input: 9 is less than vocab_size"},
		{gemma4Config(map[string]any{"hidden_size_per_layer_input": 8, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}),
			"enable_moe_block: true is not supported with hidden_size_per_layer_input"},
		{gemma4Config(map[string]any{"use_bidirectional_attention": "all"}), `use_bidirectional_attention: "all" is not supported`},
		{gemma4Config(map[string]any{"per_layer_config": map[string]any{"0": map[string]any{"head_dim": 8}}}), "per_layer_config: layer 0 has a sliding window and heads of its own"},
		{gemma4Config(map[string]any{"num_hidden_layers": 12, "per_layer_config": map[string]any{"5": map[string]any{"head_dim": 8}}}), "per_layer_config: layer 11 has other heads"},
		{gemma4Config(map[string]any{"enable_moe_block": true}), "num_experts: missing"},
		{changed("gemma3_text", map[string]any{"use_bidirectional_attention": true}), "use_bidirectional_attention: true is not supported"},
		{changed("qwen2", map[string]any{"mlp_bias": true}), "mlp_bias: true is not supported in Qwen2ForCausalLM"},
		{phiConfig(map[string]any{"lm_head_bias": true}), "lm_head_bias: true is not supported in Phi3ForCausalLM"},
		{phiConfig(map[string]any{"full_attn_mod": 2}), "full_attn_mod: 2 is not supported"},
		{changed("mistral", map[string]any{"attention_bias": true}), "attention_bias: true is not supported in MistralForCausalLM"},
		{map[string]any{"clip_qkv": 8.0}, "clip_qkv: 8 is not supported in LlamaForCausalLM"},
		{map[string]any{"embedding_multiplier": 12}, "embedding_multiplier: 12 is not supported"},
		{map[string]any{"final_logit_softcapping": 30}, "final_logit_softcapping: 30 is not supported"},
		{map[string]any{"is_causal": false}, "is_causal: false is not supported"},
		{map[string]any{"use_bidirectional_attention": "all"}, `use_bidirectional_attention: "all" is not supported`},
		{map[string]any{"num_local_experts": 8}, "num_local_experts: 8 is not supported"},
		{changed("gemma3_text", map[string]any{"sliding_window": json.RawMessage("null")}), "sliding_window: null, and no layer_types"},
		{changed("gemma3", map[string]any{"text_config": map[string]any{"model_type": "gemma2"}}), `text_config: model_type: "gemma2" is not supported here; known: gemma3_text`},
		{changed("gemma3", map[string]any{"tie_word_embeddings": false, "text_config": map[string]any{}}), "tie_word_embeddings: false, and true in text_config"},
		{changed("gemma3_text", map[string]any{"rope_parameters": map[string]any{"rope_type": "default"}}), "rope_parameters: rope_type: this architecture has one embedding for full_attention and one"},
		{changed("gemma3_text", map[string]any{"hidden_activation": "relu6"}), `hidden_activation: "relu6" is not supported; known: silu, gelu, gelu_pytorch_tanh, relu`},
		{changed("gemma3", nil), "text_config: missing"},
		{changed("olmo3", map[string]any{"partial_rotary_factor": 0.5, "rope_parameters": map[string]any{"full_attention": map[string]any{}}}),
			"rope_parameters: full_attention: partial_rotary_factor: 0.5 is not supported"},
		{changed("olmo3", map[string]any{"partial_rotary_factor": 0.5, "rope_parameters": map[string]any{"sliding_attention": map[string]any{"partial_rotary_factor": 1}}}),
			"rope_parameters: partial_rotary_factor: 0.5 is not supported"},
		{changed("starcoder2", map[string]any{"vocab_size": 60000, "norm_type": "rms_norm"}), `norm_type: "rms_norm" is not supported`},
		{changed("starcoder2", map[string]any{"vocab_size": 60000, "norm_epsilon": "x"}), `norm_epsilon: "x" is not a number`},
		{changed("gpt_neox", map[string]any{"hidden_dropout": 0.1, "num_key_value_heads": nil}), "hidden_dropout: 0.1: dropout is not supported"},
		{changed("gpt_neox", nil), "num_key_value_heads: 2 for 4 heads: this architecture has as many"},
		{changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "head_dim": 8}), "head_dim: 8: this architecture has hidden_size / num_attention_heads, 16"},
		{changed("gpt2", map[string]any{"num_key_value_heads": nil, "vocab_size": 50257, "n_layer": 0}), "n_layer: 0 is out of range"},
		{changed("gpt2", map[string]any{"num_key_value_heads": nil, "vocab_size": 50257, "scale_attn_by_inverse_layer_idx": true}), "scale_attn_by_inverse_layer_idx: true is not supported, only false; docs/adding-a-family.md"},
		{changed("cohere2", map[string]any{"vocab_size": 256000, "rotary_pct": 0.5}), "rotary_pct: 0.5 is not supported"},
		{changed("cohere2", map[string]any{"vocab_size": 256000, "logit_scale": 0}), "logit_scale: 0 is out of range"},
		{map[string]any{"hidden_act": "quick_gelu"}, `hidden_act: "quick_gelu" is not supported; known: silu, gelu, gelu_pytorch_tanh, relu`},
		{map[string]any{"hidden_act": "xielu"}, `hidden_act: "xielu" is not supported in `},
		{map[string]any{"hidden_act": "relu2"}, `hidden_act: "relu2" is not supported in `},
		{changed("exaone4", map[string]any{"num_key_value_heads": 2, "sliding_window": json.RawMessage("null")}), "layer_types: missing, and sliding_window is null"},
		{changed("exaone4", map[string]any{"num_key_value_heads": 2, "sliding_window_pattern": "LLLG"}), `layer_types: missing, and sliding_window_pattern "LLLG"`},
		{changed("ernie4_5", map[string]any{"layer_types": []any{"sliding_attention"}}), `layer_types: layer 0 is "sliding_attention"`},
		{changed("smollm3", map[string]any{"no_rope_layers": []any{1, 0}}), "no_rope_layers: 2 of them for 3 layers"},
		{changed("smollm3", map[string]any{"no_rope_layers": []any{1, 2, 0}}), "no_rope_layers: 2 is not a number from 0 to 1"},
		{changed("smollm3", map[string]any{"no_rope_layer_interval": 0}), "no_rope_layer_interval: 0 is out of range"},
		{changed("granitemoehybrid", map[string]any{"mamba_n_heads": 7}), "mamba_d_head: 7 heads of"},
		{changed("granitemoehybrid", map[string]any{"mamba_n_heads": 4, "mamba_n_groups": 3}), "mamba_n_heads: 4 heads do not share 3 groups evenly"},
		{changed("granitemoehybrid", map[string]any{"mamba_n_heads": 4, "time_step_limit": []any{1}}), "time_step_limit: [1] is not a list of two numbers"},
		{changed("granitemoehybrid", map[string]any{"mamba_n_heads": 4, "time_step_limit": []any{1, 0}}), "time_step_limit: [1 0] are no bounds"},
		{changed("granitemoehybrid", map[string]any{"layer_types": []any{"conv", "attention", "attention"}}), `layer_types: layer 0 is "conv"`},
		{changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "layer_types": []any{"attention"}}), "layer_types: 1 of them for 3 layers"},
		{changed("granite", map[string]any{"logits_scaling": 0}), "logits_scaling: 0 is out of range"},
		{changed("granite", map[string]any{"num_local_experts": 4}), "num_local_experts: 4 is not supported in GraniteForCausalLM"},
		{changed("glm4", map[string]any{"layer_types": []any{"sliding_attention"}}), `layer_types: layer 0 is "sliding_attention"`},
		{changed("olmo2", map[string]any{"sliding_window": 4, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}), `layer_types: layer 1 is "sliding_attention"`},
		{changed("olmo3", map[string]any{"rope_theta": 1e4}), "rope_theta: 10000: Transformers 4 has it in all layers, 5 in those without a window"},
		{changed("olmo3", map[string]any{"rope_parameters": map[string]any{"rope_type": "default"}}), "rope_parameters: rope_type: this architecture has one embedding for full_attention and one"},
		{changed("olmo3", map[string]any{"rope_local_base_freq": 1e4}), "rope_local_base_freq: 10000 is not supported in Olmo3ForCausalLM"},
		{changed("gemma3", map[string]any{"text_config": map[string]any{"hidden_size": "x"}}), `text_config: hidden_size: "x" is not a whole number`},
		{changed("qwen3_moe", map[string]any{"num_experts": 4, "num_experts_per_tok": 5}), "num_experts_per_tok: 5 of 4 experts"},
		{changed("qwen3_moe", map[string]any{"num_experts": 2000}), "num_experts: 2000 is out of range"},
		{changed("qwen3_moe", map[string]any{"num_experts": 8, "num_local_experts": 9}), "num_local_experts: 9, and num_experts is 8"},
		{changed("qwen3_moe", map[string]any{"mlp_only_layers": []any{3}}), "mlp_only_layers: 3 is not a number from 0 to 2"},
		{changed("qwen3_moe", map[string]any{"num_experts": 1024, "num_hidden_layers": 1000}), "num_experts: 1024 experts in 1000 layers"},
		{changed("gpt_oss", map[string]any{"experts_per_token": 3}), "experts_per_token: 3, and num_experts_per_tok is 4"},
		{changed("gpt_oss", map[string]any{"swiglu_limit": -1.0}), "swiglu_limit: -1 is out of range"},
		{map[string]any{"layer_types": []any{"full_attention", "sliding_attention"}}, `layer_types: layer 1 is "sliding_attention"`},
		{map[string]any{"quantization_config": map[string]any{"bits": 4}}, `quantization_config: quant_method: quantized weights of "" are not read`},
	}
	for _, tc := range cases {
		_, err := parse(t, tc.changes)
		if err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: "+tc.want) {
			t.Errorf("%v:\n got %v\nwant dir/config.json: %s", tc.changes, err, tc.want)
		}
	}
}

func TestParseBadText(t *testing.T) {
	cases := []struct{ text, want string }{
		{"", "f: the file ends in the middle of a JSON value"},
		{`{"a": 1,`, "f: the file ends in the middle of a JSON value"},
		{"{\n\"a\": 1,\n\"b\" 2}", "f: line 3: "},
		{"[1]", "f: not a JSON object"},
		{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "f: this is a Git LFS pointer, not the file; fetch it with `git lfs pull`"},
		{`{"a": 1, "a": 2}`, "f: a: appears twice"},
		{`{"a": 1} x`, "f: text after the closing brace"},
	}
	for _, tc := range cases {
		_, err := ParseConfig([]byte(tc.text), "f")
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %s…", tc.text, err, tc.want)
		}
	}
}

func TestLoadDirMissing(t *testing.T) {
	_, err := LoadDir(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "config.json: no such file; a model directory holds") {
		t.Fatalf("got %v", err)
	}
}

// TestFurtherTokens: keys that count multi-token prediction layers change no layer of the model,
// neither in a config.json nor in an inline config, because these layers are not trained.
func TestFurtherTokens(t *testing.T) {
	for _, family := range []string{"deepseek_v3", "glm4_moe"} {
		keys := base()
		delete(keys, "architectures")
		keys["model_type"], keys["num_key_value_heads"] = family, 4
		want := testkit.Must(FromInline(keys, "x"))(t)
		for _, key := range []string{"num_nextn_predict_layers", "num_mtp_layers"} {
			more := maps.Clone(keys)
			more[key] = 1
			if got, err := FromInline(more, "x"); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s with %s: %v", family, key, err)
			}
			got, err := parse(t, changed(family, map[string]any{"num_key_value_heads": 4, key: 1}))
			if err != nil || !reflect.DeepEqual(got.Layers(), want.Layers()) {
				t.Errorf("%s with %s in config.json: %v", family, key, err)
			}
		}
	}
}

func TestJSONKeepsText(t *testing.T) {
	text := `{
    "zeta":   [1,  2], "vocab_size": 320,
    "torch_dtype": "float32", "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 4, "model_type": "llama", "unknown": {"dtype": "float32", "x": 1e-05}
}
`
	c, err := ParseConfig([]byte(text), "f")
	testkit.NoError(t, err)
	want := strings.Replace(text, `"torch_dtype": "float32"`, `"torch_dtype": "bfloat16"`, 1)
	if got := string(c.JSON("bfloat16")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	none := strings.Replace(text, `    "torch_dtype": "float32", `, "    ", 1)
	if c, err = ParseConfig([]byte(none), "f"); err != nil {
		t.Fatal(err)
	}
	got := c.JSON("float32")
	if !bytes.HasPrefix(got, []byte("{\n  \"torch_dtype\": \"float32\",\n    \"zeta\"")) || !json.Valid(got) {
		t.Errorf("got\n%s", got)
	}
}

func TestFixtureConfigs(t *testing.T) {
	for _, of := range testkit.Recordings(t) {
		name, dir := filepath.Base(of), filepath.Join(of, "model")
		c, err := LoadDir(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
		testkit.NoError(t, err)
		if !bytes.Equal(c.JSON("float32"), raw) {
			t.Errorf("%s: text is not kept", name)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"model_type": "llama", "vocab_size": 3, "rope_scaling": {"type": "llama3"}}`))
	f.Add([]byte(`{"a": [1, {"b": null}]}`))
	f.Add((&Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 4, HiddenSize: 8, IntermediateSize: 8, NumLayers: 1,
		NumHeads: 2, NumKVHeads: 1, HeadDim: 4, MaxPositions: 8, Rope: Rope{Type: "default", Theta: 1e4}}).JSON("float32"))
	for _, name := range []string{"mistral-7b", "gemma3-4b", "phi4", "qwen3-30b-a3b", "qwen2.5-0.5b", "gpt-oss-20b", "deepseek-v3", "olmo2-7b", "olmo3-7b",
		"smollm3-3b", "granite3.1-8b", "glm4-9b", "mixtral-8x7b", "gpt2", "pythia-1b", "qwen3.5-35b-a3b", "minimax-m2"} {
		c, err := Preset(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c.JSON("bfloat16"))
	}
	f.Add([]byte(`{"model_type": "gemma3", "text_config": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}}`))
	f.Add([]byte(`{"model_type": "phi3", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
		"rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [1, 3]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw, "f")
		if err != nil {
			return
		}
		if c.Params() <= 0 || c.MatrixParams() <= 0 {
			t.Fatalf("%d parameters, %d in matrices", c.Params(), c.MatrixParams())
		}
		if c.NumLayers*(1+c.NumExperts) < 1000 {
			var n int64
			for _, l := range c.Layers() {
				n += l.Elems()
			}
			if n != c.Params() || (c.RopeElems(10) > 0) == c.LearnedPositions || c.AttendedPairs(10) <= 0 {
				t.Fatalf("%d parameters in the table, %d counted; %d elements of rotary tables", n, c.Params(), c.RopeElems(10))
			}
		}
		if _, err := ParseConfig(c.JSON("bfloat16"), "f"); err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
	})
}

func TestJSONOfInline(t *testing.T) {
	for _, name := range PresetNames() {
		c := testkit.Must(Preset(name))(t)
		text := c.JSON("bfloat16")
		back := testkit.Must(ParseConfig(text, name))(t)
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("%s: got %+v, want %+v", name, back, c)
		}
	}
}

// TestJSONOfOptions: the config.json written for an inline config reads back as the same config.
func TestJSONOfOptions(t *testing.T) {
	yarn := map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2,
		"mscale": 0.7, "mscale_all_dim": 0.3, "truncate": false, "attention_factor": 1.5}
	for _, changes := range []map[string]any{
		{"attention_bias": true, "mlp_bias": true, "rope_theta": 123.5, "rope_scaling": yarn},
		{"rope_scaling": map[string]any{"type": "linear", "factor": 2.5}},
		{"rope_parameters": map[string]any{"rope_type": "dynamic", "factor": 2.5, "rope_theta": 77}},
		{"hidden_act": "relu"}, {"hidden_act": "gelu"},
		changed("mistral", map[string]any{"sliding_window": 7}),
		changed("mistral", map[string]any{"sliding_window": 7, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}),
		changed("cohere2", map[string]any{"vocab_size": 256000, "head_dim": 8}),
		changed("qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1}),
		changed("qwen3", map[string]any{"use_sliding_window": true, "sliding_window": 9, "attention_bias": true,
			"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention"}}),
		phiConfig(map[string]any{"partial_rotary_factor": 0.75, "original_max_position_embeddings": 32, "sliding_window": 99,
			"rope_scaling": map[string]any{"type": "longrope", "short_factor": eights[:6], "long_factor": eights[:6], "factor": 3, "attention_factor": 1.25}}),
		phiConfig(map[string]any{"original_max_position_embeddings": 32, "rope_scaling": map[string]any{"type": "su", "short_factor": eights, "long_factor": eights}}),
		changed("gemma3_text", map[string]any{"num_hidden_layers": 7, "rope_local_base_freq": 5, "query_pre_attn_scalar": 40.5, "attention_bias": true,
			"attn_logit_softcapping": 5, "final_logit_softcapping": 6.5, "hidden_activation": "silu", "rope_scaling": map[string]any{"type": "linear", "factor": 8}}),
		changed("ministral3", map[string]any{"pad_token_id": 0, "sliding_window": 5, "rope_parameters": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5}}),
		changed("gemma3_text", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("gemma3_text", map[string]any{"sliding_window": 3, "layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("smollm3", map[string]any{"no_rope_layers": []any{0, 1, 0}, "use_sliding_window": true, "sliding_window": 7, "mlp_bias": true, "attention_bias": true}),
		changed("smollm3", map[string]any{"no_rope_layer_interval": 9, "tie_word_embeddings": false}),
		changed("granite", map[string]any{"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 49.0123456, "mlp_bias": true}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "shared_intermediate_size": 99, "position_embedding_type": "rope", "layer_types": []any{"attention", "attention", "attention"}}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "intermediate_size": 99, "shared_intermediate_size": 99, "layer_types": []any{"attention", "attention", "attention"}}),
		changed("glm4", map[string]any{"attention_bias": false, "partial_rotary_factor": 1}),
		changed("glm4", nil),
		gemma4Config(map[string]any{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 999999, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
			"layer_types": []any{"sliding_attention", "sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"}}),
		changed("glm", map[string]any{"attention_bias": false}),
		changed("ernie4_5", map[string]any{"use_bias": true, "tie_word_embeddings": false}),
		changed("seed_oss", map[string]any{"attention_dropout": 0, "residual_dropout": 0, "attention_out_bias": true, "mlp_bias": true}),
		changed("exaone4", map[string]any{"sliding_window": 8, "sliding_window_pattern": 2}),
		changed("exaone4", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("exaone4", map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("starcoder2", map[string]any{"vocab_size": 60000, "norm_epsilon": 0.25, "use_bias": false, "sliding_window": 5}),
		changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "rotary_pct": 0.5, "rotary_emb_base": 500, "attention_bias": false}),
		changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "use_parallel_residual": false, "rotary_pct": 1.0, "hidden_act": "gelu_fast"}),
		{"architectures": nil, "model_type": "gpt2", "hidden_size": nil, "num_hidden_layers": nil, "num_attention_heads": nil, "num_key_value_heads": nil,
			"intermediate_size": nil, "vocab_size": 50257, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 9, "n_inner": 20, "layer_norm_epsilon": 0.5},
		changed("cohere2", map[string]any{"vocab_size": 256000, "layer_norm_eps": 0.5, "logit_scale": 0.5, "sliding_window": 3, "sliding_window_pattern": 2, "attention_bias": true}),
		changed("olmo2", map[string]any{"attention_bias": true}),
		changed("olmo3", map[string]any{"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_theta": 1e4}, "sliding_attention": map[string]any{"rope_theta": 1e4}}}),
		changed("olmo3", map[string]any{"sliding_window": 3, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "linear", "factor": 8}, "sliding_attention": map[string]any{"rope_theta": 5e3}}}),
		changed("qwen3_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2, 0}, "norm_topk_prob": true,
			"decoder_sparse_step": 2, "moe_intermediate_size": 5, "output_router_logits": true, "router_aux_loss_coef": 0.5, "use_sliding_window": true}),
		changed("gpt_oss", map[string]any{"num_local_experts": 6, "num_experts_per_tok": 3, "swiglu_limit": 3.5, "swiglu_alpha": 1.5, "output_router_logits": true,
			"router_aux_loss_coef": 0.25, "sliding_window": 9}),
		changed("mixtral", map[string]any{"num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 7, "output_router_logits": true, "router_aux_loss_coef": 0.5}),
		changed("qwen2_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2}, "norm_topk_prob": true, "moe_intermediate_size": 5,
			"shared_expert_intermediate_size": 9, "qkv_bias": false, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2}),
		changed("qwen3_5_text", map[string]any{"head_dim": 16, "attention_bias": true, "full_attention_interval": 2, "linear_num_value_heads": 16, "partial_rotary_factor": 0.5}),
		changed("qwen3_5_moe_text", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 5, "shared_expert_intermediate_size": 9,
			"output_router_logits": true, "layer_types": []any{"full_attention", "linear_attention", "full_attention"}}),
		changed("minimax_m2", map[string]any{"vocab_size": 200064, "head_dim": 24, "rotary_dim": 12, "num_local_experts": 6, "num_experts_per_tok": 3, "use_qk_norm": true}),
		changed("glm4_moe", map[string]any{"n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "first_k_dense_replace": 2, "moe_intermediate_size": 5,
			"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.25, "norm_topk_prob": false, "use_qk_norm": true, "attention_bias": true, "partial_rotary_factor": 0.75}),
	} {
		m := base()
		maps.Copy(m, changes)
		maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
		c, err := FromInline(m, "x")
		if err != nil {
			t.Errorf("%v: %v", changes, err)
			continue
		}
		text := c.JSON("bfloat16")
		back, err := ParseConfig(text, "config.json")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("got %+v, want %+v", back, c)
		}
	}
}

// TestEscaped: escaped turns a directory name that looks like a glob pattern into a pattern that
// matches this name only.
func TestEscaped(t *testing.T) {
	for _, dir := range []string{"a*b", "a?b", "[ab]", `a\b`, "axb"} {
		for _, other := range []string{"a*b", "a?b", "[ab]", `a\b`, "axb", "a", "b"} {
			if got, err := filepath.Match(escaped(dir), other); err != nil || got != (dir == other) {
				t.Errorf("%s matches %s: %t, %v", escaped(dir), other, got, err)
			}
		}
	}
}
