package export

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"mt/model"
)

// nested are the model_types of whole config.json and of the language model's part, by the one that a family here goes by.
var nested = map[string][2]string{"gemma3": {"gemma3", "gemma3_text"}, "mistral3": {"mistral3", "mistral"}, "llama4": {"llama4", "llama4_text"}, "qwen2_vl_text": {"qwen2_vl", "qwen2_vl_text"},
	"qwen2_5_vl_text": {"qwen2_5_vl", "qwen2_5_vl_text"}, "qwen3_vl": {"qwen3_vl", "qwen3_vl_text"}, "qwen3_vl_text": {"qwen3_vl", "qwen3_vl_text"},
	"qwen3_vl_moe": {"qwen3_vl_moe", "qwen3_vl_moe_text"}, "qwen3_vl_moe_text": {"qwen3_vl_moe", "qwen3_vl_moe_text"}}

// TestDefaults: keys that config.json leaves out are what package model, which
// trains with them, takes them to be.
func TestDefaults(t *testing.T) {
	for _, family := range families {
		for _, kind := range family.types {
			text := llamaConfig(map[string]any{"architectures": nil, "model_type": kind, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5, "norm_topk_prob": true})
			for _, key := range []string{"max_position_embeddings", "rms_norm_eps", "rope_theta", "head_dim"} {
				delete(text, key)
			}
			text["num_attention_heads"], text["num_hidden_layers"] = 4, 6
			if kind == "qwen2_moe" { // llama.cpp never normalises their weights there
				text["norm_topk_prob"] = false
			}
			if strings.HasPrefix(kind, "gpt") || family.latent { // they have as many as heads
				delete(text, "num_key_value_heads")
			}
			text["bos_token_id"], text["eos_token_id"], text["pad_token_id"] = 1, 2, 0 // a family's own may not be in the small vocabulary
			if kind == "exaone4" {                                                     // written where it has so many layers
				text["num_hidden_layers"] = 64
			}
			text["attention_dropout"], text["residual_dropout"] = 0, 0
			if !strings.HasSuffix(family.arch, "moe") || kind == "glm4_moe" {
				maps.DeleteFunc(text, func(k string, _ any) bool {
					return strings.Contains(k, "expert") || strings.Contains(k, "moe") || k == "norm_topk_prob"
				})
			}
			if kind == "granitemoehybrid" { // its own defaults ask for experts and for layers of Mamba
				text["num_local_experts"], text["layer_types"] = 0, []any{"attention", "attention", "attention", "attention", "attention", "attention"}
			}
			if kind == "deepseek_v2" { // it has no default
				text["num_experts_per_tok"] = 2
			}
			if strings.HasPrefix(kind, "qwen2_vl") || strings.HasPrefix(kind, "qwen2_5_vl") || strings.HasPrefix(kind, "qwen3_vl_moe") {
				text["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []any{2, 1, 1}} // of heads of 8 elements
			}
			if in := nested[kind]; in[0] != "" {
				text["model_type"] = in[1]
				text = map[string]any{"model_type": in[0], "text_config": text}
			}
			text["tie_word_embeddings"] = kind == "gemma2" // which llama.cpp has with the embedding for a head alone
			checkDefaults(t, kind, mustJSON(t, text))
		}
	}
}

// checkDefaults compares the keys made of a config.json with package model's.
func checkDefaults(t *testing.T, kind string, config []byte) {
	t.Helper()
	c, err := model.ParseConfig(config, kind)
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{file: kind}
	if err := json.Unmarshal(config, &s.vals); err != nil {
		t.Fatal(err)
	}
	if text, ok := s.vals["text_config"].(map[string]any); ok {
		maps.Copy(s.vals, text)
		s.vals["model_type"] = kind
	}
	p := &plan{s: s}
	if p.family, err = findFamily(s); err != nil {
		t.Fatal(err)
	}
	if err := p.common(); err != nil && !strings.Contains(err.Error(), "query_pre_attn_scalar") { // another matter
		t.Fatal(err)
	}
	want := map[string]any{"context_length": uint32(c.MaxPositions), p.family.epsilon(): c.RMSNormEps, "attention.key_length": uint32(c.HeadDim),
		"rope.freq_base": float32(c.Rope.Theta), "attention.sliding_window": uint32(c.SlidingWindow),
		"attn_logit_softcapping": float32(c.AttnSoftcap), "final_logit_softcapping": float32(c.LogitSoftcap)}
	if l := c.Latent; l != nil {
		want["attention.key_length"], want["attention.key_length_mla"] = uint32(l.KVRank+l.RopeDim), uint32(c.HeadDim)
		want["attention.value_length"], want["attention.value_length_mla"] = uint32(l.KVRank), uint32(l.ValueDim)
		want["attention.q_lora_rank"] = uint32(l.QRank)
	}
	if c.Temper != nil && c.ModelType == "ministral3" {
		want["attention.temperature_scale"] = float32(c.Temper.Scale)
		want["rope.scaling.factor"], want["rope.scaling.original_context_length"] = float32(c.Rope.Factor), uint32(c.Temper.Every)
	}
	if c.LocalRope != nil {
		want["rope.freq_base_swa"] = float32(c.LocalRope.Theta)
	}
	for _, kv := range p.kvs {
		key := strings.TrimPrefix(kv.Key, p.family.arch+".")
		if w, ok := want[key]; ok && kv.Value != w {
			t.Errorf("%s: %s is %v, want %v", kind, key, kv.Value, w)
		}
	}
}
