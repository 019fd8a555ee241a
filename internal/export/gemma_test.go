package export

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
)

// gemma2 is the recorded model with the scale of scores that llama.cpp takes, and other keys.
func gemma2(t *testing.T, keys map[string]any) string {
	t.Helper()
	all := map[string]any{"query_pre_attn_scalar": 6}
	maps.Copy(all, keys)
	return recordedModel(t, "gemma2-capped", all)
}

// TestGemma2: the caps, the windows, the length of heads, and norms with 1 + w; no head, and none of Gemma 3's norms.
func TestGemma2(t *testing.T) {
	dir := gemma2(t, nil)
	f, s := exportGGUF(t, dir, F32)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma2", "gemma2.attention.sliding_window": 5, "gemma2.attention.sliding_window_pattern": 2,
		"gemma2.attn_logit_softcapping": 0.5, "gemma2.final_logit_softcapping": 1, "gemma2.attention.key_length": 6, "gemma2.attention.value_length": 6,
		"gemma2.attention.head_count_kv": 2, "gemma2.rope.freq_base": 10000})
	w, err := checkpoint.OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for from, to := range map[string]string{"layers.1.input_layernorm": "blk.1.attn_norm", "layers.1.post_attention_layernorm": "blk.1.post_attention_norm",
		"layers.0.pre_feedforward_layernorm": "blk.0.ffn_norm", "layers.2.post_feedforward_layernorm": "blk.2.post_ffw_norm", "norm": "output_norm"} {
		_, got := tensorOf(t, f, to+".weight")
		want := make([]float32, len(got))
		if err := w.Read("model."+from+".weight", 0, want); err != nil {
			t.Fatal(err)
		}
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
	exportGGUF(t, gemma2(t, map[string]any{"tie_word_embeddings": absent{}}), F32) // published models do not name it
	f, s = exportGGUF(t, gemma2(t, map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "full_attention"}}), F32)
	wantKeys(t, f, map[string]any{"gemma2.attention.sliding_window_pattern": 3})
	if !strings.Contains(strings.Join(s.Notes, " "), older) {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestGemma2Refused: what llama.cpp has no words for is named.
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

// TestGemma3WithoutWindows: where no layer has one, none is written.
func TestGemma3WithoutWindows(t *testing.T) {
	config := llamaConfig(map[string]any{"architectures": nil, "model_type": "gemma3_text", "query_pre_attn_scalar": 4, "layer_types": []any{"full_attention", "full_attention"}})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma3", "gemma3.attention.sliding_window": nil, "gemma3.attention.sliding_window_pattern": nil})
}

// gemma3 is a small model of the text class, with keys of the caller's.
func gemma3(t *testing.T, keys map[string]any) string {
	t.Helper()
	config := llamaConfig(map[string]any{"architectures": nil, "model_type": "gemma3_text", "query_pre_attn_scalar": 4, "sliding_window": 8})
	maps.Copy(config, keys)
	return makeModel(t, config, tensorsFor(t, config), nil)
}

// TestGemma3Caps: logits are capped, which Gemma 3's text class does; scores are not, whatever a key says, since no program heeds it.
func TestGemma3Caps(t *testing.T) {
	f, _ := exportGGUF(t, gemma3(t, map[string]any{"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}), F32)
	wantKeys(t, f, map[string]any{"gemma3.final_logit_softcapping": 30, "gemma3.attn_logit_softcapping": nil})
}

// TestGemma3Of27B: of 62 layers llama.cpp takes hidden_size / heads for the scale, as a whole number.
func TestGemma3Of27B(t *testing.T) {
	for layers, want := range map[int]string{61: "query_pre_attn_scalar: 5, but llama.cpp's gemma3 takes 4 from", 62: "query_pre_attn_scalar: 5, but llama.cpp's gemma3 takes 10 from"} {
		dir := gemma3(t, map[string]any{"num_hidden_layers": layers, "query_pre_attn_scalar": 5})
		_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d layers: got %v, want %s", layers, err, want)
		}
	}
}

// TestGemma3Windows: where layer_types are not given, a key with either spelling says which layers have full attention.
func TestGemma3Windows(t *testing.T) {
	for key, want := range map[string]int{"sliding_window_pattern": 2, "_sliding_window_pattern": 2, "initializer_range": 6} {
		f, _ := exportGGUF(t, gemma3(t, map[string]any{key: 2}), F32)
		wantKeys(t, f, map[string]any{"gemma3.attention.sliding_window_pattern": want})
	}
}

// TestActivations: llama.cpp knows the MLP's function by the architecture; of the two GELUs it has one.
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

// TestLlamaCppGemma2: llama.cpp itself computes what the reference does: of the recorded model, with its windows elsewhere, with linearly
// scaled positions, and of one with as many layers as that of 27B, whose scores have another scale. It looks GELU up, argument and value in half
// precision; where they are rounded so in the reference too, and none to the other side, the logits are within 1e-6, and within 7e-4 as they are here.
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

// deepGemma2 is the recorded model with its three layers in turns, 46 in all.
func deepGemma2(t *testing.T) string {
	t.Helper()
	dir := gemma2(t, nil)
	v, err := readJSON(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := v.(map[string]any)
	config["num_hidden_layers"], config["layer_types"], config["query_pre_attn_scalar"] = 46, nil, 4
	w, err := checkpoint.OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tensors, values := map[string]shape{}, map[string][]float32{}
	for _, x := range w.Tensors() {
		v := make([]float32, x.Elems())
		if err := w.Read(x.Name, 0, v); err != nil {
			t.Fatal(err)
		}
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
