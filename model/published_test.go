package model

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestOneReadingOfRope: a key of the rotary embedding has the same effect in rope_scaling and
// rope_parameters. If it is also at the top of the config, the same one takes precedence as in
// Transformers.
func TestOneReadingOfRope(t *testing.T) {
	pairs := []any{1, 1, 1, 1, 1, 1, 1, 1}
	for name, rope := range map[string]map[string]any{
		"llama3":   {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4},
		"yarn":     {"rope_type": "yarn", "factor": 4, "beta_fast": 16},
		"longrope": {"rope_type": "longrope", "short_factor": pairs, "long_factor": pairs},
	} {
		for _, key := range []string{"rope_scaling", "rope_parameters"} {
			read := func(top, inside any) Rope {
				t.Helper()
				m := maps.Clone(rope)
				if inside != nil {
					m["original_max_position_embeddings"] = inside
				}
				c, err := parse(t, map[string]any{key: m, "original_max_position_embeddings": top, "rope_theta": 777.0})
				if err != nil {
					t.Fatalf("%s, %s: %v", name, key, err)
				}
				return c.Rope
			}
			inside := read(nil, 16)
			if inside.OriginalMaxPositions != 16 || inside.Theta != 777 {
				t.Errorf("%s, %s: %+v", name, key, inside)
			}
			if outside := read(16, nil); !reflect.DeepEqual(outside, inside) {
				t.Errorf("%s, %s: at the top %+v, inside %+v", name, key, outside, inside)
			}
			if both := read(16, 99); !reflect.DeepEqual(both, inside) {
				t.Errorf("%s, %s: where both are given %+v, want %+v", name, key, both, inside)
			}
		}
	}
}

// TestRopeOfFamilies: the original length of a rotary embedding is read with the precedence of
// Transformers also in special families: with a default of their own, with scaled queries, and with
// a mapping per layer type.
func TestRopeOfFamilies(t *testing.T) {
	pairs := []any{1, 1, 1, 1, 1, 1, 1, 1}
	longrope := map[string]any{"rope_type": "longrope", "rope_theta": 1e4, "short_factor": pairs, "long_factor": pairs}
	with := func(of map[string]any, key string, v any) map[string]any {
		m := maps.Clone(of)
		m[key] = v
		return m
	}
	const length = "original_max_position_embeddings"
	yarn := map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "llama_4_scaling_beta": 0.5}
	mscales := with(with(longrope, "short_mscale", 1.5), "long_mscale", 1.25)
	for name, tc := range map[string]struct {
		changes map[string]any
		want    func(c *Config) bool
	}{
		"phi3's default":         {changed("phi3", map[string]any{"rope_parameters": longrope}), func(c *Config) bool { return c.Rope.OriginalMaxPositions == 4096 }},
		"phi3, at the top":       {changed("phi3", map[string]any{"rope_parameters": with(longrope, length, 9), length: 7}), func(c *Config) bool { return c.Rope.OriginalMaxPositions == 7 }},
		"phimoe, in the mapping": {changed("phimoe", map[string]any{"vocab_size": 32064, "rope_parameters": with(mscales, length, 9), length: 7}), func(c *Config) bool { return c.Rope.OriginalMaxPositions == 9 }},
		"phimoe, at the top":     {changed("phimoe", map[string]any{"vocab_size": 32064, "rope_scaling": mscales, length: 7}), func(c *Config) bool { return c.Rope.OriginalMaxPositions == 7 }},
		"ministral3": {changed("ministral3", map[string]any{"pad_token_id": 0, "rope_parameters": yarn, length: 7}),
			func(c *Config) bool { return c.QueryScaling.Every == 7 && c.Rope.OriginalMaxPositions == 7 }},
		"one for each type of layer": {changed("olmo3", map[string]any{length: 7, "num_hidden_layers": 4, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "yarn", "factor": 2, length: 9}, "sliding_attention": map[string]any{}}}),
			func(c *Config) bool { return c.Rope.OriginalMaxPositions == 9 }},
		"an empty older mapping": {map[string]any{"rope_scaling": map[string]any{}, "rope_parameters": with(yarn, length, 9)}, func(c *Config) bool { return c.Rope.Type == "yarn" }},
		"a share at the top": {changed("glm4", map[string]any{"partial_rotary_factor": 0.25, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5.0}}),
			func(c *Config) bool { return c.Rope.Partial == 0.25 && c.Rope.Theta == 5 }},
	} {
		c, err := parse(t, tc.changes)
		if err != nil || !tc.want(c) {
			t.Errorf("%s: %+v, %v", name, c.Rope, err)
		}
	}
}

// TestNonFinite: NaN and infinities are read in the spellings of Python and Transformers and are
// saved unchanged. They are refused in keys that mt uses.
func TestNonFinite(t *testing.T) {
	for _, word := range []string{"NaN", "Infinity", "-Infinity", `{"__float__": "Infinity"}`, `{"__float__": "NaN"}`} {
		put := func(key string) string {
			return strings.Replace(published, `"vocab_size"`, `"`+key+`": `+word+`, "vocab_size"`, 1)
		}
		for _, key := range []string{"time_step_limit", "classifier_dropout", "note\": \"Infinity\", \"unused"} {
			text := put(key)
			c, err := ParseConfig([]byte(text), "f")
			if err != nil {
				t.Errorf("%s: %s: %v", word, key, err)
				continue
			}
			if out := string(c.Resized(400).JSON("float32")); !strings.Contains(out, `": `+word+`, "vocab_size": 400`) {
				t.Errorf("%s: saved as %s", word, out)
			}
		}
		for key, want := range map[string]string{"rope_theta": "out of range", "max_position_embeddings": " is ", "attention_bias": "is not true or false", "mlp_bias": "not true or false"} {
			if _, err := ParseConfig([]byte(put(key)), "f"); err == nil || !strings.HasPrefix(err.Error(), "f: "+key+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %s: %v", word, key, err)
			}
		}
	}
	if _, vals, err := scanObject([]byte(`{"a": [NaN, {"b": -Infinity}], "c": "NaN"}`)); err != nil || vals["c"] != "NaN" || !math.IsNaN(vals["a"].([]any)[0].(float64)) ||
		vals["a"].([]any)[1].(map[string]any)["b"] != math.Inf(-1) {
		t.Errorf("%v, %v", vals, err)
	}
}

// published is a small valid config.json.
const published = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 176,
	"num_hidden_layers": 1, "num_attention_heads": 4}`

// TestClasses: if architectures names an unknown class, model_type decides. A class of another
// known family is refused. Errors stay short even if architectures is long.
func TestClasses(t *testing.T) {
	many := make([]any, 100000)
	for i := range many {
		many[i] = "SomeLongNameOfAClass"
	}
	for _, tc := range []struct {
		archs     []any
		modelType any
		want      string // the class, or what the error says
	}{
		{[]any{"LlamaModel"}, "llama", "LlamaForCausalLM"},
		{[]any{"Qwen2Model"}, "qwen2", "Qwen2ForCausalLM"},
		{[]any{"OurOwnModelForChat"}, "mistral", "MistralForCausalLM"},
		{[]any{"Qwen3ForSequenceClassification", "Qwen3Model"}, "qwen3", "Qwen3ForCausalLM"},
		{[]any{"LlamaForCausalLM", "LlamaModel"}, "llama", "LlamaForCausalLM"},
		{[]any{"LlamaForCausalLM"}, nil, "LlamaForCausalLM"},
		{[]any{}, "granite", "GraniteForCausalLM"},
		{[]any{"MistralForCausalLM"}, "llama", `architectures: MistralForCausalLM does not go with model_type "llama"`},
		{[]any{"LlamaModel"}, "unheard_of", "architectures: LlamaModel is not supported"},
		{[]any{"LlamaModel"}, nil, "architectures: LlamaModel is not supported"},
		{many, "unheard_of", "architectures: SomeLongNameOfAClass, "},
	} {
		c, err := parse(t, map[string]any{"architectures": tc.archs, "model_type": tc.modelType})
		switch {
		case err != nil && (!strings.HasPrefix(err.Error(), "dir/config.json: "+tc.want) || len(err.Error()) > 3000):
			t.Errorf("%.60v, %v: %.300v", tc.archs, tc.modelType, err)
		case err == nil && c.Arch != tc.want:
			t.Errorf("%v, %v: %s", tc.archs, tc.modelType, c.Arch)
		case err == nil && (c.Class != "") != (len(tc.archs) > 0 && tc.archs[0] != tc.want):
			t.Errorf("%v: the class is %q", tc.archs, c.Class)
		}
	}
}

// TestNamesOfBaseClasses: tensors are found in files saved from a base class, whose names lack the
// first words that the class with a head has.
func TestNamesOfBaseClasses(t *testing.T) {
	names := func(all ...string) []byte {
		header := map[string]any{}
		for _, n := range all {
			header[n] = map[string]any{}
		}
		text, _ := json.Marshal(header)
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	}
	neox := `{"model_type": "gpt_neox", "vocab_size": 99, "hidden_size": 16, "intermediate_size": 9, "num_hidden_layers": 1, "num_attention_heads": 2}`
	tower := `{"model_type": "gemma3", "text_config": {"hidden_size": 8, "num_hidden_layers": 1}}`
	for _, tc := range []struct {
		config, embedding, head string // the names that are wanted
		stored                  []string
	}{
		{published, "embed_tokens.weight", "lm_head.weight", []string{"embed_tokens.weight", "norm.weight"}},
		{published, "embed_tokens.weight", "lm_head.weight", []string{"embed_tokens.weight", "lm_head.weight"}},
		{published, "model.embed_tokens.weight", "lm_head.weight", []string{"model.embed_tokens.weight", "embed_tokens.weight"}},
		{published, "model.embed_tokens.weight", "lm_head.weight", []string{"norm.weight"}},
		{neox, "embed_in.weight", "embed_out.weight", []string{"embed_in.weight", "layers.0.attention.bias"}},
		{neox, "embed_in.weight", "lm_head.weight", []string{"embed_in.weight", "lm_head.weight"}},
		{tower, "language_model.embed_tokens.weight", "lm_head.weight", []string{"language_model.embed_tokens.weight", "vision_tower.x"}},
		{tower, "model.embed_tokens.weight", "language_model.lm_head.weight", []string{"model.embed_tokens.weight"}},
	} {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"config.json": []byte(tc.config), "model.safetensors": names(tc.stored...)} {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		c := testkit.Must(LoadDir(dir))(t)
		if got, head := c.EmbedParam().Stored[0].Name, c.names().head+"weight"; got != tc.embedding || head != tc.head {
			t.Errorf("%q: %s and %s, want %s and %s", tc.stored, got, head, tc.embedding, tc.head)
		}
	}
}
