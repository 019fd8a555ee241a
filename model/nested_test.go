package model

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// Excerpts of published config.json files of models with vision towers: the keys that matter to mt.
var (
	mistralSmall = map[string]any{"architectures": []any{"Mistral3ForConditionalGeneration"}, "model_type": "mistral3", "image_token_index": 10,
		"text_config": map[string]any{"model_type": "mistral", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
			"initializer_range": 0.02, "intermediate_size": 32768, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40,
			"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e9, "sliding_window": nil, "vocab_size": 131072},
		"vision_config": map[string]any{"model_type": "pixtral", "hidden_size": 1024, "num_hidden_layers": 24}}

	// Ministral-3-8B, as published in December 2025.
	ministral8B = map[string]any{"architectures": []any{"Mistral3ForConditionalGeneration"}, "model_type": "mistral3", "image_token_index": 10,
		"text_config": map[string]any{"model_type": "ministral3", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
			"initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 34,
			"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "sliding_window": nil, "vocab_size": 131072,
			"rope_parameters": map[string]any{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
				"original_max_position_embeddings": 16384, "rope_theta": 1e6, "rope_type": "yarn", "type": "yarn"}}}

	qwen25VL7B = map[string]any{"architectures": []any{"Qwen2_5_VLForConditionalGeneration"}, "model_type": "qwen2_5_vl", "attention_dropout": 0.0,
		"bos_token_id": 151643, "eos_token_id": 151645, "image_token_id": 151655, "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
		"max_position_embeddings": 128000, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "sliding_window": 32768, "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 152064,
		"rope_scaling": map[string]any{"type": "mrope", "mrope_section": []any{16, 24, 24}}, "vision_config": map[string]any{"hidden_size": 1280, "depth": 32}}

	qwen3VL = map[string]any{"model_type": "qwen3_vl_text", "attention_bias": false, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
		"hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 262144, "num_attention_heads": 32,
		"num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 5000000, "vocab_size": 151936,
		"rope_scaling": map[string]any{"mrope_interleaved": true, "mrope_section": []any{24, 20, 20}, "rope_type": "default"}}
	qwen3VL8B = map[string]any{"architectures": []any{"Qwen3VLForConditionalGeneration"}, "model_type": "qwen3_vl", "tie_word_embeddings": false, "text_config": qwen3VL}

	qwen3VL30B = map[string]any{"architectures": []any{"Qwen3VLMoeForConditionalGeneration"}, "model_type": "qwen3_vl_moe", "tie_word_embeddings": false,
		"text_config": with(qwen3VL, map[string]any{"model_type": "qwen3_vl_moe_text", "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 6144,
			"mlp_only_layers": []any{}, "moe_intermediate_size": 768, "norm_topk_prob": true, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
			"num_key_value_heads": 4})}
)

// with returns a copy of m in which changes replace or add keys.
func with(m, changes map[string]any) map[string]any {
	m = maps.Clone(m)
	maps.Copy(m, changes)
	return m
}

// TestPublishedTowers: the published files of multimodal models give language models with the right
// number of parameters.
func TestPublishedTowers(t *testing.T) {
	for name, tt := range map[string]struct {
		config map[string]any
		params int64
		check  func(c *Config) bool
	}{
		"Mistral-Small-3.2-24B": {mistralSmall, 23572403200, func(c *Config) bool {
			return reflect.DeepEqual(c.Rope, Rope{Type: "default", Theta: 1e9}) && c.SlidingWindow == 0 && !c.TieEmbeddings && c.HeadDim == 128 && !c.QKVBias && c.headTells
		}},
		"Ministral-3-8B": {ministral8B, 8489553920, func(c *Config) bool {
			return reflect.DeepEqual(c.QueryScaling, &QueryScaling{Scale: 0.1, Every: 16384}) && c.ScalesQueries(3) && c.Rope.Type == "yarn" && c.attentionFactor(c.Rope, 1) == 1 && c.SlidingWindow == 0
		}},
		"Qwen2.5-VL-7B": {qwen25VL7B, 7615616512, func(c *Config) bool {
			return reflect.DeepEqual(c.Rope, Rope{Type: "default", Theta: 1e6}) && c.SlidingWindow == 0 && c.QKVBias && !c.OBias && reflect.DeepEqual(c.EOS, []int{151645})
		}},
		"Qwen3-VL-8B": {qwen3VL8B, 8190735360, func(c *Config) bool {
			return reflect.DeepEqual(c.Rope, Rope{Type: "default", Theta: 5e6}) && c.QKNorm && !c.QKVBias && reflect.DeepEqual(c.BOS, []int{151643})
		}},
		"Qwen3-VL-30B-A3B": {qwen3VL30B, 30532122624, func(c *Config) bool {
			gateUp, down := c.Layers()[2].Params[2], c.Layers()[2].Params[3]
			return c.NormTopKProb && c.NumExperts == 128 && gateUp.Stored[1].Tensor() == "model.language_model.layers.0.mlp.experts.gate_up_proj" &&
				reflect.DeepEqual(gateUp.TensorShape(1), []int64{128, 2048, 1536}) && reflect.DeepEqual(down.TensorShape(0), []int64{128, 768, 2048}) &&
				gateUp.ElemAt(1, 3, 5) == 5*1536+768+3
		}},
	} {
		c, err := parse(t, tt.config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := c.Params(); n != tt.params {
			t.Errorf("%s: %d parameters, want %d", name, n, tt.params)
		}
		if !tt.check(c) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestTowerSpellings: files of multimodal models may have keys at the top or in text_config, and in
// older spellings. The right key counts, and settings that mt lacks are refused.
func TestTowerSpellings(t *testing.T) {
	flat := maps.Clone(qwen25VL7B)
	delete(flat, "tie_word_embeddings")
	kimi := map[string]any{"architectures": []any{"KimiK25ForConditionalGeneration"}, "model_type": "kimi_k25", "text_config": map[string]any{"model_type": "kimi_k2",
		"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50, "kv_lora_rank": 10, "num_key_value_heads": 4,
		"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "ep_size": 1}}
	text := func(whole, changes map[string]any) map[string]any {
		return with(whole, map[string]any{"text_config": with(whole["text_config"].(map[string]any), changes)})
	}
	for name, tt := range map[string]struct {
		config map[string]any
		check  func(c *Config) bool
	}{
		"the part counts where it is": {with(qwen25VL7B, map[string]any{"hidden_size": 7, "text_config": with(flat, map[string]any{"model_type": "qwen2_5_vl_text"})}),
			func(c *Config) bool { return c.HiddenSize == 3584 }},
		"tied at the top": {text(with(qwen3VL30B, map[string]any{"tie_word_embeddings": true}), map[string]any{"tie_word_embeddings": false}), func(c *Config) bool { return c.TieEmbeddings }},
		"tied in the part": {with(flat, map[string]any{"text_config": with(flat, map[string]any{"model_type": "qwen2_5_vl_text", "tie_word_embeddings": true})}),
			func(c *Config) bool { return c.TieEmbeddings }},
		"untied at the top": {text(qwen3VL30B, map[string]any{"tie_word_embeddings": true}), func(c *Config) bool { return !c.TieEmbeddings }},
		"said, so not told": {with(mistralSmall, map[string]any{"tie_word_embeddings": false}), func(c *Config) bool { return !c.headTells }},
		"Qwen2-VL":          {with(flat, map[string]any{"architectures": nil, "model_type": "qwen2_vl"}), func(c *Config) bool { return c.QKVBias && c.NumLayers == 28 }},
		"yarn in images' words": {with(flat, map[string]any{"rope_scaling": map[string]any{"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768, "mrope_section": []any{16, 24, 24}}}),
			func(c *Config) bool { return c.Rope.Type == "yarn" && c.Rope.Factor == 4 }},
		"windows":                 {with(flat, map[string]any{"use_sliding_window": true, "max_window_layers": 20}), func(c *Config) bool { return c.Window(19) == 0 && c.Window(20) == 32768 }},
		"experts by another name": {text(qwen3VL30B, map[string]any{"num_experts": nil, "num_local_experts": 4, "num_experts_per_tok": 2}), func(c *Config) bool { return c.NumExperts == 4 }},
		"Ministral without a rotary embedding": {map[string]any{"architectures": nil, "model_type": "mistral3", "text_config": map[string]any{"model_type": "ministral3"}}, func(c *Config) bool {
			return c.QueryScaling != nil && c.QueryScaling.Scale == 0.1 && c.Rope.Type == "yarn" && c.Rope.Factor == 16 && c.NumLayers == 34 && c.VocabSize == 131072 && c.MaxPositions == 262144
		}},
		"Ministral that tempers nothing": {text(ministral8B, map[string]any{"rope_parameters": map[string]any{"rope_type": "default"}}), func(c *Config) bool { return c.QueryScaling == nil }},
		"Mistral with Ministral's key":   {text(ministral8B, map[string]any{"model_type": "mistral"}), func(c *Config) bool { return c.QueryScaling == nil }},
		"Ministral alone": {changed("ministral3", map[string]any{"pad_token_id": 0, "head_dim": 16, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5}}),
			func(c *Config) bool { return reflect.DeepEqual(c.QueryScaling, &QueryScaling{Scale: 0.5, Every: 32}) }},
		"Mistral 4 by its defaults": {map[string]any{"architectures": nil, "model_type": "mistral3", "text_config": map[string]any{"model_type": "mistral4"}}, func(c *Config) bool {
			return reflect.DeepEqual(c.QueryScaling, &QueryScaling{Scale: 0.1, Every: 8192}) && c.Rope.Factor == 128 && c.Rope.Partial == 0 && c.HeadDim == 128 && c.MLA.KVRank == 256 &&
				c.ExpertBlocks() == 36 && c.NormTopKProb && !c.SigmoidScores && c.RopeInterleaved && c.ExpertGroups == 0 &&
				c.Layers()[2].Params[6].Stored[0].Tensor() == "language_model.model.layers.0.mlp.experts.gate_up_proj"
		}},
		"Mistral 4 with the rotated share of a head": {changed("mistral4", map[string]any{"pad_token_id": 0, "num_key_value_heads": nil, "num_attention_heads": 3, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2,
			"rope_parameters": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5, "partial_rotary_factor": 0.25}}),
			func(c *Config) bool { return c.Rope.Partial == 0 && c.QueryScaling.Every == 32 }},
		"Kimi-K2.5": {kimi, func(c *Config) bool {
			return c.MLA.KVRank == 10 && c.SigmoidScores && c.RopeInterleaved && !c.TieEmbeddings && c.headTells && c.Class == "KimiK25ForConditionalGeneration" &&
				c.Layers()[1].Params[0].Stored[0].Name == "language_model.model.layers.0.input_layernorm.weight"
		}},
		"Kimi-K2.5 untied in the part": {text(kimi, map[string]any{"tie_word_embeddings": false}), func(c *Config) bool { return c.headTells }},
		"Muse-Glimmer tied in the part": {map[string]any{"architectures": nil, "model_type": "muse_glimmer", "text_config": map[string]any{"tie_word_embeddings": true}},
			func(c *Config) bool { return !c.TieEmbeddings && !c.headTells }},
		"Kimi-K2": {with(kimi["text_config"].(map[string]any), map[string]any{"architectures": []any{"DeepseekV3ForCausalLM"}}), func(c *Config) bool {
			return c.SigmoidScores && c.MLA.KVRank == 10 && c.ModelType == "deepseek_v3"
		}},
		"defaults of experts": {map[string]any{"architectures": nil, "model_type": "qwen3_vl_moe", "text_config": map[string]any{}}, func(c *Config) bool {
			return c.NumExperts == 60 && c.NumExpertsPerTok == 4 && c.MoEIntermediateSize == 1408 && c.HiddenSize == 2048 && c.NumKVHeads == 16 && c.HeadDim == 128 &&
				c.NormTopKProb && !c.TieEmbeddings && c.Rope.Theta == 5e5
		}},
	} {
		if c, err := parse(t, tt.config); err != nil || !tt.check(c) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	for name, tt := range map[string]struct {
		config map[string]any
		want   string
	}{
		"another model's part": {text(mistralSmall, map[string]any{"model_type": "ministral4"}), `text_config: model_type: "ministral4" is not supported here; known: mistral, ministral3, mistral4`},
		"no stretch":           {text(ministral8B, map[string]any{"rope_parameters": map[string]any{"llama_4_scaling_beta": 0.1}}), "rope_parameters: original_max_position_embeddings: missing"},
		"groups":               {changed("mistral4", map[string]any{"pad_token_id": 0, "num_key_value_heads": nil, "n_group": 3}), "n_group: 128 experts are not 3 groups of 2 and more"},
		"no factor": {changed("mistral4", map[string]any{"pad_token_id": 0, "num_key_value_heads": nil, "rope_parameters": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}}),
			"rope_parameters: llama_4_scaling_beta: missing; rope type yarn needs it"},
		"no yarn": {changed("mistral4", map[string]any{"pad_token_id": 0, "num_key_value_heads": nil, "rope_parameters": map[string]any{"rope_theta": 1e4}}),
			`rope_parameters: rope_type: "default" is not supported in Mistral4ForCausalLM, only yarn`},
		"experts beside Mistral": {text(mistralSmall, map[string]any{"n_routed_experts": 4}), "n_routed_experts: 4 is not supported"},
		"no part":                {map[string]any{"architectures": nil, "model_type": "qwen3_vl"}, "text_config: missing"},
		"a part that is none":    {with(qwen25VL7B, map[string]any{"text_config": 3}), "text_config: 3 is not a mapping"},
		"sections":               {with(qwen25VL7B, map[string]any{"rope_scaling": map[string]any{"type": "mrope", "mrope_section": []any{16, 24, 23}}}), "rope_scaling: mrope_section: [16 24 23] are not three numbers whose sum is half of a head's 128 elements"},
		"windows":                {text(qwen3VL8B, map[string]any{"layer_types": []any{"sliding_attention"}}), `layer_types: layer 0 is "sliding_attention"`},
		"weights of experts":     {text(qwen3VL30B, map[string]any{"norm_topk_prob": false}), "norm_topk_prob: false is not supported"},
		"quantized":              {with(qwen3VL30B, map[string]any{"quantization_config": map[string]any{"quant_method": "gptq"}}), `quantization_config: quant_method: quantized weights of "gptq" are not read, only fp8 (E4M3) and mxfp4: weights are integers of 2 to 8 bits, packed by GPTQ; take`},
	} {
		if _, err := parse(t, tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
}

// TestAsStored: if config.json leaves it open, tensor names decide whether the head is tied, and
// tensor shapes decide whether expert matrices are transposed.
func TestAsStored(t *testing.T) {
	file := func(header string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	}
	const (
		head    = `"language_model.model.norm.weight": {}, "language_model.lm_head.weight": {}`
		down    = "model.language_model.layers.0.mlp.experts.down_proj"
		gateUp  = "model.language_model.layers.0.mlp.experts.gate_up_proj"
		single  = "model.safetensors"
		shards  = "model.safetensors.index.json"
		mapping = `{"weight_map": {"` + down + `": "x.safetensors"}}`
	)
	experts := func(hidden, wide int) string {
		return fmt.Sprintf(`{"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": %d, "moe_intermediate_size": %d, "num_hidden_layers": 2, "num_experts": 4, "mlp_only_layers": [], "num_attention_heads": 2, "num_key_value_heads": 2}}`, hidden, wide)
	}
	const mistral = `{"model_type": "mistral3", "text_config": {"num_hidden_layers": 1}}`
	for name, tt := range map[string]struct {
		config       string
		files        map[string][]byte
		tied, turned bool
	}{
		"a head":            {mistral, map[string][]byte{single: file("{" + head + "}")}, false, false},
		"no head":           {mistral, map[string][]byte{single: file(`{"language_model.model.norm.weight": {}}`)}, true, false},
		"nothing":           {mistral, nil, false, false},
		"a head and a key":  {strings.Replace(mistral, "{", `{"tie_word_embeddings": true, `, 1), map[string][]byte{single: file("{" + head + "}")}, true, false},
		"as published":      {experts(8, 6), map[string][]byte{single: file(`{"` + down + `": {"shape": [4, 6, 8]}}`)}, false, false},
		"the other way":     {experts(8, 6), map[string][]byte{single: file(`{"` + down + `": {"shape": [4, 8, 6]}}`)}, false, true},
		"in shards":         {experts(8, 6), map[string][]byte{shards: []byte(mapping), "x.safetensors": file(`{"` + down + `": {"shape": [4, 8, 6]}}`)}, false, true},
		"a shard elsewhere": {experts(8, 6), map[string][]byte{shards: []byte(strings.Replace(mapping, "x.", "../x.", 1)), "../x.safetensors": file(`{"` + down + `": {"shape": [4, 8, 6]}}`)}, false, false},
		"a square one":      {experts(8, 8), map[string][]byte{single: file(`{"` + down + `": {"shape": [4, 8, 8]}, "` + gateUp + `": {"shape": [4, 16, 8]}}`)}, false, true},
		"another one":       {experts(8, 4), map[string][]byte{single: file(`{"` + down + `": {"shape": [4, 4, 8]}, "` + gateUp + `": {"shape": [4, 8, 8]}}`)}, false, false},
	} {
		dir := filepath.Join(t.TempDir(), "model")
		testkit.NoError(t, os.Mkdir(dir, 0o755))
		for name, data := range andOne(tt.files, "config.json", []byte(tt.config)) {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		c, err := LoadDir(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.TieEmbeddings != tt.tied || c.turned != tt.turned {
			t.Errorf("%s: tied %t, turned %t", name, c.TieEmbeddings, c.turned)
		}
		if tt.turned {
			p := c.Layers()[2].Params[3]
			rows, cols := int64(c.HiddenSize), int64(c.MoEIntermediateSize)
			if !reflect.DeepEqual(p.TensorShape(0), []int64{4, rows, cols}) || p.ElemAt(0, 2, 3) != 2*cols+3 {
				t.Errorf("%s: %v, element %d", name, p.TensorShape(0), p.ElemAt(0, 2, 3))
			}
		}
	}
}

// andOne returns a copy of files with one more file.
func andOne(files map[string][]byte, name string, data []byte) map[string][]byte {
	out := map[string][]byte{name: data}
	maps.Copy(out, files)
	return out
}
