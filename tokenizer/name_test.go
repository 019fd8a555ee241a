package tokenizer

import (
	"strings"
	"testing"
)

// TestName gives tokens other names, in files that are there and in one that is made.
func TestName(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"all files": {"tokenizer_config.json": `{"eos_token": {"content": "<s>"}, "bos_token": "<s>", "added_tokens_decoder": {"5": {"content": "<s>", "special": true}, "6": {"content": "<t>", "special": true}}}`,
			"special_tokens_map.json": `{"eos_token": "<s>"}`},
		"none of them": {"config.json": `{"bos_token_id": 5, "eos_token_id": 5}`},
	} {
		files["tokenizer.json"] = small(`"added_tokens": [{"id": 5, "content": "<s>", "special": true}, {"id": 6, "content": "<t>", "special": true}]`)
		dir := t.TempDir()
		writeFiles(t, dir, files)
		was, err := Load(dir, 256)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Name(was, map[string]string{"eos_token": "<t>", "pad_token": "<s>"})
		if err != nil {
			t.Fatal(err)
		}
		saved := t.TempDir()
		for name, text := range tok.Files() {
			writeFiles(t, saved, map[string]string{name: string(text)})
		}
		loaded, err := Load(saved, 256)
		if err != nil {
			t.Fatal(err)
		}
		for _, tok := range []Tokenizer{tok, loaded} {
			bos, _ := tok.BOS()
			if eos, _ := tok.EOS(); eos != 6 || bos != 5 {
				t.Errorf("%s: BOS %d, EOS %d, want 5 and 6", name, bos, eos)
			}
		}
		if tok.ID() != loaded.ID() || tok.ID() == was.ID() {
			t.Errorf("%s: IDs %s, %s and before %s", name, tok.ID(), loaded.ID(), was.ID())
		}
		if text := string(tok.Files()["tokenizer_config.json"]); !strings.Contains(text, `"pad_token": "<s>"`) {
			t.Errorf("%s: %s", name, text)
		}
		for key, token := range map[string]string{"eos_token": "<u>", "sep_token": "<s>"} {
			if _, err := Name(was, map[string]string{key: token}); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s %s: %v", key, token, err)
			}
		}
	}
}

// TestEndsWith puts a token before those that generation ends at.
func TestEndsWith(t *testing.T) {
	for text, want := range map[string]string{
		`{"top_k": 5}`:                      `{"eos_token_id":6,"top_k":5}`,
		`{"eos_token_id": 6}`:               `{"eos_token_id":6}`,
		`{"eos_token_id": 2, "a": [1,  2]}`: `{"a":[1,2],"eos_token_id":[6,2]}`,
		`{"eos_token_id": [1, 6, 2]}`:       `{"eos_token_id":[6,1,2]}`,
		`{"eos_token_id": null}`:            `{"eos_token_id":6}`,
	} {
		got, err := EndsWith([]byte(text), 6)
		if err != nil || compact(t, got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "[1]", `{"eos_token_id": "x"}`} {
		if _, err := EndsWith([]byte(text), 6); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}
