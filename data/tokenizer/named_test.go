package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestNamed: for directories whose files contradict each other about added tokens, Load gives the
// tokens that Transformers gave. testdata/named.py recorded them.
func TestNamed(t *testing.T) {
	testkit.NotShort(t)
	text := testkit.Must(os.ReadFile("testdata/named.json"))(t)
	var dirs []struct {
		Name     string
		Files    map[string]string
		BOS, EOS int32
		Special  []int32
		Cases    []recorded
	}
	testkit.NoError(t, json.Unmarshal(text, &dirs))
	ids := map[string]string{}
	for _, d := range dirs {
		t.Run(d.Name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, d.Files)
			tok := testkit.Must(Load(dir, 256))(t)
			for _, c := range d.Cases {
				c.check(t, tok)
			}
			bos, _ := tok.BOS()
			if eos, _ := tok.EOS(); d.Name != "flags without a say" && (bos != d.BOS || eos != d.EOS) {
				t.Errorf("BOS %d and EOS %d, want %d and %d", bos, eos, d.BOS, d.EOS)
			}
			var special []int32
			for id := range int32(tok.VocabSize()) {
				if tok.IsSpecial(id) {
					special = append(special, id)
				}
			}
			if !slices.Equal(special, d.Special) {
				t.Errorf("special tokens are %d, want %d", special, d.Special)
			}
			if other, ok := ids[tok.ID()]; ok && d.Name != "a map alone" { // which encodes as another does
				t.Errorf("it has the ID of %q", other)
			}
			ids[tok.ID()] = d.Name
		})
	}
}

// TestNamedErrors: an invalid file beside tokenizer.json is an error that names the file. A token
// that has a name but no id in any file is ignored.
func TestNamedErrors(t *testing.T) {
	for _, tt := range []struct{ file, content, want string }{
		{"tokenizer_config.json", "{", "tokenizer_config.json: unexpected end"},
		{"tokenizer_config.json", `{"added_tokens_decoder": []}`, "tokenizer_config.json: added_tokens_decoder: json: cannot unmarshal array"},
		{"tokenizer_config.json", `{"added_tokens_decoder": {"x": {"content": "<t>"}}}`, `added_tokens_decoder: "x" is not an id`},
		{"tokenizer_config.json", `{"added_tokens_decoder": {"5000000": {"content": "<t>"}}}`, `the id of "<t>" is 5000000`},
		{"tokenizer_config.json", `{"pad_token": []}`, "tokenizer_config.json: pad_token: it is [], neither a string nor an object"},
		{"special_tokens_map.json", `{"bos_token": 3}`, "special_tokens_map.json: bos_token: it is 3"},
		{"special_tokens_map.json", `[]`, "special_tokens_map.json: not a JSON object, but a JSON array"},
		{"added_tokens.json", `{"<t>": "x"}`, `added_tokens.json: the id of "<t>" is "x"`},
		{"added_tokens.json", `{"<t>": -5}`, `added_tokens.json: the id of "<t>" is -5`},
		{"tokenizer_config.json", `{"pad_token": "<pad>", "extra_special_tokens": [3, "<new>"], "add_bos_token": true}`, ""},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"tokenizer.json": small(""), tt.file: tt.content})
		tok, err := Load(dir, 256)
		switch {
		case tt.want == "" && (err != nil || tok.VocabSize() != 6):
			t.Errorf("%s: %v", tt.content, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want one that says %q", tt.content, err, tt.want)
		}
	}
}

// TestName: Name makes other tokens the tokenizer's BOS, EOS and so on. It changes the files that
// name them, and creates tokenizer_config.json if no file does.
func TestName(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"all files": {"tokenizer_config.json": `{"eos_token": {"content": "<s>"}, "bos_token": "<s>", "added_tokens_decoder": {"5": {"content": "<s>", "special": true}, "6": {"content": "<t>", "special": true}}}`,
			"special_tokens_map.json": `{"eos_token": "<s>"}`},
		"none of them": {"config.json": `{"bos_token_id": 5, "eos_token_id": 5}`},
	} {
		files["tokenizer.json"] = small(`"added_tokens": [{"id": 5, "content": "<s>", "special": true}, {"id": 6, "content": "<t>", "special": true}]`)
		dir := t.TempDir()
		writeFiles(t, dir, files)
		was := testkit.Must(Load(dir, 256))(t)
		tok := testkit.Must(Name(was, map[string]string{"eos_token": "<t>", "pad_token": "<s>"}))(t)
		saved := t.TempDir()
		for name, text := range tok.Files() {
			writeFiles(t, saved, map[string]string{name: string(text)})
		}
		loaded := testkit.Must(Load(saved, 256))(t)
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

// TestEndsWith: EndsWith puts the token first in eos_token_id of generation_config.json, before the
// existing ids, and only once.
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
