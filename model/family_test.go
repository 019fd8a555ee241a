package model

import (
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// madeUp is a family like the example in docs/adding-a-family.md. It has other tensor names, one
// tensor for q, k and v, a sliding window in every second block, norms of outputs, and a key
// score_scale for the factor on scores.
var madeUp = family{
	arch: "MadeUpForCausalLM", modelType: "made_up",
	tensors: tensors{
		RoleQKV:          {"attn.qkv.weight"},
		RolePostAttnNorm: {"norms.1.weight"},
		RoleMLPNorm:      {"norms.2.weight"},
		RolePostMLPNorm:  {"norms.3.weight"},
	},
	defaults:   map[string]any{"max_position_embeddings": 77, "hidden_act": "gelu_pytorch_tanh"},
	localTheta: 300,
	partial:    true,
	keys:       []string{"score_scale", "sliding_window", "rope_local_base_freq", "partial_rotary_factor"},
	options: func(c *Config, f *fields) {
		c.SandwichNorms = true
		c.AttnScale = f.float("score_scale", 1, 1e-6, 10)
		c.windows(f, f.int("sliding_window", 6, 1, maxPositions), func(b int) bool { return b%2 == 0 })
	},
	write: func(c *Config, m map[string]any) {
		m["score_scale"], m["sliding_window"] = c.AttnScale, c.SlidingWindow
	},
}

// TestAddingAFamily: registering one family value is enough. mt then reads the family's config,
// names its tensors, and reads back the config.json that it writes. Keys of the family stay unknown
// in other families.
func TestAddingAFamily(t *testing.T) {
	withFamily(t, madeUp)
	m := maps.Clone(base())
	maps.Copy(m, map[string]any{"architectures": []any{"MadeUpForCausalLM"}, "model_type": "made_up", "score_scale": 0.5, "partial_rotary_factor": 0.5})
	c := testkit.Must(FromInline(m, "x"))(t)
	if c.AttnScale != 0.5 || c.Window(0) != 6 || c.Window(1) != 0 || c.Activation != GELUTanh || c.MaxPositions != 77 || c.Rotary(0) != 8 ||
		c.Ropes()[1].Theta != 300 {
		t.Errorf("got %+v", c)
	}
	var names []string
	for _, p := range c.Layers()[1].Params {
		for _, part := range p.Stored {
			names = append(names, strings.TrimPrefix(part.Name, "model.layers.0."))
		}
	}
	want := []string{"input_layernorm.weight", "attn.qkv.weight", "self_attn.o_proj.weight", "norms.1.weight", "norms.2.weight",
		"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "norms.3.weight"}
	if !slices.Equal(names, want) {
		t.Errorf("tensors %q", names)
	}
	if back, err := ParseConfig(c.JSON("float32"), "f"); err != nil || back.AttnScale != 0.5 || !slices.Equal(back.Sliding, c.Sliding) {
		t.Errorf("read back: %v", err)
	}
	if _, err := FromInline(map[string]any{"model_type": "llama", "score_scale": 1.0}, "x"); err == nil || !strings.Contains(err.Error(), "score_scale: unknown key") {
		t.Errorf("another family's key in a Llama: %v", err)
	}
}

// TestPrefixOfDirectory: LoadDir learns from the tensor names in the directory with which prefix
// the language model's tensors begin.
func TestPrefixOfDirectory(t *testing.T) {
	const config = `{"model_type": "gemma3", "text_config": {"hidden_size": 8, "num_hidden_layers": 1}}`
	safetensors := func(header string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	}
	for _, tc := range []struct {
		name, file string
		data       []byte
		want       string // the embedding's name, or what the error says
	}{
		{"no weights", "", nil, "language_model.model.embed_tokens.weight"},
		{"the Hub's, one file", "model.safetensors", safetensors(`{"language_model.model.norm.weight": {}}`), "language_model.model.embed_tokens.weight"},
		{"Transformers 5, one file", "model.safetensors", safetensors(`{"model.vision_tower.x": {}, "model.language_model.norm.weight": {}}`),
			"model.language_model.embed_tokens.weight"},
		{"Transformers 5, shards", "model.safetensors.index.json", []byte(`{"weight_map": {"model.language_model.norm.weight": "a"}}`),
			"model.language_model.embed_tokens.weight"},
		{"bad index", "model.safetensors.index.json", []byte(`{"weight_map": `), "model.safetensors.index.json: unexpected end of JSON input"},
		{"bad header", "model.safetensors", safetensors(`{"a": `), "model.safetensors: the header: unexpected end of JSON input"},
		{"not safetensors", "model.safetensors", []byte("version https://git-lfs"), "language_model.model.embed_tokens.weight"},
	} {
		dir := t.TempDir()
		write := func(name string, data []byte) {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		write("config.json", []byte(config))
		if tc.file != "" {
			write(tc.file, tc.data)
		}
		c, err := LoadDir(dir)
		switch {
		case err != nil && !strings.HasSuffix(err.Error(), tc.want):
			t.Errorf("%s: %v", tc.name, err)
		case err == nil && c.EmbedParam().Stored[0].Name != tc.want:
			t.Errorf("%s: %s", tc.name, c.EmbedParam().Stored[0].Name)
		}
	}
}

// TestInlineNestedFamily: an inline config cannot name a multimodal class. The error names the
// model_type of its language model.
func TestInlineNestedFamily(t *testing.T) {
	for whole, text := range map[string]string{"gemma3": "gemma3_text", "mistral3": "mistral", "llama4": "llama4_text", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
		"qwen3_vl_moe": "qwen3_moe", "kimi_k25": "deepseek_v3"} {
		_, err := FromInline(map[string]any{"model_type": whole}, "x")
		if err == nil || !strings.HasSuffix(err.Error(), "take model_type "+text) {
			t.Errorf("%s: got %v", whole, err)
		}
	}
}

// TestKnown: the error for a model of an unknown family lists all families that mt knows, and names
// the page on adding one.
func TestKnown(t *testing.T) {
	_, err := parse(t, map[string]any{"architectures": []any{"UnheardOfForCausalLM"}, "model_type": nil})
	if err == nil || !strings.HasSuffix(err.Error(), "known: "+allArchs()+addOne) {
		t.Fatalf("got %v", err)
	}
}

// TestDeepSeekRefuses: DeepSeek-V3 configs with sizes that multi-head latent attention cannot have
// are refused. The error names the key.
func TestDeepSeekRefuses(t *testing.T) {
	for key, tc := range map[string]struct {
		value any
		want  string
	}{
		"num_key_value_heads": {8, "num_key_value_heads: 8: latent attention has as many as num_attention_heads, 128"},
		"v_head_dim":          {4097, "v_head_dim: 4097 is out of range: 1 to 4096"},
		"qk_rope_head_dim":    {63, "qk_rope_head_dim: 63 must be even"},
		"qk_head_dim":         {64, "qk_head_dim: 64 is not qk_nope_head_dim and qk_rope_head_dim together, 192"},
		"kv_lora_rank":        {nil, "kv_lora_rank: missing"},
		"mlp_bias":            {true, "mlp_bias: unknown key"},
		"num_experts_per_tok": {99, "num_experts_per_tok: 99 is out of range: 1 to 32"},
	} {
		m := maps.Clone(presets["deepseek-v3"])
		m[key] = tc.value
		if _, err := FromInline(m, "x"); err == nil || !strings.HasPrefix(err.Error(), "x: "+tc.want) {
			t.Errorf("%s: got %v, want %s", key, err, tc.want)
		}
	}
}
