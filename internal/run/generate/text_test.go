package generate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/data/tokenizer"
	"mt/internal/run/open"
	"mt/internal/testkit"
	"mt/model"
)

// TestTurnsAreBounded: a line longer than maxTurn ends the chat with an error that says so.
func TestTurnsAreBounded(t *testing.T) {
	lines := readLines(strings.NewReader("hello\n" + strings.Repeat("x", maxTurn+1)))
	if said := <-lines; said.text != "hello" || said.err != nil {
		t.Errorf("%+v", said)
	}
	if said := <-lines; said.err == nil || said.err.Error() != "a line has more than 16 MiB" {
		t.Errorf("%.20q, %v", said.text, said.err)
	}
}

// TestStopTokens: a text ends at each end-of-sequence token of the tokenizer, config.json and
// generation_config.json. A generation_config.json with another form of eos_token_id is an error.
func TestStopTokens(t *testing.T) {
	for content, want := range map[string]any{
		"":                          []int32{0, 7},
		`{"temperature": 1}`:        []int32{0, 7},
		`{"eos_token_id": null}`:    []int32{0, 7},
		`{"eos_token_id": 9}`:       []int32{0, 7, 9},
		`{"eos_token_id": [9, 11]}`: []int32{0, 7, 9, 11},
		`{"eos_token_id": "end"}`:   `eos_token_id is "end"; it is a token's number`,
		`{"eos_token_id"`:           "unexpected end",
		"version https://git-lfs.github.com/spec/v1\n": "this is a Git LFS pointer",
	} {
		j := &open.Inputs{Tokenizer: tokenizer.Bytes(), Model: &model.Config{EOS: []int{7}}, ModelDir: t.TempDir()}
		if content != "" {
			testkit.NoError(t, os.WriteFile(filepath.Join(j.ModelDir, "generation_config.json"), []byte(content), 0o644))
		}
		got, err := stopTokens(j)
		if ids, ok := want.([]int32); ok {
			if err != nil || !slices.Equal(slices.Compact(got), ids) {
				t.Errorf("%s: %v, %v, want %v", content, got, err, want)
			}
		} else if err == nil || !strings.Contains(err.Error(), want.(string)) || !strings.Contains(err.Error(), "generation_config.json") {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}

// TestGenerationConfig: notes name the keys of generation_config.json that change an answer and
// that mt does not obey, and the flags of mt generate with the same effect.
func TestGenerationConfig(t *testing.T) {
	for content, want := range map[string]string{
		`{"do_sample": false, "repetition_penalty": 1.05, "suppress_tokens": [1], "min_new_tokens": 3, "num_beams": 1, "bad_words_ids": [], "temperature": 0.5, "min_p": 0.1}`: "",
		`{"transformers_version": "5", "pad_token_id": 3, "max_length": 99}`:                                                                                                   "",
		`{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95}`:                                                                                                  "unless you give --temperature 0.6 --top-k 20 --top-p 0.95",
		`{"do_sample": true}`:                                          "unless you give --temperature 1 --top-k 50",
		`{"encoder_repetition_penalty": 1.05}`:                         "asks for encoder_repetition_penalty 1.05, which mt generate does not have",
		`{"begin_suppress_tokens": [1, 2], "no_repeat_ngram_size": 3}`: "asks for begin_suppress_tokens [1,2], no_repeat_ngram_size 3, which",
		`{"min_length": 2, "typical_p": NaN}`:                          "asks for min_length 2, which",
	} {
		dir := t.TempDir()
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(content), 0o644))
		got := strings.Join(generationNotes(dir, false), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
		byMinP := TextOptions{LogitKeys: LogitKeys{MinP: new(0.1)}}
		if notes := generationNotes(dir, byMinP.sampled()); strings.Contains(strings.Join(notes, ""), "unless you give") {
			t.Errorf("%s: %q although flags are given", content, notes)
		}
	}
}

// TestLogitKeys: mt obeys the keys of LogitKeys in generation_config.json, and a flag replaces a
// key. A value out of range is an error that names the file, the key and the value.
func TestLogitKeys(t *testing.T) {
	none := LogitKeys{RepetitionPenalty: new(1.0), MinP: new(0.0), MinNewTokens: new(0), SuppressTokens: []int32{}}
	for _, c := range []struct {
		content string
		flags   LogitKeys
		want    string // generate.Options, or an error
	}{
		{"", LogitKeys{}, "0 0 0 []"},
		{`{"repetition_penalty": null, "min_p": null, "min_new_tokens": null, "suppress_tokens": null}`, LogitKeys{}, "0 0 0 []"},
		{`{"repetition_penalty": 1.05, "min_p": 0.1, "min_new_tokens": 3, "suppress_tokens": [5, -1]}`, LogitKeys{}, "1.05 0.1 3 [5 -1]"},
		{`{"repetition_penalty": 2, "min_p": 1, "min_new_tokens": 4, "suppress_tokens": [7]}`, none, "1 0 0 []"},
		{`{"repetition_penalty": 100}`, LogitKeys{RepetitionPenalty: new(0.5)}, "0.5 0 0 []"},
		{`{"repetition_penalty": 0.01}`, LogitKeys{MinP: new(0.25)}, "0.01 0.25 0 []"},
		{`{"min_new_tokens": 9}`, LogitKeys{MinNewTokens: new(2), SuppressTokens: []int32{1}}, "0 0 2 [1]"},
		{`{"repetition_penalty": 0}`, none, "repetition_penalty is 0; it is a number from 0.01 to 100"},
		{`{"repetition_penalty": 101}`, none, "repetition_penalty is 101"},
		{`{"repetition_penalty": "much"}`, none, "repetition_penalty: a JSON string is not"},
		{`{"min_p": -0.1}`, none, "min_p is -0.1; it is a number from 0 to 1"},
		{`{"min_p": 1.5}`, none, "min_p is 1.5"},
		{`{"min_p": [0.1]}`, none, "min_p: a JSON array is not"},
		{`{"min_new_tokens": -1}`, none, "min_new_tokens is -1; it is a whole number of at least 0"},
		{`{"min_new_tokens": 1.5}`, none, "min_new_tokens: a JSON number 1.5 is not"},
		{`{"suppress_tokens": 5}`, none, "suppress_tokens: a JSON number is not"},
		{`{"suppress_tokens": [1, 99999999999]}`, none, "suppress_tokens: a JSON number 99999999999 is not"},
	} {
		dir := t.TempDir()
		if c.content != "" {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(c.content), 0o644))
		}
		file, err := readLogitKeys(dir)
		g := (&TextOptions{LogitKeys: c.flags}).sampling(file)
		got := fmt.Sprint(g.RepetitionPenalty, g.MinP, g.MinNewTokens, g.SuppressTokens)
		if err != nil {
			got = strings.TrimPrefix(err.Error(), filepath.Join(dir, "generation_config.json")+": ")
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.content, got, c.want)
		}
	}
}
