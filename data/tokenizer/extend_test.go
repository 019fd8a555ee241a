package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// extended extends tok. It returns the result, the tokenizer that Load makes of the result's files,
// and the list of added tokens.
func extended(t *testing.T, tok Tokenizer, plain, special []string) (Tokenizer, Tokenizer, []NewToken) {
	t.Helper()
	out, asked, err := Extend(tok, plain, special)
	testkit.NoError(t, err)
	dir := t.TempDir()
	for name, text := range out.Files() {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	loaded, err := Load(dir, 256)
	testkit.NoError(t, err)
	return out, loaded, asked
}

func encode(t *testing.T, tok Tokenizer, text string) []int32 {
	t.Helper()
	ids := testkit.Must(tok.Encode(nil, []byte(text)))(t)
	return ids
}

// TestExtend: Extend adds a new token, a token of the vocabulary, a token that is added already,
// and one that becomes special. Each has the right id, and the files describe all of them.
func TestExtend(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"tokenizer.json": small(`"added_tokens": [{"id": 5, "content": "<s>", "special": true}, {"id": 6, "content": "<t>", "lstrip": true}], "other": [1, {"x":  2}]`),
		"tokenizer_config.json": `{"eos_token": "<s>", "added_tokens_decoder": {"5": {"content": "<s>", "special": true}, "6": {"content": "<t>", "lstrip": true},
			"7": {"content": "<u>", "rstrip": true}}, "additional_special_tokens": ["<s>"]}`,
		"special_tokens_map.json": `{"eos_token": "<s>"}`,
		"added_tokens.json":       `{"<s>": 5}`,
	})
	was := testkit.Must(Load(dir, 256))(t)
	tok, loaded, asked := extended(t, was, []string{"b", "<s>", "<new>", "<new>"}, []string{"<t>", "<sp\"é>"})
	want := []NewToken{{"b", 1, true}, {"<s>", 5, true}, {"<new>", 8, false}, {"<t>", 6, true}, {"<sp\"é>", 9, false}}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
	if was.VocabSize() != 8 || tok.VocabSize() != 10 || tok.ID() == was.ID() {
		t.Errorf("sizes %d and %d, IDs %s and %s", was.VocabSize(), tok.VocabSize(), was.ID(), tok.ID())
	}
	if tok.ID() != loaded.ID() {
		t.Errorf("read again it is another: %s, %s", tok.ID(), loaded.ID())
	}
	for _, tok := range []Tokenizer{tok, loaded} {
		if got, want := encode(t, tok, "a<new>b <t><u><sp\"é>ab<s>"), []int32{0, 8, 1, 3, 6, 7, 9, 0, 1, 5}; !slices.Equal(got, want) { // "ab" is cut: b is found in the text
			t.Errorf("encoded as %d, want %d", got, want)
		}
		if got := string(tok.Decode([]int32{0, 8, 9, 6, 5, 1})); got != "a<new>b" {
			t.Errorf("decoded as %q", got)
		}
		if eos, ok := tok.EOS(); !ok || eos != 5 {
			t.Errorf("EOS %d", eos)
		}
	}
	for name, want := range map[string]string{
		"special_tokens_map.json": `{"additional_special_tokens":["<t>","<sp\"é>"],"eos_token":"<s>"}`,
		"added_tokens.json":       `{"<new>":8,"<s>":5,"<sp\"é>":9,"<t>":6}`,
		"tokenizer_config.json": `{"added_tokens_decoder":{"1":{"content":"b","lstrip":false,"normalized":true,"rstrip":false,"single_word":false,"special":false},` +
			`"5":{"content":"<s>","special":true},"6":{"content":"<t>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":true},` +
			`"7":{"content":"<u>","rstrip":true},"8":{"content":"<new>","lstrip":false,"normalized":true,"rstrip":false,"single_word":false,"special":false},` +
			`"9":{"content":"<sp\"é>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":true}},` +
			`"additional_special_tokens":["<s>","<t>","<sp\"é>"],"eos_token":"<s>"}`,
	} {
		if got := compact(t, tok.Files()[name]); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	if got, want := compact(t, tok.Files()["tokenizer.json"]), `{"content":"<u>","id":7,"lstrip":false,"normalized":false,"rstrip":true,"single_word":false,"special":false},{"content":"b","id":1,`; !strings.Contains(got, want) {
		t.Errorf("tokenizer.json has not %s:\n%s", want, got)
	}
	if text := string(tok.Files()["tokenizer.json"]); !strings.Contains(text, `"other": [1,{"x":2}]`) || strings.Contains(text, "\\u00e9") {
		t.Errorf("tokenizer.json is not as it was otherwise:\n%s", text)
	}
	if again, asked, err := Extend(tok, []string{"b", "<new>"}, []string{"<sp\"é>"}); again != tok || len(asked) != 3 || err != nil {
		t.Errorf("a second time: %v, %+v, %v", again == tok, asked, err)
	}
}

// compact returns the JSON text with sorted keys on one line, for comparison.
func compact(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return strings.TrimSpace(strings.Join(strings.Fields(string(marshal(t, v))), " "))
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	testkit.NoError(t, e.Encode(v))
	return []byte(b.String())
}

// TestExtendFiles: Extend leaves a file unchanged, byte for byte, if the file says nothing about
// added tokens, and creates no file.
func TestExtendFiles(t *testing.T) {
	for _, tt := range []struct {
		name, config, want string
		special            []string
	}{
		{"nothing to say", "{\"eos_token\":  \"<s>\"}", "{\"eos_token\":  \"<s>\"}", nil},
		{"a list to begin", `{"eos_token": "<s>"}`, `{"additional_special_tokens":["<n>"],"eos_token":"<s>"}`, []string{"<n>"}},
		{"Transformers 5's list", `{"extra_special_tokens": []}`, `{"extra_special_tokens":["<n>"]}`, []string{"<n>"}},
		{"tokens by name", `{"extra_special_tokens": {"x": "<s>"}}`, `{"additional_special_tokens":["<n>"],"extra_special_tokens":{"x":"<s>"}}`, []string{"<n>"}},
		{"an id that does not count", `{"added_tokens_decoder": {"30": {"content": "<g>"}}}`, `{"added_tokens_decoder":{"30":{"content":"<g>","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":true},` +
			`"7":{"content":"<x>","lstrip":false,"normalized":true,"rstrip":false,"single_word":false,"special":false}},"additional_special_tokens":["<g>"]}`, []string{"<g>"}},
		{"an empty list of ids", `{"added_tokens_decoder": null}`, `{"added_tokens_decoder":{"6":{"content":"<x>","lstrip":false,"normalized":true,"rstrip":false,"single_word":false,"special":false}}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": tt.config})
			was := testkit.Must(Load(dir, 256))(t)
			tok, loaded, _ := extended(t, was, []string{"<x>"}, tt.special)
			got := string(tok.Files()["tokenizer_config.json"])
			if got != tt.want && compact(t, []byte(got)) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !slices.Equal(slices.Sorted(maps.Keys(tok.Files())), []string{"tokenizer.json", "tokenizer_config.json"}) || tok.ID() != loaded.ID() {
				t.Errorf("files %v, IDs %s and %s", slices.Collect(maps.Keys(tok.Files())), tok.ID(), loaded.ID())
			}
		})
	}
}

// TestExtendBytes: the byte vocabulary with added tokens still encodes all other text in the same
// way.
func TestExtendBytes(t *testing.T) {
	tok, loaded, asked := extended(t, Bytes(), []string{"<x>"}, []string{"<|im_start|>", "<|im_end|>"})
	if want := []NewToken{{"<x>", 256, false}, {"<|im_start|>", 257, false}, {"<|im_end|>", 258, false}}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %+v", asked)
	}
	for _, tok := range []Tokenizer{tok, loaded} {
		text := "né\r\n\x01 z𝄞<|endoftext|><|im|>"
		if got, want := encode(t, tok, text), encode(t, Bytes(), text); !slices.Equal(got, want) {
			t.Errorf("encoded as %d, want %d", got, want)
		}
		ids := encode(t, tok, "a<|im_end|>\n<x>é")
		if want := []int32{'a', 258, '\n', 256, 0xc3, 0xa9}; !slices.Equal(ids, want) {
			t.Errorf("encoded as %d, want %d", ids, want)
		}
		if got := string(tok.DecodeSpecial(ids)); got != "a<|im_end|>\n<x>é" {
			t.Errorf("decoded as %q", got)
		}
		if got := string(tok.Decode(ids)); got != "a\n<x>é" {
			t.Errorf("decoded as %q", got)
		}
		if eos, ok := tok.EOS(); !ok || eos != 0 {
			t.Errorf("EOS %d, %v", eos, ok)
		}
	}
	if same, _, err := Extend(Bytes(), nil, []string{EndOfText}); same != Bytes() || err != nil {
		t.Errorf("%v, %v", same, err)
	}
}

// TestExtendKeepsEnds: if config.json names EOS, and the tokenizer's own files do not, the extended
// tokenizer keeps this EOS.
func TestExtendKeepsEnds(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"tokenizer.json": small(""), "config.json": `{"eos_token_id": 5, "bos_token_id": 1}`})
	was, err := Load(dir, 256)
	testkit.NoError(t, err)
	tok, _, err := Extend(was, []string{"<x>"}, nil)
	testkit.NoError(t, err)
	bos, _ := tok.BOS()
	if eos, ok := tok.EOS(); !ok || eos != 5 || bos != 1 {
		t.Errorf("BOS %d, EOS %d", bos, eos)
	}
}

// TestExtendGaps: if the ids have gaps, Transformers would give a new token the id of another
// token. Extend then returns an error.
func TestExtendGaps(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"tokenizer.json": small(`"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 2}, "merges": []}`)})
	was := testkit.Must(Load(dir, 256))(t)
	if _, _, err := Extend(was, []string{"<x>"}, nil); err == nil || !strings.Contains(err.Error(), `gaps: id 2, which is "b"`) {
		t.Errorf("got %v", err)
	}
}

func TestCheckToken(t *testing.T) {
	for content, want := range map[string]string{
		"<x>": "", " ": "", "é": "",
		"":                       "empty",
		"\xff":                   "not UTF-8",
		strings.Repeat("x", 513): "513 bytes long; at most 512",
	} {
		err := CheckToken(content)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v", content, err)
		}
	}
}
