package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
	"mt/internal/testkit"
)

// TestTransformersAddsTokens runs data/tokenizer/testdata/extend.py: adding tokens to a model gives the same result in
// mt and in Transformers.
func TestTransformersAddsTokens(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers")
	t.Setenv(asCommand, "1")
	testkit.RunPython(t, python, "../../data/tokenizer/testdata/extend.py", os.Args[0])
}

// TestAddedTokens: a model with added tokens is exported with them, and mt data inspect shows the
// data with their ids.
func TestAddedTokens(t *testing.T) {
	testkit.NotShort(t)
	base, dir := tinyModel(t), t.TempDir()
	chats, config, out := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "run.yaml"), filepath.Join(dir, "out")
	for name, text := range map[string]string{
		chats: `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"g"}]}` + "\n",
		config: "model_name_or_path: " + base + "\ndataset: " + chats + "\ntemplate: chatml\nadd_tokens: <tool>\nadd_special_tokens: <|im_start|>,<|im_end|>\n" +
			"resize_vocab: true\nmax_steps: 1\nmax_seq_len: 64\noutput_dir: " + out + "\ncache_dir: " + dir + "\n",
	} {
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	code, stdout, stderr := mt(t, "", "data", "inspect", config, "--rows", "1", "--json")
	if code != exitDone || !strings.Contains(stdout, `"vocab_size": 320`) || !strings.Contains(stderr, `ids 256 ("<tool>") to 258 ("<|im_end|>")`) ||
		!strings.Contains(stdout, `"\u003c|im_end|\u003e"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, _, stderr = mt(t, "", "data", "inspect", "--dataset", chats, "--add-tokens", "<tool>")
	if code != exitUsage || !strings.Contains(stderr, "--add-tokens: ") || !strings.Contains(stderr, "needs a model") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	must(t, "train", config)
	file, again := filepath.Join(dir, "x.gguf"), filepath.Join(dir, "again")
	must(t, "export", "--format", "safetensors", "--model", out, "--out", again, "--outtype", "fp32")
	must(t, "export", "--format", "gguf", "--model", again, "--out", file)
	f := testkit.Must(os.Open(file))(t)
	defer f.Close()
	st := testkit.Must(f.Stat())(t)
	g := testkit.Must(gguf.Open(f, st.Size()))(t)
	tokens, _ := g.Value("tokenizer.ggml.tokens").([]string)
	types, _ := g.Value("tokenizer.ggml.token_type").([]int32)
	if len(tokens) != 320 || len(types) != 320 || !slices.Equal(tokens[256:260], []string{"<tool>", "<|im_start|>", "<|im_end|>", "[PAD259]"}) ||
		!slices.Equal(types[256:260], []int32{4, 3, 3, 5}) { // user defined, control, control, unused
		t.Errorf("%d tokens %q of types %d", len(tokens), tokens, types)
	}
	if x, ok := g.Tensor("token_embd.weight"); !ok || !slices.Equal(x.Shape, []int64{320, 64}) {
		t.Errorf("the embedding is %v", x.Shape)
	}
}
