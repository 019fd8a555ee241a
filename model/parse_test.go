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

	"mt/internal/recordings"
)

func base() map[string]any {
	return map[string]any{
		"architectures": []any{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": 320, "hidden_size": 64,
		"intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
	}
}

// parse parses base with changes; a nil value removes the key.
func parse(t *testing.T, changes map[string]any) (*Config, error) {
	t.Helper()
	m := base()
	maps.Copy(m, changes)
	for k, v := range changes {
		if v == nil {
			delete(m, k)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig(raw, "dir/config.json")
}

// changed is changes that make base a config of the model type.
func changed(modelType string, changes map[string]any) map[string]any {
	m := map[string]any{"architectures": nil, "model_type": modelType}
	maps.Copy(m, changes)
	return m
}

func phiConfig(changes map[string]any) map[string]any { return changed("phi3", changes) }

var eights = []any{1, 1, 1, 1, 1, 1, 1, 1}

// isGemma: what Gemma 3 does unlike Llama, by default.
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
		{"mistral, no window", changed("mistral", map[string]any{"sliding_window": json.RawMessage("null")}),
			func(c *Config) bool { return c.Window(2) == 0 }},
		{"phi3", phiConfig(map[string]any{"partial_rotary_factor": 0.75, "rms_norm_eps": nil, "sliding_window": 5}), func(c *Config) bool {
			return c.Rotary(0) == 12 && c.Window(0) == 5 && c.RMSNormEps == 1e-5 && len(c.Layers()[1].Params[1].Stored) == 1
		}},
		{"phi3, its own original length goes first", phiConfig(map[string]any{"original_max_position_embeddings": 16,
			"rope_scaling": map[string]any{"type": "yarn", "original_max_position_embeddings": 99, "short_factor": eights, "long_factor": eights}}),
			func(c *Config) bool { return c.Rope.Type == "longrope" && c.Rope.OriginalMaxPositions == 16 }},
		{"yarn's length is max_position_embeddings by default", map[string]any{"rope_scaling": map[string]any{"type": "yarn", "factor": 2}},
			func(c *Config) bool { return c.Rope.OriginalMaxPositions == 2048 }},
		{"gemma3", changed("gemma3_text", map[string]any{"num_hidden_layers": 7}), isGemma},
		{"gemma3, pattern", changed("gemma3_text", map[string]any{"sliding_window_pattern": 2, "query_pre_attn_scalar": 16}), func(c *Config) bool {
			return c.Window(0) == 4096 && c.Window(1) == 0 && c.Window(2) == 4096 && c.AttnScale == 0.25
		}},
		{"gemma3, caps", changed("gemma3_text", map[string]any{"attn_logit_softcapping": 50, "final_logit_softcapping": 30.0}),
			func(c *Config) bool { return c.AttnSoftcap == 0 && c.LogitSoftcap == 30 }},
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

func TestParseRefuses(t *testing.T) {
	cases := []struct {
		changes map[string]any
		want    string // all of it, after the file's name
	}{
		{map[string]any{"architectures": []any{"GPT2LMHeadModel"}, "model_type": "gpt2"},
			"architectures: GPT2LMHeadModel is not supported; known: Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, " +
				"LlamaForCausalLM, MistralForCausalLM, Phi3ForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM; docs/adding-a-family.md in mt's sources shows how one more is added"},
		{map[string]any{"architectures": nil, "model_type": "gpt2"}, "model_type: gpt2 is not supported; known: "},
		{map[string]any{"architectures": nil, "model_type": nil}, "model_type: missing, and no architectures either"},
		{map[string]any{"model_type": "qwen2"}, `architectures: LlamaForCausalLM does not go with model_type "qwen2"`},
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
		{map[string]any{"hidden_act": "gelu"}, `hidden_act: "gelu" is not supported`},
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
		{map[string]any{"rope_scaling": "x"}, `rope_scaling: "x" is not a mapping`},
		{map[string]any{"rope_theta": 1e4, "rope_parameters": map[string]any{"rope_theta": 5e5}}, "rope_parameters: rope_theta is 500000 there and 10000 at the top level"},
		{map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.5}}, "rope_parameters: partial_rotary_factor: 0.5 is not supported"},
		{phiConfig(map[string]any{"partial_rotary_factor": 0.45}), "partial_rotary_factor: 0.45 turns 7 of a head's 16"},
		{phiConfig(map[string]any{"resid_pdrop": 0.1}), "resid_pdrop: 0.1: dropout"},
		{changed("mistral", map[string]any{"sliding_window": 8, "layer_types": []any{"full_attention", "sliding_attention", "sliding_attention"}}),
			"layer_types: this architecture has the sliding window in every layer"},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}), `layer_types: layer 1 is "sliding_attention", and there is no sliding window`},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention"}}), "layer_types: 1 of them for 3 layers"},
		{changed("qwen3", map[string]any{"layer_types": []any{"full_attention", "linear_attention", "full_attention"}}), `layer_types: layer 1 is "linear_attention"; known: full_attention, sliding_attention`},
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
		{changed("gemma3_text", map[string]any{"hidden_activation": "relu"}), `hidden_activation: "relu" is not supported; known: silu, gelu_pytorch_tanh`},
		{changed("gemma3", nil), "text_config: missing"},
		{changed("gemma3", map[string]any{"text_config": map[string]any{"hidden_size": "x"}}), `text_config: hidden_size: "x" is not a whole number`},
		{changed("qwen3_moe", map[string]any{"num_experts": 4, "num_experts_per_tok": 5}), "num_experts_per_tok: 5 of 4 experts"},
		{changed("qwen3_moe", map[string]any{"num_experts": 2000}), "num_experts: 2000 is out of range"},
		{changed("qwen3_moe", map[string]any{"num_experts": 8, "num_local_experts": 9}), "num_local_experts: 9, and num_experts is 8"},
		{changed("qwen3_moe", map[string]any{"mlp_only_layers": []any{3}}), "mlp_only_layers: 3 is not a number from 0 to 2"},
		{changed("qwen3_moe", map[string]any{"num_experts": 1024, "num_hidden_layers": 1000}), "num_experts: 1024 experts in 1000 layers"},
		{map[string]any{"layer_types": []any{"full_attention", "sliding_attention"}}, `layer_types: layer 1 is "sliding_attention"`},
		{map[string]any{"quantization_config": map[string]any{"bits": 4}}, "quantization_config: quantized weights"},
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

func TestJSONKeepsText(t *testing.T) {
	text := `{
    "zeta":   [1,  2], "vocab_size": 320,
    "torch_dtype": "float32", "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 4, "model_type": "llama", "unknown": {"dtype": "float32", "x": 1e-05}
}
`
	c, err := ParseConfig([]byte(text), "f")
	if err != nil {
		t.Fatal(err)
	}
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

func TestJSONOfInline(t *testing.T) {
	for _, name := range PresetNames() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		text := c.JSON("bfloat16")
		back, err := ParseConfig(text, name)
		if err != nil {
			t.Fatal(err)
		}
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("%s: got %+v, want %+v", name, back, c)
		}
	}
}

// TestJSONOfOptions: what an inline config says comes back from the config.json
// that is made of it.
func TestJSONOfOptions(t *testing.T) {
	yarn := map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2,
		"mscale": 0.7, "mscale_all_dim": 0.3, "truncate": false, "attention_factor": 1.5}
	for _, changes := range []map[string]any{
		{"attention_bias": true, "mlp_bias": true, "rope_theta": 123.5, "rope_scaling": yarn},
		{"rope_scaling": map[string]any{"type": "linear", "factor": 2.5}},
		{"rope_parameters": map[string]any{"rope_type": "dynamic", "factor": 2.5, "rope_theta": 77}},
		changed("mistral", map[string]any{"sliding_window": 7}),
		changed("qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1}),
		changed("qwen3", map[string]any{"use_sliding_window": true, "sliding_window": 9, "attention_bias": true,
			"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention"}}),
		phiConfig(map[string]any{"partial_rotary_factor": 0.75, "original_max_position_embeddings": 32, "sliding_window": 99,
			"rope_scaling": map[string]any{"type": "longrope", "short_factor": eights[:6], "long_factor": eights[:6], "factor": 3, "attention_factor": 1.25}}),
		phiConfig(map[string]any{"original_max_position_embeddings": 32, "rope_scaling": map[string]any{"type": "su", "short_factor": eights, "long_factor": eights}}),
		changed("gemma3_text", map[string]any{"num_hidden_layers": 7, "rope_local_base_freq": 5, "query_pre_attn_scalar": 40.5, "attention_bias": true,
			"attn_logit_softcapping": 5, "final_logit_softcapping": 6.5, "hidden_activation": "silu", "rope_scaling": map[string]any{"type": "linear", "factor": 8}}),
		changed("gemma3_text", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("gemma3_text", map[string]any{"sliding_window": 3, "layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("qwen3_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2, 0}, "norm_topk_prob": true,
			"decoder_sparse_step": 2, "moe_intermediate_size": 5, "output_router_logits": true, "router_aux_loss_coef": 0.5, "use_sliding_window": true}),
	} {
		m := base()
		maps.Copy(m, changes)
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

func TestFixtureConfigs(t *testing.T) {
	for _, of := range recordings.Cases(t) {
		name, dir := filepath.Base(of), filepath.Join(of, "model")
		c, err := LoadDir(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
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
	for _, name := range []string{"mistral-7b", "gemma3-4b", "phi4", "qwen3-30b-a3b", "qwen2.5-0.5b", "gpt-oss-20b", "deepseek-v3"} {
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
			if n != c.Params() || c.RopeElems(10) <= 0 || c.AttendedPairs(10) <= 0 {
				t.Fatalf("%d parameters in the table, %d counted; %d elements of rotary tables", n, c.Params(), c.RopeElems(10))
			}
		}
		if _, err := ParseConfig(c.JSON("bfloat16"), "f"); err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
	})
}
