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
		changed("smollm3", map[string]any{"no_rope_layers": []any{0, 1, 0}, "use_sliding_window": true, "sliding_window": 7, "mlp_bias": true, "attention_bias": true}),
		changed("smollm3", map[string]any{"no_rope_layer_interval": 9, "tie_word_embeddings": false}),
		changed("granite", map[string]any{"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 49.0123456, "mlp_bias": true}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "shared_intermediate_size": 99, "position_embedding_type": "rope", "layer_types": []any{"attention", "attention", "attention"}}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "intermediate_size": 99, "shared_intermediate_size": 99, "layer_types": []any{"attention", "attention", "attention"}}),
		changed("glm4", map[string]any{"attention_bias": false, "partial_rotary_factor": 1}),
		changed("glm4", nil),
		changed("glm", map[string]any{"attention_bias": false}),
		changed("ernie4_5", map[string]any{"use_bias": true, "tie_word_embeddings": false}),
		changed("seed_oss", map[string]any{"attention_dropout": 0, "residual_dropout": 0, "attention_out_bias": true, "mlp_bias": true}),
		changed("exaone4", map[string]any{"sliding_window": 8, "sliding_window_pattern": 2}),
		changed("exaone4", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("exaone4", map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("olmo2", map[string]any{"attention_bias": true}),
		changed("olmo3", map[string]any{"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_theta": 1e4}, "sliding_attention": map[string]any{"rope_theta": 1e4}}}),
		changed("olmo3", map[string]any{"sliding_window": 3, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "linear", "factor": 8}, "sliding_attention": map[string]any{"rope_theta": 5e3}}}),
		changed("qwen3_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2, 0}, "norm_topk_prob": true,
			"decoder_sparse_step": 2, "moe_intermediate_size": 5, "output_router_logits": true, "router_aux_loss_coef": 0.5, "use_sliding_window": true}),
		changed("gpt_oss", map[string]any{"num_local_experts": 6, "num_experts_per_tok": 3, "swiglu_limit": 3.5, "swiglu_alpha": 1.5, "output_router_logits": true,
			"router_aux_loss_coef": 0.25, "sliding_window": 9}),
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
