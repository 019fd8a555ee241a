package model

import (
	"encoding/json"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestResized: Resized changes the embedding table and the head. In the kept config.json it changes
// only vocab_size, at the top or in the language model's mapping.
func TestResized(t *testing.T) {
	const sizes = `"hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4`
	for _, tt := range []struct{ name, text, was, is string }{
		{"at the top", `{"model_type": "llama", "vocab_size":  320, ` + sizes + `, "x": {"vocab_size": 320}}`, `"vocab_size":  320,`, `"vocab_size":  384,`},
		{"in the language model's part", `{"model_type": "gemma3", "text_config": {` + sizes + `, "vocab_size": 320}, "x": 1}`, `"vocab_size": 320}`, `"vocab_size": 384}`},
		{"in both", `{"model_type": "gemma3", "vocab_size": 320, "text_config": {` + sizes + `, "vocab_size": 320}}`, `"vocab_size": 320`, `"vocab_size": 384`},
		{"at the top, where another model has a part", `{"model_type": "qwen2_5_vl", "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 4, ` + sizes + `}`,
			`"vocab_size": 320`, `"vocab_size": 384`},
		{"at the top, where it is left out", `{"model_type": "qwen2_vl", "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 4, ` + sizes + `}`,
			`"model_type"`, "\n  \"vocab_size\": 384,\"model_type\""},
		{"at the top, and no part", `{"model_type": "qwen2_vl", "text_config": null, "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 4, ` + sizes + `}`,
			`"vocab_size": 320`, `"vocab_size": 384`},
		{"nowhere", `{"model_type": "gemma3", "text_config": {` + sizes + `}}`, `"text_config": {`, "\"text_config\": {\n  \"vocab_size\": 384,"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseConfig([]byte(tt.text), "f")
			testkit.NoError(t, err)
			was := c.VocabSize
			big := c.Resized(384)
			want := strings.ReplaceAll(string(c.JSON("float32")), tt.was, tt.is)
			if got := string(big.JSON("float32")); got != want || !json.Valid([]byte(got)) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			back, err := ParseConfig(big.JSON("float32"), "f")
			if err != nil || back.VocabSize != 384 || back.EmbedParam().Rows != 384 {
				t.Errorf("read again: %+v, %v", back, err)
			}
			if c.VocabSize != was || string(c.JSON("float32")) == want {
				t.Error("the original has changed")
			}
		})
	}
	c := testkit.Must(FromInline(map[string]any{"preset": "tiny"}, "x"))(t)
	if back, err := ParseConfig(c.Resized(300).JSON("float32"), "f"); err != nil || back.VocabSize != 300 {
		t.Errorf("inline: %+v, %v", back, err)
	}
}
