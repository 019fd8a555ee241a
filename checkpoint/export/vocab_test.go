package export

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byteLevelJSON returns a byte-level tokenizer.json of 5 tokens with this pre-tokenizer. rest holds
// further members.
func byteLevelJSON(preTokenizer, rest string) string {
	return `{"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"<|im_end|>","special":false},{"id":9,"content":"<far>","special":true}],
	"normalizer":null,"pre_tokenizer":` + preTokenizer + `,` + rest + `
	"model":{"type":"BPE","byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}}`
}

const byteLevelStep = `{"type":"ByteLevel","add_prefix_space":false,"use_regex":%v}`

// split returns a pre-tokenizer that splits text at the matches of this regular expression.
func split(t *testing.T, regex string) string {
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(mustJSON(t, regex)) + `},"behavior":"Isolated"},` +
		fmt.Sprintf(byteLevelStep, false) + `]}`
}

func TestByteLevelVocabulary(t *testing.T) {
	post := `"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]}]},`
	f, s := exportGGUF(t, makeModel(t, llamaConfig(map[string]any{"eos_token_id": []int{4, 1}, "pad_token_id": 1}), llamaTensors(), map[string]string{
		"tokenizer.json":        byteLevelJSON(fmt.Sprintf(byteLevelStep, true), post),
		"tokenizer_config.json": `{"bos_token":{"content":"<s>"},"chat_template":"{{ messages }}"}`,
	}), F16)
	wantKeys(t, f, map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
		"tokenizer.ggml.tokens":     []string{"a", "b", "ab", "<s>", "<|im_end|>", "[PAD5]"},
		"tokenizer.ggml.token_type": []int{1, 1, 1, 3, 3, 5}, "tokenizer.ggml.merges": []string{"a b"},
		"tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 4, "tokenizer.ggml.padding_token_id": 1, "tokenizer.ggml.unknown_token_id": nil,
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_eos_token": false, "tokenizer.chat_template": "{{ messages }}"})
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "1 tokens with ids from vocab_size 6 on are left out") {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestPreTokenizers: every known regular expression of a pre-tokenizer is written with llama.cpp's
// name. Others are errors.
func TestPreTokenizers(t *testing.T) {
	pre := func(preTokenizer, model string) (string, error) {
		file := strings.Replace(byteLevelJSON(preTokenizer, ""), `"type":"BPE",`, `"type":"BPE",`+model, 1)
		dir := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"tokenizer.json": file})
		out := filepath.Join(t.TempDir(), "x.gguf")
		if _, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out}); err != nil {
			return "", err
		}
		name, _ := openGGUF(t, out).Value("tokenizer.ggml.pre").(string)
		return name, nil
	}
	for _, p := range patterns {
		for model, want := range map[string]string{"": p.merged, `"ignore_merges":true,`: p.whole} {
			if got, err := pre(split(t, p.regex), model); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", p.regex, got, err, want)
			}
		}
	}
	for name, step := range map[string]string{"another expression": split(t, `\w+`), "none": "null", "digits": `{"type":"Digits"}`,
		"prefix": `{"type":"ByteLevel","add_prefix_space":true}`} {
		if got, err := pre(step, ""); err == nil || !strings.Contains(err.Error(), "tokenizer.json: pre_tokenizer: llama.cpp has no name") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// piecesJSON is a tokenizer.json like SentencePiece's.
const piecesJSON = `{"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":1,"content":"▁▁x","special":false}],
	"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
	"pre_tokenizer":null,"post_processor":null,
	"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"vocab":{"<unk>":0,"<0x0A>":2,"b":3,"ab":4,"a":5,"abb":6,"bb":7},
	"merges":["a b","ab b","b b"]}}`

func TestPieces(t *testing.T) {
	tensors := llamaTensors()
	tensors["model.embed_tokens.weight"], tensors["lm_head.weight"] = shape{8, 32}, shape{8, 32}
	config := llamaConfig(map[string]any{"vocab_size": 8, "bos_token_id": 1})
	f, s := exportGGUF(t, makeModel(t, config, tensors, map[string]string{"tokenizer.json": piecesJSON,
		"tokenizer_config.json": `{"add_bos_token":true,"add_eos_token":true,"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`}), F16)
	wantKeys(t, f, map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.merges": nil,
		"tokenizer.ggml.tokens":     []string{"<unk>", "  x", "<0x0A>", "b", "ab", "a", "abb", "bb"},
		"tokenizer.ggml.token_type": []int{2, 4, 6, 1, 1, 1, 1, 1}, "tokenizer.ggml.scores": []int{-3, -3, -3, -3, 0, -3, -1, -2},
		"tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_space_prefix": true,
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_eos_token": true,
		"tokenizer.chat_template": "D", "tokenizer.chat_template.tool_use": "T", "tokenizer.chat_templates": []string{"tool_use"}})
	// "abb" can also be made from "a" and "bb", a pair for which the tokenizer lists no merge.
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "1 pieces can be put together") {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestTemplateFile: the chat template comes from chat_template.jinja if it exists, otherwise from
// tokenizer_config.json, otherwise from chat_template.json.
func TestTemplateFile(t *testing.T) {
	f, _ := exportGGUF(t, makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"chat_template.jinja": "J",
		"tokenizer.json": byteLevelJSON(fmt.Sprintf(byteLevelStep, true), ""), "tokenizer_config.json": `{"chat_template":"C"}`}), F16)
	wantKeys(t, f, map[string]any{"tokenizer.chat_template": "J"})
	f, _ = exportGGUF(t, makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{"chat_template.json": `{"chat_template":"P"}`,
		"tokenizer.json": byteLevelJSON(fmt.Sprintf(byteLevelStep, true), ""), "tokenizer_config.json": `{}`}), F16)
	wantKeys(t, f, map[string]any{"tokenizer.chat_template": "P"})
}

func TestTokenizerRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ file, content, want string }{
		"kind":    {"tokenizer.json", `{"model":{"type":"Unigram"}}`, `tokenizer.json: model.type: "Unigram" cannot be written as GGUF`},
		"broken":  {"tokenizer.json", `{`, "tokenizer.json: unexpected end of JSON"},
		"pointer": {"tokenizer.json", "version https://git-lfs.github.com/spec/v1\n", "tokenizer.json: this is a Git LFS pointer"},
		"merges":  {"tokenizer.json", `{"model":{"type":"BPE","merges":[["a"]]}}`, `tokenizer.json: a merge of ["a"]`},
		"one id":  {"tokenizer.json", `{"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":1,"b":1}}}`, `tokenizer.json: tokens "a" and "b": both have id 1`},
		"minus":   {"tokenizer.json", `{"model":{"type":"BPE","byte_fallback":true,"vocab":{"a":-1}}}`, `tokenizer.json: token "a": its id is -1`},
		"model":   {"tokenizer.model", "x", "only tokenizer.model is here, which is not read; write tokenizer.json with"},
		"config":  {"tokenizer_config.json", "{", "tokenizer_config.json: "},
	} {
		dir := makeModel(t, llamaConfig(nil), llamaTensors(), map[string]string{tc.file: tc.content})
		_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

// TestPhiName: if added tokens include the white space after them (rstrip), the model's name in the
// file contains Phi-3, by which llama.cpp recognises this. The vocabulary must have the tokens that
// llama.cpp then requires.
func TestPhiName(t *testing.T) {
	file := strings.Replace(piecesJSON, `"special":false}`, `"special":false,"rstrip":true}`, 1)
	for vocab, want := range map[string]bool{`"abb":6`: false, `"<s>":6,"<|endoftext|>":7`: true} {
		content := strings.Replace(file, `"abb":6,"bb":7`, vocab, 1)
		tensors := llamaTensors()
		tensors["model.embed_tokens.weight"], tensors["lm_head.weight"] = shape{8, 32}, shape{8, 32}
		f, _ := exportGGUF(t, makeModel(t, llamaConfig(map[string]any{"vocab_size": 8}), tensors, map[string]string{"tokenizer.json": content}), F16)
		if name, _ := f.Value("general.name").(string); strings.HasPrefix(name, "Phi-3 ") != want {
			t.Errorf("%s: the name is %q", vocab, name)
		}
	}
}

// TestRope: each rope type is written with its keys and tables, whether config.json has the keys of
// Transformers 4 or 5.
func TestRope(t *testing.T) {
	run := func(changes map[string]any) map[string]any {
		c := llamaConfig(changes)
		f, s := exportGGUF(t, makeModel(t, c, llamaTensors(), nil), F32)
		out := map[string]any{"notes": len(s.Notes)}
		for _, kv := range f.KVs {
			if k, ok := strings.CutPrefix(kv.Key, "llama.rope."); ok {
				out[k] = kv.Value
			}
		}
		if x, ok := f.Tensor("rope_freqs.weight"); ok {
			_, out["freqs"] = tensorOf(t, f, x.Name)
		}
		return out
	}
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_theta": 50000.0}
	yarn := map[string]any{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.3}
	for name, tc := range map[string]struct{ changes, want map[string]any }{
		"default": {nil, map[string]any{"freq_base": float32(1e4), "dimension_count": uint32(4), "notes": 1}},
		"linear":  {map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2.0}}, map[string]any{"scaling.type": "linear", "scaling.factor": float32(2)}},
		"yarn": {map[string]any{"rope_scaling": yarn}, map[string]any{"scaling.type": "yarn", "scaling.factor": float32(4), "scaling.original_context_length": uint32(16),
			"scaling.attn_factor": float32(1.3 / (1 + 0.1*math.Log(4)))}},
		"yarn's scales": {map[string]any{"rope_scaling": map[string]any{"type": "yarn", "factor": math.E, "mscale": 2.0, "mscale_all_dim": 1.0}},
			map[string]any{"scaling.attn_factor": float32(1.2 / 1.1 / 1.1)}},
		"dynamic": {map[string]any{"rope_theta": nil, "rope_parameters": map[string]any{"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}},
			map[string]any{"freq_base": float32(500), "scaling.type": nil, "notes": 2}},
		"llama3": {map[string]any{"rope_theta": nil, "rope_parameters": llama3}, map[string]any{"freq_base": float32(5e4), "scaling.type": nil}},
	} {
		got := run(tc.changes)
		for k, w := range tc.want {
			if got[k] != w {
				t.Errorf("%s: %s is %v, want %v", name, k, got[k], w)
			}
		}
	}
	// The expected factors are Transformers 5.23's inv_freq without scaling, divided by its
	// inv_freq with scaling, for head_dim 16.
	want := []float32{1, 4.5983381271362305, 8, 8, 8, 8, 8, 8}
	p := &plan{s: &settings{vals: map[string]any{"rope_parameters": llama3}}, headDim: 16}
	p.rope = rope{kind: "llama3", theta: 5e4, params: &settings{vals: map[string]any{"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32}}}
	p.ropeFreqs()
	// Both computations round to fp32 a few times, each time by at most 6e-8 of the value.
	if !slices.EqualFunc(p.items[0].values, want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*float64(b) }) {
		t.Errorf("factors %v, want %v", p.items[0].values, want)
	}
}

// TestLongRope: Phi-3's tables of frequency divisors, and the factor of its attention, are written
// for rope type longrope.
func TestLongRope(t *testing.T) {
	tensors := map[string]shape{"model.embed_tokens.weight": {6, 32}, "model.norm.weight": {32}, "lm_head.weight": {6, 32}}
	for _, b := range []string{"model.layers.0.", "model.layers.1."} {
		tensors[b+"input_layernorm.weight"], tensors[b+"post_attention_layernorm.weight"] = shape{32}, shape{32}
		tensors[b+"self_attn.qkv_proj.weight"], tensors[b+"self_attn.o_proj.weight"] = shape{20, 32}, shape{32, 12}
		tensors[b+"mlp.gate_up_proj.weight"], tensors[b+"mlp.down_proj.weight"] = shape{20, 32}, shape{32, 10}
	}
	c := llamaConfig(map[string]any{"architectures": nil, "model_type": "phi3", "original_max_position_embeddings": 16, "partial_rotary_factor": 0.5, "sliding_window": 9,
		"rope_scaling": map[string]any{"type": "yarn", "original_max_position_embeddings": 99, "long_factor": []float64{4}, "short_factor": []float64{1.5}}}) // for phi3 the type yarn means longrope
	f, s := exportGGUF(t, makeModel(t, c, tensors, nil), F32)
	wantKeys(t, f, map[string]any{"phi3.rope.dimension_count": 2, "phi3.rope.scaling.type": "longrope", "phi3.rope.scaling.original_context_length": 16,
		"phi3.rope.scaling.attn_factor": float32(math.Sqrt(1.5)), "phi3.attention.sliding_window": 9}) // √(1 + ln(64/16) / ln 16), for a context of 64 and 16 originally
	if _, v := tensorOf(t, f, "rope_factors_long.weight"); v[0] != 4 {
		t.Errorf("long factors %v", v)
	}
	if _, v := tensorOf(t, f, "rope_factors_short.weight"); v[0] != 1.5 {
		t.Errorf("short factors %v", v)
	}
	if x, _ := tensorOf(t, f, "blk.1.attn_qkv.weight"); x.Shape[0] != 20 {
		t.Errorf("%v", x)
	}
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "the same up to 9 tokens") {
		t.Errorf("notes %s", notes)
	}
}

// TestChunks: tensors that are too large to be converted in one chunk are written correctly.
func TestChunks(t *testing.T) {
	tensors := llamaTensors()
	for _, b := range []string{"0", "1"} { // heads of 16
		p := "model.layers." + b + ".self_attn."
		tensors[p+"q_proj.weight"], tensors[p+"o_proj.weight"] = shape{40000, 32}, shape{32, 40000}
		tensors[p+"k_proj.weight"], tensors[p+"v_proj.weight"] = shape{16, 32}, shape{16, 32}
	}
	f, _ := exportGGUF(t, makeModel(t, llamaConfig(map[string]any{"num_attention_heads": 2500, "head_dim": 16}), tensors, nil), BF16)
	_, got := tensorOf(t, f, "blk.1.attn_q.weight")
	for i, v := range got {
		row, col := int64(i)/32, int64(i)%32
		if v != value("model.layers.1.self_attn.q_proj.weight", (row/16*16+row%2*8+row%16/2)*32+col) {
			t.Fatalf("row %d, column %d is %v", row, col, v)
		}
	}
	_, got = tensorOf(t, f, "blk.0.attn_output.weight")
	for i, v := range got {
		if v != value("model.layers.0.self_attn.o_proj.weight", int64(i)) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}
