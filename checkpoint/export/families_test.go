package export

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
	"mt/model"
)

// nested maps a model_type in the table of families to two others, for models with a vision tower:
// the model_type of the whole config.json, and that of its text_config.
var nested = map[string][2]string{"gemma3": {"gemma3", "gemma3_text"}, "gemma4": {"gemma4", "gemma4_text"}, "mistral3": {"mistral3", "mistral"}, "llama4": {"llama4", "llama4_text"}, "qwen2_vl_text": {"qwen2_vl", "qwen2_vl_text"},
	"qwen2_5_vl_text": {"qwen2_5_vl", "qwen2_5_vl_text"}, "qwen3_vl": {"qwen3_vl", "qwen3_vl_text"}, "qwen3_vl_text": {"qwen3_vl", "qwen3_vl_text"},
	"qwen3_vl_moe": {"qwen3_vl_moe", "qwen3_vl_moe_text"}, "qwen3_vl_moe_text": {"qwen3_vl_moe", "qwen3_vl_moe_text"},
	"qwen3_5": {"qwen3_5", "qwen3_5_text"}, "qwen3_5_moe": {"qwen3_5_moe", "qwen3_5_moe_text"}}

// TestDefaults: a key that config.json lacks gets the default of package model, with which mt
// trains the model.
func TestDefaults(t *testing.T) {
	for _, family := range families {
		for _, kind := range family.types {
			text := llamaConfig(map[string]any{"architectures": nil, "model_type": kind, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5, "norm_topk_prob": true})
			for _, key := range []string{"max_position_embeddings", "rms_norm_eps", "rope_theta", "head_dim"} {
				delete(text, key)
			}
			text["num_attention_heads"], text["num_hidden_layers"] = 4, 6
			if kind == "qwen2_moe" { // llama.cpp never normalises the expert weights of this family
				text["norm_topk_prob"] = false
			}
			if strings.HasPrefix(kind, "gpt") || family.mla { // these have as many key/value heads as heads
				delete(text, "num_key_value_heads")
			}
			text["bos_token_id"], text["eos_token_id"], text["pad_token_id"] = 1, 2, 0 // a family's default ids may exceed the small vocabulary
			if kind == "exaone4" {                                                     // the sliding window is written only for 64 layers
				text["num_hidden_layers"] = 64
			}
			text["attention_dropout"], text["residual_dropout"] = 0, 0
			if !strings.HasSuffix(family.arch, "moe") || kind == "glm4_moe" || kind == "nemotron_h" {
				maps.DeleteFunc(text, func(k string, _ any) bool {
					return strings.Contains(k, "expert") || strings.Contains(k, "moe") || k == "norm_topk_prob"
				})
			}
			if kind == "granitemoehybrid" { // its own defaults ask for experts and for layers of Mamba
				text["num_local_experts"], text["layer_types"] = 0, []any{"attention", "attention", "attention", "attention", "attention", "attention"}
			}
			if kind == "nemotron_h" { // its own default has a kind of block that mt does not train
				text["layers_block_type"] = []any{"mamba", "attention", map[string]any{"nemotron_h_moe": "moe", "nemotron_h": "mamba"}[family.arch]}
			}
			if kind == "afmoe" { // which llama.cpp has with this scale alone
				text["mup_enabled"] = true
			}
			if kind == "deepseek_v2" { // it has no default
				text["num_experts_per_tok"] = 2
			}
			if strings.HasPrefix(kind, "qwen2_vl") || strings.HasPrefix(kind, "qwen2_5_vl") || strings.HasPrefix(kind, "qwen3_vl_moe") {
				text["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []any{2, 1, 1}} // sums to the 4 rotary pairs of a head of 8 elements
			}
			if in := nested[kind]; in[0] != "" {
				text["model_type"] = in[1]
				text = map[string]any{"model_type": in[0], "text_config": text}
			}
			text["tie_word_embeddings"] = kind == "gemma2" // llama.cpp's gemma2 has no head of its own
			checkDefaults(t, kind, mustJSON(t, text))
		}
	}
}

// checkDefaults checks that the GGUF keys made from a config.json agree with package model's
// reading of it.
func checkDefaults(t *testing.T, kind string, config []byte) {
	t.Helper()
	c, err := model.ParseConfig(config, kind)
	testkit.NoError(t, err)
	s := &settings{file: kind}
	testkit.NoError(t, json.Unmarshal(config, &s.vals))
	if text, ok := s.vals["text_config"].(map[string]any); ok {
		maps.Copy(s.vals, text)
		s.vals["model_type"] = kind
	}
	p := &plan{s: s}
	if p.family, err = findFamily(s); err != nil {
		t.Fatal(err)
	}
	if err := p.common(); err != nil && !strings.Contains(err.Error(), "query_pre_attn_scalar") { // this test is not about this error
		t.Fatal(err)
	}
	want := map[string]any{"context_length": uint32(c.MaxPositions), p.family.epsilon(): c.RMSNormEps, "attention.key_length": uint32(c.HeadDim),
		"rope.freq_base": float32(c.Rope.Theta), "attention.sliding_window": uint32(c.SlidingWindow),
		"attn_logit_softcapping": float32(c.AttnSoftcap), "final_logit_softcapping": float32(c.LogitSoftcap)}
	if l := c.MLA; l != nil {
		want["attention.key_length"], want["attention.key_length_mla"] = uint32(l.KVRank+l.RopeDim), uint32(c.HeadDim)
		want["attention.value_length"], want["attention.value_length_mla"] = uint32(l.KVRank), uint32(l.ValueDim)
		want["attention.q_lora_rank"] = uint32(l.QRank)
	}
	if c.QueryScaling != nil && c.ModelType == "ministral3" {
		want["attention.temperature_scale"] = float32(c.QueryScaling.Scale)
		want["rope.scaling.factor"], want["rope.scaling.original_context_length"] = float32(c.Rope.Factor), uint32(c.QueryScaling.Every)
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

// gemma2 returns a copy of the recorded model gemma2-capped, with further keys. Its scale of
// attention scores is the one that llama.cpp assumes.
func gemma2(t *testing.T, keys map[string]any) string {
	t.Helper()
	all := map[string]any{"query_pre_attn_scalar": 6}
	maps.Copy(all, keys)
	return recordedModel(t, "gemma2-capped", all)
}

// TestGemma2: the file has the caps of scores and logits, the sliding windows and the size of
// heads. Norm weights are stored as 1 + w. The file has no separate head, and none of Gemma 3's
// norms.
func TestGemma2(t *testing.T) {
	dir := gemma2(t, nil)
	f, s := exportGGUF(t, dir, F32)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma2", "gemma2.attention.sliding_window": 5, "gemma2.attention.sliding_window_pattern": 2,
		"gemma2.attn_logit_softcapping": 0.5, "gemma2.final_logit_softcapping": 1, "gemma2.attention.key_length": 6, "gemma2.attention.value_length": 6,
		"gemma2.attention.head_count_kv": 2, "gemma2.rope.freq_base": 10000})
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	defer w.Close()
	for from, to := range map[string]string{"layers.1.input_layernorm": "blk.1.attn_norm", "layers.1.post_attention_layernorm": "blk.1.post_attention_norm",
		"layers.0.pre_feedforward_layernorm": "blk.0.ffn_norm", "layers.2.post_feedforward_layernorm": "blk.2.post_ffw_norm", "norm": "output_norm"} {
		_, got := tensorOf(t, f, to+".weight")
		want := make([]float32, len(got))
		testkit.NoError(t, w.Read("model."+from+".weight", 0, want))
		for i, v := range got {
			if v != 1+want[i] {
				t.Fatalf("%s: element %d is %v, want %v", to, i, v, 1+want[i])
			}
		}
	}
	const older = "older releases of llama.cpp have a sliding window in every other layer"
	if len(f.Tensors) != 2+3*11 || s.Architecture != "gemma2" || strings.Contains(strings.Join(s.Notes, " "), older) {
		t.Errorf("%+v", s)
	}
	exportGGUF(t, gemma2(t, map[string]any{"tie_word_embeddings": absent{}}), F32) // the config.json of published models lacks this key
	f, s = exportGGUF(t, gemma2(t, map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "full_attention"}}), F32)
	wantKeys(t, f, map[string]any{"gemma2.attention.sliding_window_pattern": 3})
	if !strings.Contains(strings.Join(s.Notes, " "), older) {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestGemma2Refused: a Gemma 2 model with a property that llama.cpp cannot express is an error that
// names the key.
func TestGemma2Refused(t *testing.T) {
	for want, keys := range map[string]map[string]any{
		"attn_logit_softcapping: null or 0, but llama.cpp's gemma2 has no models without":                 {"attn_logit_softcapping": nil},
		"final_logit_softcapping: null or 0, but llama.cpp's gemma2 has no models without":                {"final_logit_softcapping": nil},
		"query_pre_attn_scalar: 10, but llama.cpp's gemma2 takes 6 from the other keys":                   {"query_pre_attn_scalar": 10},
		"query_pre_attn_scalar: 6, but llama.cpp's gemma2 takes 4 from":                                   {"num_hidden_layers": 46, "layer_types": nil},
		"tie_word_embeddings: false, but llama.cpp's gemma2 takes the embedding":                          {"tie_word_embeddings": false},
		"tie_word_embeddings: <nil>, but llama.cpp's gemma2 takes the embedding":                          {"tie_word_embeddings": nil},
		"attention_bias: is true, but llama.cpp's gemma2 has no biases":                                   {"attention_bias": true},
		"use_bidirectional_attention: cannot be written":                                                  {"use_bidirectional_attention": true},
		"layer_types: layer 2 is full_attention":                                                          {"layer_types": []any{"sliding_attention", "full_attention", "full_attention"}},
		"layer_types: no layer has a sliding window, but":                                                 {"layer_types": []any{"full_attention", "full_attention", "full_attention"}},
		"sliding_window: missing or 0":                                                                    {"sliding_window": nil},
		"rope_type: llama3 cannot be written as GGUF: llama.cpp's gemma2":                                 {"rope_parameters": map[string]any{"rope_type": "llama3", "rope_theta": 1e4}},
		"hidden_activation: silu, but llama.cpp's gemma2 computes another function in the MLP: the model": {"hidden_activation": "silu"},
	} {
		dir := gemma2(t, keys)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "config.json")+": "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestGemma3WithoutWindows: if no layer has a sliding window, the file has no keys for one.
func TestGemma3WithoutWindows(t *testing.T) {
	config := llamaConfig(map[string]any{"architectures": nil, "model_type": "gemma3_text", "query_pre_attn_scalar": 4, "layer_types": []any{"full_attention", "full_attention"}})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma3", "gemma3.attention.sliding_window": nil, "gemma3.attention.sliding_window_pattern": nil})
}

// gemma3 makes a small model of Gemma 3's text class. keys replace keys of its config.json.
func gemma3(t *testing.T, keys map[string]any) string {
	t.Helper()
	config := llamaConfig(map[string]any{"architectures": nil, "model_type": "gemma3_text", "query_pre_attn_scalar": 4, "sliding_window": 8})
	maps.Copy(config, keys)
	return makeModel(t, config, tensorsFor(t, config), nil)
}

// TestGemma3Caps: the file caps logits if the config does, as Gemma 3's text class computes. It
// never caps attention scores, since no program reads that key of Gemma 3.
func TestGemma3Caps(t *testing.T) {
	f, _ := exportGGUF(t, gemma3(t, map[string]any{"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}), F32)
	wantKeys(t, f, map[string]any{"gemma3.final_logit_softcapping": 30, "gemma3.attn_logit_softcapping": nil})
}

// TestGemma3Of27B: llama.cpp takes a model with 62 layers for Gemma 3 27B and uses hidden_size /
// heads, as a whole number, for the scale of scores. A model of 62 layers with another scale is an
// error.
func TestGemma3Of27B(t *testing.T) {
	for layers, want := range map[int]string{61: "query_pre_attn_scalar: 5, but llama.cpp's gemma3 takes 4 from", 62: "query_pre_attn_scalar: 5, but llama.cpp's gemma3 takes 10 from"} {
		dir := gemma3(t, map[string]any{"num_hidden_layers": layers, "query_pre_attn_scalar": 5})
		_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d layers: got %v, want %s", layers, err, want)
		}
	}
}

// TestGemma3Windows: without layer_types, sliding_window_pattern, with or without a leading
// underscore, gives the period of the layers with full attention. Without both, every sixth layer
// has full attention.
func TestGemma3Windows(t *testing.T) {
	for key, want := range map[string]int{"sliding_window_pattern": 2, "_sliding_window_pattern": 2, "initializer_range": 6} {
		f, _ := exportGGUF(t, gemma3(t, map[string]any{key: 2}), F32)
		wantKeys(t, f, map[string]any{"gemma3.attention.sliding_window_pattern": want})
	}
}

// TestActivations: in llama.cpp the architecture decides the MLP's activation. A model with another
// activation is an error. GELU with erf is written too, and llama.cpp computes it in the tanh form.
func TestActivations(t *testing.T) {
	for act, want := range map[string]string{"silu": "", "gelu_pytorch_tanh": "hidden_act: gelu_pytorch_tanh, but llama.cpp's llama computes another function"} {
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, llamaConfig(map[string]any{"hidden_act": act}), llamaTensors(), nil), Out: filepath.Join(t.TempDir(), "x.gguf")})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", act, err, want)
		}
	}
	for _, c := range []struct {
		family, act string
		notes       int
	}{{"starcoder2", "gelu", 1}, {"starcoder2", "gelu_pytorch_tanh", 0}, {"gpt_neox", "gelu", 1}, {"gpt_neox", "gelu_fast", 0}} {
		config := map[string]any{"model_type": c.family, "vocab_size": 6, "hidden_size": 32, "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4,
			"max_position_embeddings": 64, "hidden_act": c.act, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
		_, s := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
		if got := strings.Count(strings.Join(s.Notes, "\n"), "tanh in place of erf"); got != c.notes {
			t.Errorf("%s, %s: notes %q", c.family, c.act, s.Notes)
		}
	}
	config := map[string]any{"model_type": "gpt2", "vocab_size": 6, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "activation_function": "silu", "bos_token_id": 1, "eos_token_id": 2}
	_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x.gguf")})
	if err == nil || !strings.Contains(err.Error(), "activation_function: silu, but llama.cpp's gpt2 computes another function") {
		t.Errorf("gpt2: got %v", err)
	}
}

// TestLlamaCppGemma2: llama.cpp computes the reference's logits for the recorded model and for
// variants of it: windows in other layers, linearly scaled positions, and the layer count of the
// 27B model, whose scores have another scale. The bounds allow for GELU, which llama.cpp looks up
// in half precision: logits differ by up to 7e-4, and by 1e-6 if the reference rounds in the same
// way.
func TestLlamaCppGemma2(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	window, full := "sliding_attention", "full_attention"
	for _, keys := range []map[string]any{
		nil,
		{"layer_types": []any{window, window, full}},
		{"layer_types": []any{window, window, window}},
		{"rope_parameters": map[string]any{"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}},
	} {
		sameLogits(t, run, gemma2(t, keys), 2e-3)
	}
	sameLogits(t, run, deepGemma2(t), 5e-3) // through 46 layers in place of three
}

// deepGemma2 makes a model of 46 layers from the three layers of the recorded gemma2 model,
// repeated in turn.
func deepGemma2(t *testing.T) string {
	t.Helper()
	dir := gemma2(t, nil)
	v := testkit.Must(readJSON(filepath.Join(dir, "config.json")))(t)
	config := v.(map[string]any)
	config["num_hidden_layers"], config["layer_types"], config["query_pre_attn_scalar"] = 46, nil, 4
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	defer w.Close()
	tensors, values := map[string]shape{}, map[string][]float32{}
	for _, x := range w.Tensors() {
		v := make([]float32, x.Elems())
		testkit.NoError(t, w.Read(x.Name, 0, v))
		var layer int
		var rest string
		if _, err := fmt.Sscanf(x.Name, "model.layers.%d.%s", &layer, &rest); err != nil { // it is outside the layers
			tensors[x.Name], values[x.Name] = x.Shape, v
			continue
		}
		for ; layer < 46; layer += 3 {
			name := fmt.Sprintf("model.layers.%d.%s", layer, rest)
			tensors[name], values[name] = x.Shape, v
		}
	}
	return makeModelOf(t, config, tensors, nil, func(name string, i int64) float32 { return values[name][i] })
}

// TestGranite4: the MLP's input projection, which combines gate and up rows, becomes two tensors. A
// model without rotary embedding is marked as such.
func TestGranite4(t *testing.T) {
	for turns, finetuned := range map[string]bool{"nope": false, "rope": true} {
		config := llamaConfig(map[string]any{"architectures": []any{"GraniteMoeHybridForCausalLM"}, "model_type": "granitemoehybrid", "num_local_experts": 0,
			"layer_types": []any{"attention", "attention"}, "shared_intermediate_size": 44, "position_embedding_type": turns, "embedding_multiplier": 12.0})
		f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
		wantKeys(t, f, map[string]any{"general.architecture": "granite", "granite.feed_forward_length": 44, "granite.embedding_scale": 12,
			"granite.rope.scaling.finetuned": finetuned})
		for name, from := range map[string]int64{"ffn_gate": 0, "ffn_up": 44} {
			x, got := tensorOf(t, f, "blk.1."+name+".weight")
			cols := x.Shape[1]
			if x.Shape[0] != 44 {
				t.Fatalf("%s is %v", name, x.Shape)
			}
			for i, v := range got {
				if want := value("model.layers.1.shared_mlp.input_linear.weight", from*cols+int64(i)); v != want {
					t.Fatalf("%s[%d] is %v, want %v", name, i, v, want)
				}
			}
		}
	}
}

// TestLlamaCppGranite4: llama.cpp computes the reference's logits for Granite 4, with and without a
// rotary embedding.
func TestLlamaCppGranite4(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for _, turns := range []any{nil, "rope"} {
		sameLogits(t, run, recordedModel(t, "granite4-nope", map[string]any{"position_embedding_type": turns}), 1e-5)
	}
}

// mlaConfig returns the config.json of a small DeepSeek V3 model. changes replace its keys.
func mlaConfig(changes map[string]any) map[string]any {
	config := map[string]any{"model_type": "deepseek_v3", "vocab_size": 24, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
		"num_key_value_heads": 3, "head_dim": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1,
		"n_group": 2, "topk_group": 1, "q_lora_rank": 10, "kv_lora_rank": 6, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 5, "routed_scaling_factor": 1.5,
		"rope_theta": 10000.0, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 0.5}}
	maps.Copy(config, changes)
	return config
}

// TestLatent: for latent attention (MLA), kv_b_proj is split into its key rows and value rows, head
// by head, with keys transposed. The file declares one key head, as wide as the latent vector plus
// the rotary part.
func TestLatent(t *testing.T) {
	config := mlaConfig(nil)
	f, s := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "deepseek2", "deepseek2.attention.head_count": 3, "deepseek2.attention.head_count_kv": 1,
		"deepseek2.attention.key_length": 10, "deepseek2.attention.value_length": 6, "deepseek2.attention.key_length_mla": 12, "deepseek2.attention.value_length_mla": 5,
		"deepseek2.attention.kv_lora_rank": 6, "deepseek2.attention.q_lora_rank": 10, "deepseek2.rope.dimension_count": 4,
		"deepseek2.rope.scaling.yarn_log_multiplier": float32(0.05), "deepseek2.expert_gating_func": 2, "deepseek2.expert_group_count": 2, "deepseek2.expert_group_used_count": 1,
		"deepseek2.expert_weights_scale": 1.5, "deepseek2.expert_weights_norm": true, "deepseek2.expert_shared_count": 2, "deepseek2.leading_dense_block_count": 1})
	if f.Value("deepseek2.rope.scaling.attn_factor") != nil || len(s.Notes) > 0 && strings.Contains(strings.Join(s.Notes, " "), "narrow") {
		t.Errorf("the file has a factor of attention, or a note: %q", s.Notes)
	}
	const name, heads, nope, value5, rank = "model.layers.1.self_attn.kv_b_proj.weight", 3, 8, 5, 6
	k, ks := tensorOf(t, f, "blk.1.attn_k_b.weight")
	v, vs := tensorOf(t, f, "blk.1.attn_v_b.weight")
	if !slices.Equal(k.Shape, []int64{heads, rank, nope}) || !slices.Equal(v.Shape, []int64{heads, value5, rank}) {
		t.Fatalf("k_b is %v, v_b %v", k.Shape, v.Shape)
	}
	for h := range heads {
		for c := range rank {
			for r := range nope + value5 {
				want, got := value(name, int64((h*(nope+value5)+r)*rank+c)), float32(0)
				if r < nope {
					got = ks[(h*rank+c)*nope+r]
				} else {
					got = vs[(h*value5+r-nope)*rank+c]
				}
				if got != want {
					t.Fatalf("head %d, row %d, column %d is %v, want %v", h, r, c, got, want)
				}
			}
		}
	}
	if x, _ := tensorOf(t, f, "blk.0.ffn_up.weight"); x.Type != gguf.F32 {
		t.Errorf("the first block is not dense: %v", x)
	}
	config = mlaConfig(map[string]any{"model_type": "deepseek_v2", "q_lora_rank": nil, "n_group": nil, "topk_group": nil, "rope_scaling": nil, "rms_norm_eps": 1e-5})
	f, s = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"deepseek2.expert_gating_func": 1})
	if x, _ := tensorOf(t, f, "blk.1.attn_q.weight"); !slices.Equal(x.Shape, []int64{36, 32}) || f.Value("deepseek2.expert_group_count") != nil {
		t.Errorf("queries are %v", x.Shape)
	}
	if !strings.Contains(strings.Join(s.Notes, " "), "rms_norm_eps 1e-05 too") {
		t.Errorf("notes %q", s.Notes)
	}
}

// mlaYarn returns YaRN scaling with these two factors on attention scores.
func mlaYarn(m, all float64) map[string]any {
	return map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": m, "mscale_all_dim": all}
}

// TestLatentRefused: a model with latent attention that llama.cpp's architecture deepseek2 cannot
// express is an error that names the key.
func TestLatentRefused(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"mscale: is 0.7 and mscale_all_dim 0.9":        {"rope_scaling": mlaYarn(0.7, 0.9)},
		"mscale: is 0 and mscale_all_dim 0":            {"rope_scaling": mlaYarn(0, 0)},
		"rope_type: linear cannot be written as GGUF":  {"rope_scaling": map[string]any{"rope_type": "linear", "factor": 4.0}},
		"mscale: is 0.7, but llama.cpp's deepseek32":   {"model_type": "deepseek_v32", "rope_scaling": mlaYarn(0.7, 0.7)},
		"rope_type: yarn cannot be written as GGUF":    {"model_type": "glm_moe_dsa", "rope_scaling": mlaYarn(1, 1)},
		"rope_interleave: is false":                    {"rope_interleave": false},
		"attention_bias: is true, but llama.cpp":       {"attention_bias": true},
		"mlp_bias: is true, but llama.cpp":             {"model_type": "deepseek_v2", "topk_method": "greedy", "n_group": nil, "topk_group": nil, "mlp_bias": true},
		`topk_method: "group_limited_greedy": a group`: {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"},
	} {
		config := mlaConfig(changes)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}

// TestLlamaCppDeepseekV2: llama.cpp computes the reference's logits, with and without a low-rank
// query projection, and with and without YaRN, which also scales attention scores (mscale).
func TestLlamaCppDeepseekV2(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for _, name := range []string{"deepseekv2-whole", "deepseekv2-groups"} {
		for _, rope := range []map[string]any{{"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
			"beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}} {
			rope["rope_theta"] = 10000.0
			sameLogits(t, run, recordedModel(t, name, map[string]any{"rope_parameters": rope, "rms_norm_eps": 1e-6, "topk_method": "greedy"}), 1e-5)
		}
	}
}

// absent as a key's value means that the key is left out.
type absent struct{}

// recordedModel copies the recorded model called name, with keys in place of those of its
// config.json, and returns the new directory.
func recordedModel(t *testing.T, name string, keys map[string]any) string {
	t.Helper()
	from := filepath.Join("../../internal/run/testdata/recordings", name, "model")
	v := testkit.Must(readJSON(filepath.Join(from, "config.json")))(t)
	config := v.(map[string]any)
	maps.Copy(config, keys)
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == absent{} })
	weights := testkit.Must(os.ReadFile(filepath.Join(from, "model.safetensors")))(t)
	dir := t.TempDir()
	for file, data := range map[string][]byte{"config.json": mustJSON(t, config), "model.safetensors": weights} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	return dir
}

// sameLogits exports the model in dir as GGUF and compares llama.cpp's logits with those of the
// reference. The model must have at least 45 tokens. bound is relative to the largest logit if that
// is above 1. In fp32, 1e-5 suffices for sums of up to 50 products in another order.
func sameLogits(t *testing.T, run func(args ...string) []byte, dir string, bound float64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.gguf")
	testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: F32}))(t)
	var got struct{ Logits [][]float64 }
	text := ids{9, 24, 12, 23, 24, 21, 17, 1, 15, 8, 21, 40, 3, 3, 31, 6, 44, 2, 11, 30}
	testkit.NoError(t, json.Unmarshal(run("testdata/llamacpp.py", out, "--ids", text.String()), &got))
	want, worst, largest := logitsOf(t, dir, text), 0.0, 0.0
	for i, v := range slices.Concat(got.Logits...) {
		worst, largest = max(worst, math.Abs(v-want[i])), max(largest, math.Abs(want[i]))
	}
	if !(worst <= bound*max(1, largest)) || len(got.Logits) != len(text) {
		t.Errorf("%s: off by %.2e of %.2g", dir, worst, largest)
	}
}

// logitsOf returns the logits that the reference computes for a text with the model in dir.
func logitsOf(t *testing.T, dir string, text ids) []float64 {
	t.Helper()
	c, _, plain, err := reference.LoadModel(dir)
	testkit.NoError(t, err)
	var tokens []int32
	for _, id := range text {
		tokens = append(tokens, int32(id))
	}
	return reference.Logits(c, plain, tokens)
}

// recurrentConfig returns the config.json of a small Qwen3-Next model: two blocks with a recurrence
// (Gated DeltaNet), then one with attention. changes replace its keys.
func recurrentConfig(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "qwen3_next", "num_hidden_layers": 3, "head_dim": 16, "num_experts": 4, "shared_expert_intermediate_size": 20,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "full_attention_interval": 3})
	maps.Copy(config, changes)
	return config
}

// recurrentModel makes a model directory with this config.json and random weights.
func recurrentModel(t *testing.T, config map[string]any) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 7))
	return makeModelOf(t, config, tensorsFor(t, config), nil, func(string, int64) float32 { return float32(0.3 * rng.NormFloat64()) })
}

// TestRecurrence: the tensors of Gated DeltaNet layers are rearranged for llama.cpp. q, k and v are
// stored together, head by head, and z separately. A_log becomes the rate −exp(A_log), and the
// convolution a matrix. Only the norm of the layer's output is written unchanged.
func TestRecurrence(t *testing.T) {
	config := recurrentConfig(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "qwen3next", "qwen3next.ssm.conv_kernel": 4, "qwen3next.ssm.state_size": 16, "qwen3next.ssm.group_count": 2,
		"qwen3next.ssm.time_step_rank": 4, "qwen3next.ssm.inner_size": 64, "qwen3next.full_attention_interval": 3, "qwen3next.rope.dimension_count": 4,
		"qwen3next.expert_count": 4, "qwen3next.expert_shared_feed_forward_length": 20})
	const from = "model.layers.1.linear_attn."
	for name, want := range map[string]struct {
		shape []int64
		kind  gguf.Type
		from  string
		at    func(i int) int // of the directory's tensor
		of    func(v float32) float32
	}{
		"blk.1.attn_qkv.weight": {shape: []int64{128, 32}, kind: gguf.F16, from: "in_proj_qkvz.weight", at: func(i int) int {
			row, head, in := i/32, 0, 0
			switch { // of a key head: 16 rows of q, 16 of k, 32 of v, 32 of z
			case row < 32:
				head, in = row/16, row%16
			case row < 64:
				head, in = (row-32)/16, 16+row%16
			default:
				head, in = (row-64)/32, 32+row%32
			}
			return (head*96+in)*32 + i%32
		}},
		"blk.1.attn_gate.weight":  {shape: []int64{64, 32}, kind: gguf.F16, from: "in_proj_qkvz.weight", at: func(i int) int { return (i/32/32*96+64+i/32%32)*32 + i%32 }},
		"blk.1.ssm_ba.weight":     {shape: []int64{8, 32}, kind: gguf.F16, from: "in_proj_ba.weight"},
		"blk.1.ssm_conv1d.weight": {shape: []int64{128, 4}, kind: gguf.F32, from: "conv1d.weight"},
		"blk.1.ssm_dt.bias":       {shape: []int64{4}, kind: gguf.F32, from: "dt_bias"},
		"blk.1.ssm_a":             {shape: []int64{4}, kind: gguf.F32, from: "A_log", of: func(v float32) float32 { return float32(-math.Exp(float64(v))) }},
		"blk.1.ssm_norm.weight":   {shape: []int64{16}, kind: gguf.F32, from: "norm.weight"},
		"blk.1.ssm_out.weight":    {shape: []int64{32, 64}, kind: gguf.F16, from: "out_proj.weight"},
	} {
		x, got := tensorOf(t, f, name)
		if !slices.Equal(x.Shape, want.shape) || x.Type != want.kind {
			t.Errorf("%s: %v %v, want %v %v", name, x.Shape, x.Type, want.shape, want.kind)
		}
		for i, v := range got {
			at := i
			if want.at != nil {
				at = want.at(i)
			}
			w := value(from+want.from, int64(at))
			if want.of != nil {
				w = want.of(w)
			}
			if v != w {
				t.Fatalf("%s[%d] is %v, want %v", name, i, v, w)
			}
		}
	}
	if _, got := tensorOf(t, f, "blk.1.post_attention_norm.weight"); got[5] != 1+value("model.layers.1.post_attention_layernorm.weight", 5) {
		t.Errorf("a norm's weight is %v", got[5])
	}
	if x, _ := tensorOf(t, f, "blk.2.attn_q.weight"); !slices.Equal(x.Shape, []int64{64, 32}) {
		t.Errorf("queries and gates are %v", x.Shape)
	}
	config = recurrentConfig(map[string]any{"layer_types": []any{"linear_attention", "full_attention", "linear_attention"}})
	f, _ = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"qwen3next.full_attention_interval": 2})
	if x, _ := tensorOf(t, f, "blk.2.ssm_a"); !slices.Equal(x.Shape, []int64{4}) {
		t.Errorf("the last block's rates are %v", x.Shape)
	}
}

// TestRecurrenceRefused: a Qwen3-Next model that llama.cpp's architecture qwen3next cannot express
// is an error that names the key.
func TestRecurrenceRefused(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"linear_value_head_dim: 8, where":              {"linear_value_head_dim": 8},
		"attention_bias: is true":                      {"attention_bias": true},
		"norm_topk_prob: is false":                     {"norm_topk_prob": false},
		"decoder_sparse_step: layers without experts":  {"mlp_only_layers": []any{0}},
		"layer_types: layer 2 is linear_attention":     {"layer_types": []any{"full_attention", "full_attention", "linear_attention"}},
		"rope_type: llama3 cannot be written as GGUF:": {"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
	} {
		config := recurrentConfig(changes)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}

// TestLlamaCppRecurrence: the PyPI package gguf reads a Qwen3-Next file of every type, and
// llama.cpp computes the reference's logits.
func TestLlamaCppRecurrence(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync", "gguf", "numpy")
	var text ids
	for i := range 60 {
		text = append(text, 1+i*i*7%23)
	}
	for _, changes := range []map[string]any{nil, {"layer_types": []any{"linear_attention", "full_attention", "linear_attention"}, "linear_num_key_heads": 4}} {
		dir := recurrentModel(t, recurrentConfig(changes))
		for _, kind := range GGUF.Types() {
			out := filepath.Join(t.TempDir(), "x.gguf")
			testkit.Must(Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: kind}))(t)
			if got := run("testdata/check.py", out, dir); !strings.Contains(string(got), `"ok": true`) {
				t.Errorf("%s: %s", kind, got)
			}
			if kind != F32 {
				continue
			}
			var got struct{ Logits [][]float64 }
			testkit.NoError(t, json.Unmarshal(run("testdata/llamacpp.py", out, "--ids", text.String()), &got))
			want, worst, largest := logitsOf(t, dir, text), 0.0, 0.0
			for i, v := range slices.Concat(got.Logits...) {
				worst, largest = max(worst, math.Abs(v-want[i])), max(largest, math.Abs(want[i]))
			}
			if !(worst <= 1e-5*max(1, largest)) || len(got.Logits) != len(text) {
				t.Errorf("%v: off by %.2e of %.2g", changes, worst, largest)
			}
		}
	}
}

// sharedConfig returns keys of a small model's config.json, for models with experts and a shared
// expert. changes add or replace keys.
func sharedConfig(changes map[string]any) map[string]any {
	config := map[string]any{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
	maps.Copy(config, changes)
	return config
}

func glmConfig(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "glm4_moe", "n_routed_experts": 4, "n_shared_experts": 3, "head_dim": 8, "routed_scaling_factor": 1.5})
	maps.Copy(config, changes)
	return config
}

func afmoeConfig(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "afmoe", "num_experts": 4, "num_shared_experts": 1, "head_dim": 8, "mup_enabled": true, "sliding_window": 4})
	maps.Copy(config, changes)
	return config
}

// TestDenseAndShared: the first block has a dense MLP. The others have experts, a bias for their choice, and three
// shared experts stored as one of triple width.
func TestDenseAndShared(t *testing.T) {
	config := glmConfig(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "glm4moe", "glm4moe.expert_count": 4, "glm4moe.expert_used_count": 2, "glm4moe.expert_shared_count": 3,
		"glm4moe.expert_feed_forward_length": 8, "glm4moe.leading_dense_block_count": 1, "glm4moe.expert_gating_func": 2, "glm4moe.rope.dimension_count": 4,
		"glm4moe.expert_weights_scale": 1.5, "glm4moe.expert_weights_norm": true})
	for name, want := range map[string]gguf.Tensor{
		"blk.0.ffn_up.weight":              {Shape: []int64{12, 32}, Type: gguf.F16},
		"blk.1.ffn_up_shexp.weight":        {Shape: []int64{24, 32}, Type: gguf.F16},
		"blk.1.ffn_down_exps.weight":       {Shape: []int64{4, 32, 8}, Type: gguf.F16},
		"blk.1.exp_probs_b.bias":           {Shape: []int64{4}, Type: gguf.F32},
		"blk.1.ffn_gate_inp.weight":        {Shape: []int64{4, 32}, Type: gguf.F32},
		"blk.1.attn_k.weight":              {Shape: []int64{8, 32}, Type: gguf.F16},
		"blk.1.post_attention_norm.weight": {Shape: []int64{32}, Type: gguf.F32},
	} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want.Shape) || x.Type != want.Type {
			t.Errorf("%s: %v %v, want %v %v", name, x.Shape, x.Type, want.Shape, want.Type)
		}
	}
	if _, bias := tensorOf(t, f, "blk.1.exp_probs_b.bias"); bias[3] != value("model.layers.1.mlp.gate.e_score_correction_bias", 3) {
		t.Errorf("the bias is %v", bias)
	}
}

// TestSharedGate: the gate of a shared expert, a matrix of one row in the directory, is written as
// a vector.
func TestSharedGate(t *testing.T) {
	config := sharedConfig(map[string]any{"model_type": "qwen2_moe", "num_experts": 3, "shared_expert_intermediate_size": 20})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "qwen2moe", "qwen2moe.expert_count": 3, "qwen2moe.expert_shared_feed_forward_length": 20})
	x, gate := tensorOf(t, f, "blk.1.ffn_gate_inp_shexp.weight")
	if !slices.Equal(x.Shape, []int64{32}) || x.Type != gguf.F32 || gate[31] != value("model.layers.1.mlp.shared_expert_gate.weight", 31) {
		t.Errorf("the gate is %v %v", x.Shape, x.Type)
	}
}

func llama4Config(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "llama4_text", "num_local_experts": 3, "num_experts_per_tok": 1, "intermediate_size": 10,
		"intermediate_size_mlp": 20, "head_dim": 8, "interleave_moe_layer_step": 2, "bos_token_id": 1, "eos_token_id": 2})
	delete(config, "moe_intermediate_size")
	maps.Copy(config, changes)
	return config
}

// TestExpertsInterleaved: in Llama 4, every second block has experts, whose matrices are in one
// tensor, and a shared expert. The other blocks are dense.
func TestExpertsInterleaved(t *testing.T) {
	config := llama4Config(map[string]any{"no_rope_layers": []any{}, "attn_temperature_tuning": 4, "num_hidden_layers": 4})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "llama4", "llama4.expert_count": 3, "llama4.expert_used_count": 1, "llama4.feed_forward_length": 20,
		"llama4.expert_feed_forward_length": 10, "llama4.interleave_moe_layer_step": 2, "llama4.rope.dimension_count": 8})
	for name, want := range map[string][]int64{"blk.0.ffn_up.weight": {20, 32}, "blk.3.ffn_gate_exps.weight": {3, 10, 32}, "blk.1.ffn_down_exps.weight": {3, 32, 10},
		"blk.1.ffn_up_shexp.weight": {10, 32}, "blk.1.ffn_gate_inp.weight": {3, 32}, "blk.2.attn_q.weight": {16, 32}} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, want %v", name, x.Shape, want)
		}
	}
	// Row 4 of up of expert 2, column 5, is element (2, 5, 10 + 4) of the directory's tensor, which
	// has the shape (3, 32, 20).
	if _, up := tensorOf(t, f, "blk.1.ffn_up_exps.weight"); up[(2*10+4)*32+5] != value("model.layers.1.feed_forward.experts.gate_up_proj", (2*32+5)*20+14) {
		t.Error("up is not where it is to be")
	}
}

// TestExpertsCut: if a model file is truncated while experts are read from it, the error says so.
func TestExpertsCut(t *testing.T) {
	config := llama4Config(map[string]any{"no_rope_layers": []any{}, "attn_temperature_tuning": 4})
	dir := makeModel(t, config, tensorsFor(t, config), nil)
	f, _ := exportGGUF(t, dir, F16)
	experts, ok := f.Tensor("blk.1.ffn_gate_exps.weight")
	_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf"), Type: F16, Progress: func(done, _ int64) {
		if done >= f.Data+experts.Off {
			if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 1); err != nil {
				t.Error(err)
			}
		}
	}})
	if !ok || err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("cut before the experts: error %v", err)
	}
}

// TestExpertsRefused: a model with experts that llama.cpp would compute differently is an error
// that names the key.
func TestExpertsRefused(t *testing.T) {
	for _, tc := range []struct {
		config map[string]any
		want   string
	}{
		{glmConfig(map[string]any{"n_group": 2, "topk_group": 1}), "topk_group: 1 of 2 groups of experts are open: llama.cpp's glm4moe has no groups"},
		{sharedConfig(map[string]any{"model_type": "qwen2_moe", "num_experts": 3, "norm_topk_prob": true}), "norm_topk_prob: is true, but llama.cpp's qwen2moe never"},
		{afmoeConfig(map[string]any{"mup_enabled": false}), "mup_enabled: false, but llama.cpp's afmoe always multiplies embeddings"},
		{afmoeConfig(map[string]any{"global_attn_every_n_layers": 2}), "global_attn_every_n_layers: 2, but llama.cpp's afmoe"},
		{afmoeConfig(map[string]any{"layer_types": []any{"sliding_attention", "full_attention"}}), "layer_types: layer 1 is full_attention"},
		{llama4Config(map[string]any{"attention_chunk_size": 4096}), "attention_chunk_size: is 4096, but llama.cpp's llama4 takes it to be 8192"},
		{llama4Config(map[string]any{"attn_temperature_tuning": false}), "attn_temperature_tuning: is false, but"},
		{llama4Config(map[string]any{"floor_scale": 100}), "floor_scale: is 100, but"},
		{llama4Config(map[string]any{"attn_scale": 0.2}), "attn_scale: is 0.2, but"},
		{llama4Config(map[string]any{"use_qk_norm": false}), "use_qk_norm: is false, but"},
		{llama4Config(map[string]any{"num_local_experts": 128}), "use_qk_norm: is true, but"},
		{llama4Config(map[string]any{"no_rope_layers": []any{1, 0}}), "no_rope_layers: layer 1 has 0"},
		{llama4Config(map[string]any{"layer_types": []any{"chunked_attention", "full_attention"}}), "layer_types: layer 1 is full_attention"},
		{llama4Config(map[string]any{"moe_layers": []any{0}}), "moe_layers: layer 1: llama.cpp's llama4 has experts in every n-th layer"},
		{llama4Config(map[string]any{"moe_layers": []any{}}), "moe_layers: has no layer"},
	} {
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, tc.config, tensorsFor(t, tc.config), nil), Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

// TestTowers: of a model with a vision tower, only the language model is written. The file has
// llama.cpp's keys for the positions and layers that images use.
func TestTowers(t *testing.T) {
	for name, want := range map[string]struct {
		keys  map[string]any
		head  bool
		notes string // part of a note that the model must give; "": only the two general notes
	}{
		"mistral3": {map[string]any{"general.architecture": "llama", "llama.rope.dimension_count": 6, "llama.attention.sliding_window": 5}, false, "sliding window"},
		"ministral3": {map[string]any{"general.architecture": "mistral3", "mistral3.attention.temperature_scale": 0.7, "mistral3.rope.scaling.factor": 4,
			"mistral3.rope.scaling.original_context_length": 4}, true, ""},
		"qwen2vl":    {map[string]any{"general.architecture": "qwen2vl", "qwen2vl.rope.dimension_sections": []int32{1, 1, 0, 0}}, true, ""},
		"qwen25vl":   {map[string]any{"general.architecture": "qwen2vl", "qwen2vl.rope.scaling.factor": 4, "qwen2vl.rope.dimension_sections": []int32{1, 1, 0, 0}}, true, "sliding window"},
		"qwen3vl":    {map[string]any{"general.architecture": "qwen3vl", "qwen3vl.rope.dimension_sections": []int32{1, 1, 1, 0}, "qwen3vl.n_deepstack_layers": 1}, false, ""},
		"qwen3vlmoe": {map[string]any{"general.architecture": "qwen3vlmoe", "qwen3vlmoe.n_deepstack_layers": 1, "qwen3vlmoe.expert_count": 4}, true, ""},
	} {
		f, s := exportGGUF(t, filepath.Join("../../internal/run/testdata/recordings", name, "model"), F32)
		wantKeys(t, f, want.keys)
		head, tower := false, false
		for _, x := range f.Tensors {
			head, tower = head || x.Name == "output.weight", tower || strings.HasPrefix(x.Name, "v.")
		}
		if head != want.head || tower {
			t.Errorf("%s: a head: %t, a tower: %t", name, head, tower)
		}
		if got := strings.Join(s.Notes, " "); !strings.Contains(got, want.notes) || want.notes == "" && len(s.Notes) != 2 {
			t.Errorf("%s: notes %q", name, s.Notes)
		}
	}
}

// TestTemperRefused: llama_4_scaling_beta, which scales queries at late positions, is an error
// without yarn scaling. llama.cpp takes the length after which queries grow from yarn.
func TestTemperRefused(t *testing.T) {
	p := &plan{s: &settings{file: "c", vals: map[string]any{}}, family: &family{arch: "mistral3"},
		rope: rope{kind: "linear", params: &settings{vals: map[string]any{"llama_4_scaling_beta": 0.5}}}}
	if p.queryScaling(); p.s.err == nil || !strings.Contains(p.s.err.Error(), "llama_4_scaling_beta: 0.5, without yarn") {
		t.Error(p.s.err)
	}
	s := &settings{vals: map[string]any{"model_type": "ministral3", "rope_scaling": map[string]any{"type": "yarn", "rope_theta": 7.0}}}
	if _, err := findFamily(s); err != nil || s.readRope().theta != 7 {
		t.Errorf("%v, %v: the default goes before rope_scaling", s.vals, err)
	}
}

// TestStill: plan.still returns the rotary pairs of a head that llama.cpp would not rotate in text:
// two for the sections of published models, none for equal sections.
func TestStill(t *testing.T) {
	of := func(arch string, headDim int) *plan {
		none := &settings{vals: map[string]any{}}
		return &plan{family: &family{arch: arch}, s: none, rope: rope{params: none}, headDim: headDim}
	}
	for arch, want := range map[string][]int{"qwen3vl": {61, 62}, "qwen3vlmoe": {61, 62}, "qwen2vl": nil} {
		if got := of(arch, 128).still([]int32{24, 20, 20}); !slices.Equal(got, want) {
			t.Errorf("%s: %v", arch, got)
		}
		if got := of(arch, 24).still([]int32{4, 4, 4}); got != nil {
			t.Errorf("%s: %v of even sections", arch, got)
		}
		if got := of(arch, 16).still([]int32{2, 3, 3}); !slices.Equal(got, []int{6}) && want != nil {
			t.Errorf("%s: %v of fewer for the time", arch, got)
		}
	}
}

// kdaConfig is a config.json with KDA in two blocks of three, in the words of published files.
func kdaConfig(changes map[string]any) map[string]any {
	c := map[string]any{"architectures": []any{"KimiLinearForCausalLM"}, "model_type": "kimi_linear", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
		"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 6, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
		"v_head_dim": 8, "linear_attn_config": map[string]any{"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 3, "kda_layers": []any{1, 3},
			"full_attn_layers": []any{2}}, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 16, "model_max_length": 128}
	maps.Copy(c, changes)
	return c
}

// TestKDA: blocks with KDA have no heads of keys and values, a convolution has four dimensions, and the rates of decay
// are written themselves.
func TestKDA(t *testing.T) {
	config := kdaConfig(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "kimi-linear", "kimi-linear.kda.head_dim": 8, "kimi-linear.ssm.conv_kernel": 3,
		"kimi-linear.leading_dense_block_count": 1, "kimi-linear.expert_count": 4, "kimi-linear.expert_used_count": 2, "kimi-linear.expert_gating_func": 2,
		"kimi-linear.context_length": 128, "kimi-linear.attention.key_length": 10})
	for name, want := range map[string][]int64{"blk.0.ssm_conv1d_q.weight": {1, 32, 1, 3}, "blk.0.ssm_a": {4, 1}, "blk.0.ssm_dt.bias": {32},
		"blk.0.ffn_gate.weight": {48, 32}, "blk.2.ffn_gate_exps.weight": {4, 16, 32}, "blk.1.attn_k_b.weight": {4, 6, 8}, "blk.2.attn_output.weight": {32, 32}} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, want %v", name, x.Shape, want)
		}
	}
	x, got := tensorOf(t, f, "blk.0.ssm_a")
	if v := value("model.layers.0.self_attn.A_log", 2); x.Type != gguf.F32 || got[2] != float32(-math.Exp(float64(v))) {
		t.Errorf("a rate is %v as %v, and its logarithm %v", got[2], x.Type, v)
	}
	for want, changes := range map[string]map[string]any{
		"linear_num_heads: llama.cpp's kimi-linear has layers with KDA": {"linear_attn_config": map[string]any{"num_heads": 3, "head_dim": 8}},
		"q_lora_rank: 5": {"q_lora_rank": 5},
		"moe_renormalize: llama.cpp's kimi-linear has a shared expert": {"moe_renormalize": false},
		"mlp_layer_types: layer 2 is dense behind one with experts":    {"mlp_layer_types": []any{"dense", "sparse", "dense"}},
	} {
		config := kdaConfig(changes)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}
