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
		{"theta 4", map[string]any{"rope_theta": 5e5}, func(c *Config) bool { return c.Rope == Rope{Type: "default", Theta: 5e5} }},
		{"theta 5", map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5e5}},
			func(c *Config) bool { return c.Rope == Rope{Type: "default", Theta: 5e5} }},
		{"llama3 4, type", map[string]any{"rope_theta": 5e5, "rope_scaling": with("type", "llama3")}, func(c *Config) bool { return c.Rope == llama3 }},
		{"llama3 4", map[string]any{"rope_theta": 5e5, "rope_scaling": with("rope_type", "llama3")}, func(c *Config) bool { return c.Rope == llama3 }},
		{"llama3 5", map[string]any{"rope_parameters": with("rope_type", "llama3", "rope_theta", 5e5)}, func(c *Config) bool { return c.Rope == llama3 }},
		{"both", map[string]any{"rope_theta": 5e5, "rope_scaling": with("rope_type", "llama3"), "rope_parameters": with("rope_type", "llama3", "rope_theta", 5e5)},
			func(c *Config) bool { return c.Rope == llama3 }},
		{"eos list", map[string]any{"eos_token_id": []any{7, 9}, "bos_token_id": 1, "pad_token_id": -1},
			func(c *Config) bool {
				return reflect.DeepEqual(c.EOS, []int{7, 9}) && reflect.DeepEqual(c.BOS, []int{1}) && c.PAD == nil
			}},
		{"llama biases", map[string]any{"attention_bias": true, "mlp_bias": true}, func(c *Config) bool { return c.QKVBias && c.OBias && c.MLPBias && !c.QKNorm }},
		{"qwen2", map[string]any{"architectures": []any{"Qwen2ForCausalLM"}, "model_type": "qwen2", "use_sliding_window": false, "sliding_window": 4096},
			func(c *Config) bool { return c.QKVBias && !c.OBias && !c.MLPBias && !c.QKNorm && c.HeadDim == 16 }},
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
		{map[string]any{"architectures": []any{"MistralForCausalLM"}, "model_type": "mistral"},
			"architectures: MistralForCausalLM is not supported; known: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"},
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
		{map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2}}, `rope_scaling: rope_type: "linear" is not supported; known: default, llama3`},
		{map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn"}}, `rope_parameters: rope_type: "yarn" is not supported`},
		{map[string]any{"rope_scaling": map[string]any{"type": "llama3", "factor": 2}}, "rope_scaling: low_freq_factor: missing"},
		{map[string]any{"rope_scaling": "x"}, `rope_scaling: "x" is not a mapping`},
		{map[string]any{"rope_theta": 1e4, "rope_parameters": map[string]any{"rope_theta": 5e5}}, "rope_parameters: rope_theta is 500000 there and 10000 at the top level"},
		{map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.5}}, "rope_parameters: partial_rotary_factor: 0.5 is not supported"},
		{map[string]any{"architectures": nil, "model_type": "qwen2", "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2}, "use_sliding_window: attention with a sliding window (9)"},
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

func TestFixtureConfigs(t *testing.T) {
	files, _ := filepath.Glob("../../shared/fixtures/*/model/config.json")
	if len(files) == 0 {
		t.Skip("../shared/fixtures is not here")
	}
	supported := map[string]bool{"llama-plain": true, "llama-mha-tied": true, "llama-rope3": true, "llama-headdim": true,
		"llama-bias": true, "qwen2-tied": true, "qwen3-plain": true}
	for _, f := range files {
		dir := filepath.Dir(f)
		name := filepath.Base(filepath.Dir(dir))
		c, err := LoadDir(dir)
		if ok := err == nil; ok != supported[name] {
			t.Errorf("%s: %v", name, err)
		} else if ok {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(c.JSON("float32"), raw) {
				t.Errorf("%s: text is not kept", name)
			}
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"model_type": "llama", "vocab_size": 3, "rope_scaling": {"type": "llama3"}}`))
	f.Add([]byte(`{"a": [1, {"b": null}]}`))
	f.Add((&Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 4, HiddenSize: 8, IntermediateSize: 8, NumLayers: 1,
		NumHeads: 2, NumKVHeads: 1, HeadDim: 4, MaxPositions: 8, Rope: Rope{Type: "default", Theta: 1e4}}).JSON("float32"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseConfig(raw, "f")
		if err != nil {
			return
		}
		if c.Params() <= 0 || c.MatrixParams() <= 0 {
			t.Fatalf("%d parameters, %d in matrices", c.Params(), c.MatrixParams())
		}
		if _, err := ParseConfig(c.JSON("bfloat16"), "f"); err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
	})
}
