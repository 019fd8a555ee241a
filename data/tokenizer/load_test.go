package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// small returns a tokenizer.json with a vocabulary of a few characters. members are JSON members
// that replace the members of the same names.
func small(members string) string {
	own := map[string]json.RawMessage{}
	for _, text := range []string{
		`{"version": "1.0", "added_tokens": [{"id": 5, "content": "<s>", "special": true}], "decoder": {"type": "Fuse"},
		"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3, "<unk>": 4}, "merges": ["a b"], "unk_token": "<unk>"}}`,
		"{" + members + "}",
	} {
		if err := json.Unmarshal([]byte(text), &own); err != nil {
			panic(err)
		}
	}
	text, err := json.Marshal(own)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	for name, content := range files {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

// loadTest is a tokenizer's file with the result that Load must give for it.
type loadTest struct {
	name, file, content string
	vocab               int
	want                string // part of the error; "": Load returns Bytes; "bpe": it returns another tokenizer
}

func loadTests() []loadTest {
	own := string(Bytes().Files()["tokenizer.json"])
	return []loadTest{
		{"no file", "config.json", "{}", 256, ""},
		{"no file, large model", "config.json", "{}", 32000, "a vocabulary of 32000 tokens is not that of bytes"},
		{"our own, large model", "tokenizer.json", own, 32000, ""},
		{"no file, small model", "config.json", "{}", 255, "too small for text"},
		{"our own", "tokenizer.json", own, 300, ""},
		{"our own, small model", "tokenizer.json", own, 128, "give input_ids (JSONL) instead"},
		{"with a prefix space", "tokenizer.json", strings.Replace(own, `"add_prefix_space": false`, `"add_prefix_space": true`, 1), 300, "bpe"},
		{"with what goes around", "tokenizer.json", strings.Replace(own, `"post_processor": null`, `"post_processor": {"type": "RobertaProcessing", "cls": ["a", 97], "sep": ["b", 98]}`, 1), 300, "bpe"},
		{"with offsets", "tokenizer.json", strings.Replace(own, `"post_processor": null`, `"post_processor": {"type": "ByteLevel", "trim_offsets": true}`, 1), 300, ""},
		{"small", "tokenizer.json", small(""), 300, "bpe"},
		{"no JSON", "tokenizer.json", "hello", 300, "tokenizer.json: it is not JSON: invalid character 'h'"},
		{"cut off", "tokenizer.json", small("")[:50], 300, "it is not JSON: unexpected end"},
		{"an array", "tokenizer.json", "[]", 300, "it is [], not an object"},
		{"Git LFS", "tokenizer.json", "version https://git-lfs.github.com/spec/v1\n", 300, "git lfs pull"},
		{"no model", "tokenizer.json", small(`"model": null`), 300, "model: it is null, not an object"},
		{"sentencepiece", "tokenizer.model", "x", 32000, "tokenizer.model: only tokenizer.json is read, and there is none beside it"},
	}
}

// modelTests are the loadTests about a tokenizer.json's model and added tokens.
func modelTests() []loadTest {
	vocab := func(v, merges string) string {
		return small(`"model": {"type": "BPE", "vocab": ` + v + `, "merges": ` + merges + `}`)
	}
	return []loadTest{
		{"unigram", "tokenizer.json", small(`"model": {"type": "Unigram", "vocab": [["a", 0]]}`), 300, `model.type: "Unigram" is not read, only BPE is; give input_ids`},
		{"no type", "tokenizer.json", small(`"model": {"vocab": {"a": 0}}`), 300, "model.type"},
		{"dropout", "tokenizer.json", small(`"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}`), 300, "model.dropout: 0.1"},
		{"unknown token", "tokenizer.json", small(`"model": {"type": "BPE", "unk_token": "u", "vocab": {}, "merges": []}`), 300, `model.unk_token: "u" is not in model.vocab`},
		{"wrong type", "tokenizer.json", small(`"model": {"type": "BPE", "fuse_unk": 3, "vocab": {}, "merges": []}`), 300, "model.fuse_unk: 3 is not of the right type"},
		{"no vocabulary", "tokenizer.json", small(`"model": {"type": "BPE", "merges": []}`), 300, "model.vocab: it is missing"},
		{"huge id", "tokenizer.json", vocab(`{"a": 4000000000}`, "[]"), 300, `model.vocab: the id of "a" is 4000000000, and ids go from 0 to 4194303`},
		{"negative id", "tokenizer.json", vocab(`{"a": -1}`, "[]"), 300, `the id of "a" is -1`},
		{"id twice", "tokenizer.json", vocab(`{"a": 1, "b": 1}`, "[]"), 300, `model.vocab: "a" and "b" have the same id 1`},
		{"merge of one", "tokenizer.json", vocab(`{"a": 0}`, `["a"]`), 300, `model.merges[0]: "a" is not two tokens`},
		{"merge of three", "tokenizer.json", vocab(`{"a": 0}`, `[["a", "a", "a"]]`), 300, `is not two tokens`},
		{"merges far apart", "tokenizer.json", vocab(`{"a": 0, "aa": 1}`, "["+strings.Repeat(`"a a" , `, 30)+`"a a", "a x"]`), 300, `model.merges[31]: "x" is not in model.vocab`},
		{"left of a merge", "tokenizer.json", vocab(`{"a": 0, "aa": 1}`, `["a a", "x a"]`), 300, `model.merges[1]: "x" is not in model.vocab`},
		{"right of a merge", "tokenizer.json", vocab(`{"a": 0}`, `["a x"]`), 300, `model.merges[0]: "x" is not`},
		{"what merges", "tokenizer.json", vocab(`{"a": 0, "b": 1}`, `[["a", "b"]]`), 300, `model.merges[0]: "ab" is not`},
		{"added id", "tokenizer.json", small(`"added_tokens": [{"id": 77777777777, "content": "<s>"}]`), 300, `added_tokens[0]: the id of "<s>" is 77777777777`},
		{"tokens that normalize to too much", "tokenizer.json", small(`"added_tokens": [{"id": 9, "content": "<s>", "normalized": true}], "normalizer": {"type": "Prepend", "prepend": "` + strings.Repeat("x", 1<<20) + `"}`), 300, `added_tokens: "<s>": the normalizers of`},
		{"long token", "tokenizer.json", small(`"added_tokens": [{"id": 9, "content": "` + strings.Repeat("x", 5000) + `"}]`), 300, "longer than 512 bytes"},
	}
}

// partTests are the loadTests about the parts of a tokenizer.json around the model, such as
// normalizer and pre-tokenizer.
func partTests() []loadTest {
	return []loadTest{
		{"normalizer", "tokenizer.json", small(`"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}`), 300, `normalizer.normalizers[1].type: "Nmt" is not supported`},
		{"pre-tokenizer", "tokenizer.json", small(`"pre_tokenizer": {"type": "UnicodeScripts"}`), 300, `pre_tokenizer.type: "UnicodeScripts"`},
		{"pattern", "tokenizer.json", small(`"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}`), 300, `pre_tokenizer.pattern: the regular expression "(a": at byte 2: a ) is missing`},
		{"no pattern", "tokenizer.json", small(`"pre_tokenizer": {"type": "Split", "behavior": "Isolated"}`), 300, `pre_tokenizer.pattern: it is missing`},
		{"behavior", "tokenizer.json", small(`"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"}`), 300, `pre_tokenizer.behavior: "Odd" is not known`},
		{"prepend", "tokenizer.json", small(`"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "x"}`), 300, `pre_tokenizer.prepend_scheme: "x" is none of`},
		{"letter", "tokenizer.json", small(`"pre_tokenizer": {"type": "Metaspace", "replacement": "__"}`), 300, `pre_tokenizer.replacement: "__" is not one character`},
		{"decoder", "tokenizer.json", small(`"decoder": {"type": "CTC"}`), 300, `decoder.type: "CTC" is not supported`},
		{"groups", "tokenizer.json", small(`"decoder": {"type": "Replace", "pattern": {"Regex": "(a)"}, "content": "$1"}`), 300, `decoder.content: "$1" refers to groups`},
		{"template", "tokenizer.json", small(`"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}`), 300, `post_processor.single[0]: special_tokens has no ids of "x"`},
		{"template without text", "tokenizer.json", small(`"post_processor": {"type": "TemplateProcessing", "single": []}`), 300, `the text A is in it 0 times`},
		{"template's ids", "tokenizer.json", small(`"post_processor": {"type": "BertProcessing", "cls": ["a", 0], "sep": ["x", 99]}`), 300, `post_processor.sep: no token has the id 99`},
		{"suffix", "tokenizer.json", small(`"decoder": {"type": "BPEDecoder", "suffix": ""}`), 300, "decoder.suffix: an empty string"},
		{"many", "tokenizer.json", small(`"normalizer": {"type": "Sequence", "normalizers": [` + strings.Repeat(`{"type": "NFC"},`, 999) + `{"type": "NFC"}]}`), 300, "normalizer: more than 256 parts"},
		{"nested", "tokenizer.json", small(`"decoder": ` + strings.Repeat(`{"type": "Sequence", "decoders": [`, 200) + strings.Repeat("]}", 200)), 300, "it nests too deeply"},
	}
}

func TestLoad(t *testing.T) {
	for _, tt := range slices.Concat(loadTests(), modelTests(), partTests()) {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{tt.file: tt.content})
			got, err := Load(dir, tt.vocab)
			switch {
			case tt.want == "":
				if err != nil || got.ID() != Bytes().ID() {
					t.Errorf("tokenizer %v, error %v, want Bytes", got, err)
				}
			case tt.want == "bpe":
				if err != nil || !strings.HasPrefix(got.ID(), "bpe-") {
					t.Errorf("tokenizer %v, error %v, want a BPE", got, err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("error %v, want one that says %q", err, tt.want)
			case strings.HasPrefix(tt.file, "tokenizer") && !strings.Contains(err.Error(), tt.file) && tt.vocab > 255:
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
}

// TestEnds: BOS and EOS come from the first file that names them: the configuration of the
// tokenizer, then that of the model, then the post-processor of tokenizer.json. If there is a
// tokenizer_config.json, the model's configuration does not decide BOS.
func TestEnds(t *testing.T) {
	template := small(`"post_processor": {"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["b", 1]}`)
	tests := []struct {
		name     string
		files    map[string]string
		bos, eos int32 // -1: none
	}{
		{"nothing", map[string]string{"tokenizer.json": small("")}, -1, -1},
		{"template", map[string]string{"tokenizer.json": template}, 0, 1},
		{"strings", map[string]string{"tokenizer.json": template, "tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "ab"}`}, 5, 2},
		{"objects", map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": `{"bos_token": null, "eos_token": {"content": "<s>"}}`}, -1, 5},
		{"unknown", map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": `{"eos_token": "</s>"}`, "special_tokens_map.json": `{"eos_token": "a"}`}, -1, 0},
		{"numbers that are not finite", map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": `{"model_max_length": Infinity, "eos_token": "<s>"}`,
			"generation_config.json": `{"x": NaN}`, "special_tokens_map.json": `{"y": -Infinity}`}, -1, 5},
		{"list", map[string]string{"tokenizer.json": small(""), "generation_config.json": `{"bos_token_id": 3, "eos_token_id": [5, 2]}`}, 3, 5},
		{"no BOS on purpose", map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": `{"bos_token": null}`, "config.json": `{"bos_token_id": 3, "eos_token_id": 2}`}, -1, 2},
		{"the model's", map[string]string{"tokenizer.json": small(""), "config.json": `{"bos_token_id": 700, "eos_token_id": 2}`}, -1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, tt.files)
			tok := testkit.Must(Load(dir, 256))(t)
			bos, ok := tok.BOS()
			if ok != (tt.bos >= 0) || ok && bos != tt.bos {
				t.Errorf("BOS is %d, %v, want %d", bos, ok, tt.bos)
			}
			eos, ok := tok.EOS()
			if ok != (tt.eos >= 0) || ok && eos != tt.eos {
				t.Errorf("EOS is %d, %v, want %d", eos, ok, tt.eos)
			}
		})
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"tokenizer.json": small(""), "tokenizer_config.json": `{"eos_token": 3}`})
	if _, err := Load(dir, 256); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json: eos_token: it is 3") {
		t.Errorf("eos_token 3: %v", err)
	}
}

func TestVocabulary(t *testing.T) {
	files := map[string]string{"tokenizer.json": small(""), "merges.txt": "a b\n", "chat_template.jinja": "{{ x }}",
		"tokenizer_config.json": `{"eos_token": "<s>"}`, "config.json": "{}", "model.safetensors": "x"}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	tok := testkit.Must(Load(dir, 256))(t)
	delete(files, "config.json")
	delete(files, "model.safetensors")
	got := tok.Files()
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files))) {
		t.Errorf("files %q", slices.Sorted(maps.Keys(got)))
	}
	for name, want := range files {
		if string(got[name]) != want {
			t.Errorf("%s has changed", name)
		}
	}
	if tok.VocabSize() != 6 {
		t.Errorf("%d tokens, want 6", tok.VocabSize())
	}
	for id, want := range []string{"a", "b", "ab", " ", "<unk>", "<s>", ""} {
		back, ok := tok.TokenID(want)
		if tok.Token(int32(id)) != want || ok != (want != "") || ok && int(back) != id || tok.IsSpecial(int32(id)) != (id == 5) {
			t.Errorf("token %d is %q, %d, special %v", id, tok.Token(int32(id)), back, tok.IsSpecial(int32(id)))
		}
	}
	if tok.Token(-1) != "" || tok.IsSpecial(-1) || len(tok.Decode([]int32{-1, 99})) != 0 {
		t.Error("ids that are not there have a text")
	}
	writeFiles(t, dir, map[string]string{"tokenizer_config.json": `{"eos_token": "a"}`})
	if other, err := Load(dir, 256); err != nil || other.ID() == tok.ID() {
		t.Errorf("another EOS has the same ID; %v", err)
	}
}

// TestSameEveryTime: if a tokenizer's files contradict each other about a token or an id, loading
// them gives the same result every time.
func TestSameEveryTime(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"two names":    {"tokenizer_config.json": `{"bos_token": {"content": "ab", "lstrip": true}, "unk_token": {"content": "ab", "rstrip": true}}`},
		"extra tokens": {"tokenizer_config.json": `{"extra_special_tokens": {"x": {"content": "ab", "lstrip": true}, "y": {"content": "ab"}}}`},
		"one id":       {"added_tokens.json": `{"x": 9, "y": 9, "z": 9}`},
		"one id twice": {"tokenizer_config.json": `{"added_tokens_decoder": {"9": {"content": "x"}, "09": {"content": "y"}}}`},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, files)
		writeFiles(t, dir, map[string]string{"tokenizer.json": small("")})
		first := testkit.Must(Load(dir, 256))(t)
		for range 30 {
			if tok, err := Load(dir, 256); err != nil || tok.ID() != first.ID() {
				t.Fatalf("%s: ID %s, error %v, then %s", name, tok.ID(), err, first.ID())
			}
		}
	}
}

func TestInvalidText(t *testing.T) {
	tok := testkit.Must(parse([]byte(small(""))))(t)
	for _, text := range []string{"a\xff", "ab \xc3", "\xed\xa0\x80"} {
		ids, err := tok.Encode([]int32{7}, []byte(text))
		want := fmt.Sprintf("byte %d is 0x%02x", strings.IndexFunc(text, func(r rune) bool { return r > 127 }), bytes.TrimLeft([]byte(text), "ab ")[0])
		if err == nil || !strings.Contains(err.Error(), want) || !slices.Equal(ids, []int32{7}) {
			t.Errorf("%q: ids %d, error %v, want %q", text, ids, err, want)
		}
	}
}

// TestLoadWithoutTokenizer: a model directory without a tokenizer is read as bytes only if the
// vocabulary size is near 256. For other sizes it is an error.
func TestLoadWithoutTokenizer(t *testing.T) {
	for vocab, fine := range map[int]bool{256: true, 384: true, 512: true, 513: false, 32000: false} {
		tok, err := Load(t.TempDir(), vocab)
		if fine != (err == nil && tok == Bytes()) || !fine && !strings.Contains(err.Error(), "has no tokenizer.json, and a vocabulary of") {
			t.Errorf("%d tokens: %v", vocab, err)
		}
		if _, err := Load("", vocab); err != nil { // no directory: the model is trained from scratch
			t.Error(err)
		}
	}
}

// shape is one kind of tokenizer from testdata/shapes.json, with the results of PyPI `tokenizers`
// for some strings.
type shape struct {
	Name      string
	Tokenizer map[string]any
	Cases     []struct {
		recorded
		Starts []int
	}
}

// readShapes calls f for each shape in a file that testdata/make.py wrote. text is the shape's
// tokenizer.json.
func readShapes(t testing.TB, name string, f func(s *shape, text []byte)) {
	file := testkit.Must(os.Open(name))(t)
	defer file.Close()
	var head struct{ Models map[string]map[string]any }
	lines := json.NewDecoder(bufio.NewReader(file))
	testkit.NoError(t, lines.Decode(&head))
	for lines.More() {
		s := &shape{}
		testkit.NoError(t, lines.Decode(s))
		model := s.Tokenizer["model"].(map[string]any)
		whole := map[string]any{}
		for k, v := range head.Models[model["name"].(string)] {
			whole[k] = v
		}
		for k, v := range model["change"].(map[string]any) {
			whole[k] = v
		}
		s.Tokenizer["model"] = whole
		text := testkit.Must(json.Marshal(s.Tokenizer))(t)
		f(s, text)
	}
}

// TestShapes: ids, offsets and decoded text equal those that PyPI `tokenizers` gave for each kind
// of tokenizer. MT_SHAPES names another file of recordings, such as testdata/differences.py makes.
func TestShapes(t *testing.T) {
	testkit.NotShort(t)
	name := os.Getenv("MT_SHAPES")
	if name == "" {
		name = "testdata/shapes.json"
	}
	readShapes(t, name, func(s *shape, text []byte) {
		t.Run(s.Name, func(t *testing.T) {
			tok := testkit.Must(parse(text))(t)
			bad := 0
			for _, c := range s.Cases {
				ok := c.check(t, tok)
				ids, starts, err := tok.EncodeSpans(nil, nil, []byte(c.Text))
				if err != nil || !slices.Equal(starts, c.Starts) {
					t.Errorf("%q: ids %d start at %d, want %d", c.Text, ids, starts, c.Starts)
					ok = false
				}
				if !ok {
					if bad++; bad == 10 {
						return
					}
				}
			}
		})
	})
}
