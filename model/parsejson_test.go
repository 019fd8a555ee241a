package model

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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
	for _, name := range []string{"mistral-7b", "gemma3-4b", "phi4", "qwen3-30b-a3b", "qwen2.5-0.5b", "gpt-oss-20b", "deepseek-v3", "olmo2-7b", "olmo3-7b",
		"smollm3-3b", "granite3.1-8b", "glm4-9b", "mixtral-8x7b", "gpt2", "pythia-1b"} {
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
