package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/data/tokenizer"
	"mt/internal/run/generate"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
)

// chatTokens are the keys that add the special tokens of the chat template chatml to a model.
const chatTokens = "new_special_tokens: [\"<|im_start|>\", \"<|im_end|>\"]\nresize_vocab: true\n"

// tokenScene returns a run on chats in chatml. It starts from a model with one token per byte, in
// the directory base, which was trained for a step. If kind contains "tied", the head shares the
// embedding's weights; if "padded", the embedding has 300 rows.
func tokenScene(t *testing.T, kind string) (s scene, base string) {
	t.Helper()
	first := newScene(t, "max_steps: 1\nsave_dtype: fp32\nsave_steps: 0\n").bytes()
	if strings.Contains(kind, "padded") {
		first.yaml = strings.Replace(first.yaml, "vocab_size: 256", "vocab_size: 300", 1)
	}
	if strings.Contains(kind, "tied") {
		first.yaml = strings.Replace(first.yaml, "vocab_size: ", "tie_word_embeddings: true\n  vocab_size: ", 1)
	}
	first.mustTrain(t)
	s = chatScene(t, "")
	s.yaml = strings.Replace(s.yaml, strings.Replace(tinyModel, "vocab_size: 48", "vocab_size: 256", 1), "model_name_or_path: "+first.out+"\n", 1)
	return s.with("dataset: a.jsonl\nmix_strategy: concat\ninterleave_probs: []\ntemplate: chatml\nmax_seq_len: 96\nmax_steps: 6\nsave_steps: 3\n" + chatTokens), first.out
}

// table returns a tensor of a model directory as a list of rows.
func table(t *testing.T, dir, name string) [][]float32 {
	t.Helper()
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	defer w.Close()
	x, ok := w.Tensor(name)
	if !ok {
		t.Fatalf("%s has no %s", dir, name)
	}
	out := make([][]float32, x.Shape[0])
	for i := range out {
		out[i] = make([]float32, x.Shape[1])
		testkit.NoError(t, w.Read(name, int64(i)*x.Shape[1], out[i]))
	}
	return out
}

// TestAddedTokensTrain: a run that adds tokens, interrupted and resumed, has the same bits as an
// uninterrupted one. Its model has a tokenizer with these tokens and can be evaluated. A run with
// the same keys that starts from it adds nothing.
func TestAddedTokensTrain(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want, base := tokenScene(t, "")
	out := want.mustTrain(t)
	for _, s := range []string{`2 tokens are new: they have the ids 256 ("<|im_start|>") to 257 ("<|im_end|>"), and start at the mean of the others`,
		"the vocabulary has 320 rows in place of 256"} {
		if !strings.Contains(out, s) {
			t.Errorf("the run does not say %q:\n%s", s, out)
		}
	}
	got := want.in(t)
	if _, err := got.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} }); err == nil {
		t.Fatal("the run is not interrupted")
	}
	got.mustTrain(t)
	sameRun(t, got, want)
	for _, dir := range []string{want.out, filepath.Join(want.out, settings.CheckpointName(3))} {
		c, err := model.LoadDir(dir)
		testkit.NoError(t, err)
		if raw, err := os.ReadFile(filepath.Join(dir, "config.json")); err != nil || c.VocabSize != 320 || !strings.Contains(string(raw), `"vocab_size": 320`) {
			t.Errorf("%s: %d tokens, %v\n%s", dir, c.VocabSize, err, raw)
		}
		tok, err := tokenizer.Load(dir, 320)
		testkit.NoError(t, err)
		ids, err := tok.Encode(nil, []byte("<|im_start|>a<|im_end|>\n"))
		if err != nil || !slices.Equal(ids, []int32{256, 'a', 257, '\n'}) {
			t.Errorf("%s: encoded as %d, %v", dir, ids, err)
		}
		for _, name := range []string{"model.embed_tokens.weight", "lm_head.weight"} {
			if x := table(t, dir, name); len(x) != 320 || slices.Equal(x[256], x[257]) || name == "model.embed_tokens.weight" && !slices.Equal(x[258], x[319]) {
				t.Errorf("%s: %s has %d rows, or they did not learn", dir, name, len(x))
			}
		}
	}
	again := want.in(t).with("max_steps: 1\n")
	again.yaml = strings.Replace(again.yaml, base, want.out, 1)
	out = again.mustTrain(t)
	if strings.Contains(out, "rows in place") || strings.Contains(out, "are new") || !strings.Contains(out, `the token "<|im_end|>" is in the vocabulary already: it keeps its id 257`) {
		t.Errorf("from the model that has them:\n%s", out)
	}
	if _, err := Eval(t.Context(), EvalOptions{Config: again.config(t), Options: settings.Options{Stdout: io.Discard, Stderr: io.Discard}}); err != nil {
		t.Error(err)
	}
	var text bytes.Buffer
	g := generate.TextOptions{Config: again.config(t), Prompt: "<|im_start|>user\n", MaxNewTokens: 5, Options: settings.Options{Stdout: &text, Stderr: io.Discard}}
	if err := generate.Text(context.Background(), g); err != nil {
		t.Error(err)
	}
}

// TestSpecialTokensTrain: special_tokens adds the tokens that are new. Texts end with the token
// named eos_token, and the saved tokenizer says so.
func TestSpecialTokensTrain(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s, base := tokenScene(t, "")
	testkit.NoError(t, os.WriteFile(filepath.Join(base, "generation_config.json"), []byte(`{"eos_token_id": 0, "top_k": 5}`), 0o600))
	s = s.with("max_steps: 1\nsave_steps: 0\nnew_special_tokens: <|im_start|>\nspecial_tokens:\n  eos_token: <|im_end|>\n  pad_token: <|im_end|>\n  additional_special_tokens: [\"<x>\"]\n")
	if out := s.mustTrain(t); !strings.Contains(out, `3 tokens are new: they have the ids 256 ("<|im_start|>") to 258 ("<x>")`) {
		t.Errorf("the run says\n%s", out)
	}
	tok := testkit.Must(tokenizer.Load(s.out, 320))(t)
	if eos, ok := tok.EOS(); !ok || eos != 257 || tok.Token(eos) != "<|im_end|>" || !tok.IsSpecial(258) {
		t.Errorf("EOS %d, %q", eos, tok.Token(eos))
	}
	for name, want := range map[string]string{"tokenizer_config.json": `"pad_token": "<|im_end|>"`, "generation_config.json": "[257,0]"} {
		if text, err := os.ReadFile(filepath.Join(s.out, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v, want %s", name, text, err, want)
		}
	}
}

// TestNewRowsAreTheMean: rows beyond the directory's, and rows of tokens unknown to its tokenizer, start exactly at
// the mean of the known tokens' rows, in any compute dtype. All other rows stay as they were. A learning rate of 0
// keeps them so.
func TestNewRowsAreTheMean(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, tt := range []struct {
		base, dtype        string
		multiple, was, end int // rows before; the last that is the mean
	}{
		{"", "fp32", 1, 256, 258}, {"", "bf16", 1, 256, 258}, {"tied", "fp32", 1, 256, 258}, {"tied", "bf16", 64, 256, 320},
		{"padded", "fp32", 64, 300, 258}, {"padded-tied", "bf16", 64, 300, 258},
	} {
		t.Run(tt.base+tt.dtype, func(t *testing.T) {
			s, base := tokenScene(t, tt.base)
			s = s.with(fmt.Sprintf("learning_rate: 0\nweight_decay: 0\nmax_steps: 1\nsave_steps: 0\nsave_dtype: fp32\ncompute_dtype: %s\nresize_vocab_to_multiple_of: %d\n",
				tt.dtype, tt.multiple))
			s.mustTrain(t)
			names := []string{"model.embed_tokens.weight", "lm_head.weight"}
			if strings.Contains(tt.base, "tied") {
				names = names[:1]
			}
			for _, name := range names {
				was, is := table(t, base, name), table(t, s.out, name)
				if len(was) != tt.was || len(is) != max(tt.was, tt.end) {
					t.Fatalf("%s has %d rows, had %d", name, len(is), len(was))
				}
				mean := make([]float32, len(was[0]))
				for c := range mean {
					var sum float64
					for _, row := range was[:256] {
						sum += float64(row[c])
					}
					mean[c] = float32(sum / 256)
				}
				for i, row := range is {
					want := mean
					if i < 256 || i >= tt.end {
						want = was[i]
					}
					if !slices.Equal(row, want) {
						t.Errorf("%s: row %d is %v, want %v", name, i, row, want)
					}
				}
			}
		})
	}
}

// TestTokensThatFit: if the embedding has more rows than the tokenizer has tokens, added tokens use
// the spare rows and nothing grows. A model trained from scratch gets tokens in the same way.
func TestTokensThatFit(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, tt := range []struct {
		keys string
		rows int
	}{
		{"model:\n  preset: tiny\n  vocab_size: 258\nresize_vocab: false\n", 258},
		{"model:\n  preset: tiny\n  vocab_size: 300\nresize_vocab: true\n", 300},
		{"model:\n  preset: tiny\nresize_vocab: true\nresize_vocab_to_multiple_of: 4\n", 260},
	} {
		s := chatScene(t, "")
		s = s.with("dataset: a.jsonl\nmix_strategy: concat\ninterleave_probs: []\ntemplate: chatml\nmax_seq_len: 96\nmax_steps: 1\nsave_steps: 0\n" + chatTokens).with(tt.keys)
		s.mustTrain(t)
		if n := len(table(t, s.out, "lm_head.weight")); n != tt.rows {
			t.Errorf("%s: %d rows", tt.keys, n)
		}
		if tok, err := tokenizer.Load(s.out, tt.rows); err != nil || tok.VocabSize() != 258 {
			t.Errorf("%s: %v", tt.keys, err)
		}
	}
}

// TestTokenErrors: tokens that cannot be added give an error before any data is read.
func TestTokenErrors(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s, base := tokenScene(t, "")
	bare := t.TempDir()
	copyTree(t, base, bare)
	testkit.NoError(t, os.Remove(filepath.Join(bare, "tokenizer.json")))
	for _, tt := range []struct {
		keys string
		want []string
	}{
		{"resize_vocab: false\n", []string{"new_special_tokens", `"<|im_start|>" gets the id 256, and the model has rows for 256 tokens`, "resize_vocab: true"}},
		{"resize_vocab: false\nnew_special_tokens: []\nadd_tokens: <a>\n", []string{"add_tokens", `"<a>" gets the id 256`, "resize_vocab: true"}},
		{"add_tokens: <|im_end|>\n", []string{"add_tokens", `"<|im_end|>" is in new_special_tokens or special_tokens too`}},
		{"add_tokens: <x>\nspecial_tokens: {pad_token: <x>}\n", []string{"add_tokens", `"<x>" is in new_special_tokens or special_tokens too`}},
		{"resize_vocab: false\nnew_special_tokens: []\nspecial_tokens: {pad_token: <p>}\n", []string{"special_tokens", `"<p>" gets the id 256`, "resize_vocab: true"}},
		{"add_tokens: " + strings.Repeat("x", 513) + "\n", []string{"add_tokens", "513 bytes long; at most 512"}},
		{"model_name_or_path: " + bare + "\n", []string{"new_special_tokens", bare + " has no tokenizer.json"}},
		{"model:\n  preset: tiny\n  vocab_size: 64\n", []string{"new_special_tokens", "there is no tokenizer to add tokens to", "set vocab_size to at least 256"}},
		{"new_special_tokens: []\n", []string{"template: chatml", "new_special_tokens", "resize_vocab: true"}},
	} {
		one := s.with(tt.keys)
		if strings.HasPrefix(tt.keys, "model:") {
			one.yaml = strings.Replace(one.yaml, "model_name_or_path: "+base+"\n", "", 1)
		}
		_, err := one.train(t, t.Context(), settings.Hooks{Reading: func(string) {
			if !strings.Contains(tt.keys, "new_special_tokens: []\n") {
				t.Errorf("%s: data is read", tt.keys)
			}
		}})
		checkError(t, err, true, tt.want...)
		if _, err := os.Stat(one.out); err == nil {
			t.Errorf("%s: there is output", tt.keys)
		}
	}
}

// TestTokensOfAnotherRun: a run cannot resume a checkpoint that has other added tokens.
func TestTokensOfAnotherRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s, _ := tokenScene(t, "")
	s = s.with("max_steps: 3\n")
	s.mustTrain(t)
	for keys, want := range map[string]string{
		"add_tokens: <a>\n":                                       `add_tokens was [], is ["<a>"]`,
		"resize_vocab_to_multiple_of: 8\n":                        "resize_vocab_to_multiple_of was 64, is 8",
		"new_special_tokens: <|im_end|>,<a>\ntemplate: default\n": `new_special_tokens was ["<|im_start|>", "<|im_end|>"], is ["<|im_end|>", "<a>"]`,
	} {
		_, err := s.with("max_steps: 6\n"+keys).train(t, t.Context(), settings.Hooks{})
		checkError(t, err, true, want)
	}
}
