package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
	"mt/internal/testkit"
)

// TestLlama: a Llama model is written with llama.cpp's names, shapes, types and keys. The rows of q
// and k are reordered.
func TestLlama(t *testing.T) {
	tensors := llamaTensors()
	for _, b := range []string{"0", "1"} {
		p := "model.layers." + b + ".self_attn."
		tensors[p+"q_proj.bias"], tensors[p+"k_proj.bias"], tensors[p+"v_proj.bias"], tensors[p+"o_proj.bias"] = shape{12}, shape{4}, shape{4}, shape{32}
	}
	tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = shape{2}
	tensors["vision_tower.x.weight"] = shape{3}
	f, s := exportGGUF(t, makeModel(t, llamaConfig(map[string]any{"attention_bias": true}), tensors, nil), BF16)
	if s.Tensors != len(tensors)-2 || len(f.Tensors) != s.Tensors || s.Architecture != "llama" {
		t.Errorf("%+v", s)
	}
	wantKeys(t, f, map[string]any{"general.architecture": "llama", "general.file_type": 32, "general.quantization_version": 2, "llama.block_count": 2,
		"llama.context_length": 64, "llama.embedding_length": 32, "llama.feed_forward_length": 10, "llama.attention.head_count": 3,
		"llama.attention.head_count_kv": 1, "llama.attention.key_length": 4, "llama.attention.value_length": 4, "llama.rope.freq_base": 10000,
		"llama.rope.dimension_count": 4, "llama.vocab_size": 6, "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "none"})
	for from, to := range map[string]string{"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
		"model.layers.1.input_layernorm": "blk.1.attn_norm", "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
		"model.layers.0.self_attn.v_proj": "blk.0.attn_v", "model.layers.1.self_attn.o_proj": "blk.1.attn_output",
		"model.layers.0.mlp.gate_proj": "blk.0.ffn_gate", "model.layers.0.mlp.up_proj": "blk.0.ffn_up", "model.layers.1.mlp.down_proj": "blk.1.ffn_down"} {
		x, got := tensorOf(t, f, to+".weight")
		if want := tensors[from+".weight"]; !slices.Equal(x.Shape, want) || (x.Type == gguf.F32) != (len(want) == 1) {
			t.Errorf("%s is %v %v, want %v", to, x.Type, x.Shape, want)
		}
		for i, v := range got {
			if v != value(from+".weight", int64(i)) {
				t.Fatalf("%s: element %d is %v", to, i, v)
			}
		}
	}
	// In a head of 4 rows, rows i and i+2 become rows 2i and 2i+1.
	order := []int64{0, 2, 1, 3}
	for name, cols := range map[string]int64{"model.layers.1.self_attn.q_proj.weight": 32, "model.layers.1.self_attn.q_proj.bias": 1, "model.layers.0.self_attn.k_proj.weight": 32} {
		to := strings.NewReplacer("model.layers", "blk", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k").Replace(name)
		_, got := tensorOf(t, f, to)
		for i, v := range got {
			row, col := int64(i)/cols, int64(i)%cols
			if want := value(name, (row/4*4+order[row%4])*cols+col); v != want {
				t.Fatalf("%s: row %d, column %d is %v, want %v", to, row, col, v, want)
			}
		}
	}
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "1 tensors that are not the language model's are left out, such as vision_tower.x.weight") {
		t.Errorf("notes: %s", notes)
	}
}

// TestTypes: matrices have the type that --outtype names. A matrix whose rows are no multiple of a
// Q8_0 block becomes F16 instead.
func TestTypes(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), nil)
	for kind, want := range map[Type]gguf.Type{"": gguf.F16, F32: gguf.F32, F16: gguf.F16, BF16: gguf.BF16, Q8: gguf.Q8_0} {
		f, s := exportGGUF(t, dir, kind)
		x, got := tensorOf(t, f, "blk.0.ffn_gate.weight")
		narrow, _ := tensorOf(t, f, "blk.0.ffn_down.weight")
		norm, _ := tensorOf(t, f, "blk.0.ffn_norm.weight")
		wantNarrow := want
		if kind == Q8 {
			wantNarrow = gguf.F16
		}
		if x.Type != want || narrow.Type != wantNarrow || norm.Type != gguf.F32 {
			t.Errorf("%q: %v, %v, %v", kind, x.Type, narrow.Type, norm.Type)
		}
		if said := strings.Contains(strings.Join(s.Notes, "\n"), "4 tensors are F16, such as blk.0.attn_output.weight: their rows are no multiple of 32"); said != (kind == Q8) {
			t.Errorf("%q: notes %v", kind, s.Notes)
		}
		types := map[string]int{}
		for _, x := range f.Tensors {
			types[x.Type.String()]++
		}
		if !maps.Equal(s.Types, types) {
			t.Errorf("%q: types %v, the file has %v", kind, s.Types, types)
		}
		for i, v := range got {
			w := value("model.layers.0.mlp.gate_proj.weight", int64(i))
			// Q8_0 has 127 steps from 0 to the largest magnitude of a block, which is below 2.
			// Rounding to a step is off by at most half a step, and rounding the scale by less than
			// another half, so 2/127 bounds both.
			if d := math.Abs(float64(v - w)); kind == Q8 && d > 2.0/127 || kind != Q8 && d != 0 {
				t.Fatalf("%q: element %d is %v, want %v", kind, i, v, w)
			}
		}
	}
}

// TestProgress: Progress is called with a growing number of bytes done, and at the end with the
// total.
func TestProgress(t *testing.T) {
	var done, total int64
	told := 0
	o := Options{Format: GGUF, Model: makeModel(t, llamaConfig(nil), llamaTensors(), nil), Out: filepath.Join(t.TempDir(), "x.gguf"), Progress: func(a, b int64) {
		if told++; a < done || told > 1 && b != total {
			t.Errorf("%d of %d after %d of %d", a, b, done, total)
		}
		done, total = a, b
	}}
	if s, err := Run(t.Context(), o); err != nil || told < 2 || done != total || total != s.Bytes {
		t.Errorf("%v, %d of %d of %d bytes, told %d times", err, done, total, s.Bytes, told)
	}
}

// TestLimits: a value that is too large for the type is an error, not an infinity in the file.
func TestLimits(t *testing.T) {
	for kind, tc := range map[gguf.Type]struct{ most, beyond float32 }{
		gguf.F16:  {65519, 65520},
		gguf.Q8_0: {127 * 65503, 127 * 65504},
		gguf.BF16: {3e38, float32(math.Inf(1))},
	} {
		for v, fits := range map[float32]bool{tc.most: true, -tc.most: true, -tc.beyond: kind == gguf.BF16, float32(math.NaN()): kind == gguf.BF16} {
			values := make([]float32, gguf.BlockLen)
			values[5] = v
			j := &writing{ctx: t.Context()}
			err := j.chunk(&bytes.Buffer{}, item{Tensor: gguf.Tensor{Name: "x", Type: kind}}, values)
			if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "cannot be stored as "+kind.String()+"; take --outtype bf16 or f32") {
				t.Errorf("%v: %v: %v", kind, v, err)
			}
			if fits && kind != gguf.BF16 {
				gguf.Decode(values, kind, j.raw)
				if math.IsInf(float64(values[5]), 0) || values[5] == 0 {
					t.Errorf("%v: %v is read as %v", kind, v, values[5])
				}
			}
		}
	}
}

// TestExperts: the matrices of all experts, one tensor each in the directory, become one tensor of
// three dimensions. The router stays fp32.
func TestExperts(t *testing.T) {
	config := llamaConfig(map[string]any{"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_experts": 3, "num_experts_per_tok": 2,
		"moe_intermediate_size": 5, "norm_topk_prob": true, "num_hidden_layers": 1})
	tensors := map[string]shape{}
	for name, s := range llamaTensors() {
		if !strings.Contains(name, ".mlp.") && !strings.Contains(name, "layers.1.") {
			tensors[name] = s
		}
	}
	tensors["model.layers.0.self_attn.q_norm.weight"], tensors["model.layers.0.self_attn.k_norm.weight"] = shape{4}, shape{4}
	tensors["model.layers.0.mlp.gate.weight"] = shape{3, 32}
	for e := range 3 {
		p := fmt.Sprintf("model.layers.0.mlp.experts.%d.", e)
		tensors[p+"gate_proj.weight"], tensors[p+"up_proj.weight"], tensors[p+"down_proj.weight"] = shape{5, 32}, shape{5, 32}, shape{32, 5}
	}
	f, _ := exportGGUF(t, makeModel(t, config, tensors, nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "qwen3moe", "qwen3moe.expert_count": 3, "qwen3moe.expert_used_count": 2, "qwen3moe.expert_feed_forward_length": 5})
	if x, _ := tensorOf(t, f, "blk.0.ffn_gate_inp.weight"); x.Type != gguf.F32 {
		t.Errorf("the router is %v", x.Type)
	}
	x, got := tensorOf(t, f, "blk.0.ffn_down_exps.weight")
	if !slices.Equal(x.Shape, []int64{3, 32, 5}) || x.Type != gguf.F16 {
		t.Errorf("%v %v", x.Type, x.Shape)
	}
	for i, v := range got {
		if v != value(fmt.Sprintf("model.layers.0.mlp.experts.%d.down_proj.weight", i/160), int64(i%160)) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
	_, q := tensorOf(t, f, "blk.0.attn_q.weight")
	if q[32] != value("model.layers.0.self_attn.q_proj.weight", 32) {
		t.Error("rows of q are reordered, but this architecture's are not")
	}
}

// TestGemma: for Gemma 3, norm weights are stored as 1 + w, and the pattern of sliding windows is
// written. A multimodal directory, whose tensors have other names, is read too.
func TestGemma(t *testing.T) {
	inner := llamaConfig(map[string]any{"model_type": "gemma3_text", "tie_word_embeddings": true, "sliding_window": 8, "query_pre_attn_scalar": 4,
		"layer_types": []string{"sliding_attention", "full_attention"}, "final_logit_softcapping": 30.0,
		"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}})
	tensors := map[string]shape{"language_model.model.embed_tokens.weight": {6, 32}, "language_model.model.norm.weight": {32}, "vision_tower.model.layers.0.x": {2}}
	for b := range 2 {
		p, from := fmt.Sprintf("language_model.model.layers.%d.", b), fmt.Sprintf("model.layers.%d.", b)
		for name, s := range llamaTensors() {
			if rest, ok := strings.CutPrefix(name, from); ok {
				tensors[p+rest] = s
			}
		}
		for _, n := range []string{"pre_feedforward_layernorm", "post_feedforward_layernorm"} {
			tensors[p+n+".weight"] = shape{32}
		}
		tensors[p+"self_attn.q_norm.weight"], tensors[p+"self_attn.k_norm.weight"] = shape{4}, shape{4}
	}
	config := map[string]any{"model_type": "gemma3", "text_config": inner}
	f, s := exportGGUF(t, makeModel(t, config, tensors, nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma3", "gemma3.attention.sliding_window": 8, "gemma3.attention.sliding_window_pattern": 2,
		"gemma3.rope.freq_base": 1e6, "gemma3.rope.freq_base_swa": 1e4, "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8,
		"gemma3.final_logit_softcapping": nil})
	for from, to := range map[string]string{"layers.1.post_attention_layernorm": "blk.1.post_attention_norm", "layers.0.pre_feedforward_layernorm": "blk.0.ffn_norm",
		"layers.0.post_feedforward_layernorm": "blk.0.post_ffw_norm", "layers.0.self_attn.q_norm": "blk.0.attn_q_norm", "norm": "output_norm"} {
		_, got := tensorOf(t, f, to+".weight")
		for i, v := range got {
			if want := 1 + value("language_model.model."+from+".weight", int64(i)); v != want {
				t.Fatalf("%s: element %d is %v, want %v", to, i, v, want)
			}
		}
	}
	if len(s.Notes) != 2 || !strings.Contains(s.Notes[1], "1 tensors") {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestMultipliers: Granite's four scale factors are written. The rows of its q are reordered like
// Llama's.
func TestMultipliers(t *testing.T) {
	config := llamaConfig(map[string]any{"architectures": []string{"GraniteForCausalLM"}, "model_type": "granite", "embedding_multiplier": 12.0,
		"residual_multiplier": 0.25, "logits_scaling": 8.0})
	f, _ := exportGGUF(t, makeModel(t, config, llamaTensors(), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "granite", "granite.embedding_scale": 12, "granite.residual_scale": 0.25, "granite.attention.scale": 1, "granite.logit_scale": 8})
	if _, q := tensorOf(t, f, "blk.0.attn_q.weight"); q[32] != value("model.layers.0.self_attn.q_proj.weight", 64) {
		t.Error("rows of q are not reordered")
	}
}

// TestRefuses: models that llama.cpp cannot express and incomplete model directories are errors.
func TestRefuses(t *testing.T) {
	type edit = func(c map[string]any, x map[string]shape)
	set := func(k string, v any) edit { return func(c map[string]any, _ map[string]shape) { c[k] = v } }
	for _, tc := range []struct {
		name, want string
		edit       edit
	}{
		{"family", `config.json: model_type: "bert" cannot be written as GGUF; known: llama, mistral, mistral3, ministral3, qwen2`, set("model_type", "bert")},
		{"missing key", "config.json: hidden_size: missing or 0", set("hidden_size", nil)},
		{"no number", "config.json: intermediate_size: many is not a number", set("intermediate_size", "many")},
		{"fraction", "config.json: num_hidden_layers: 1.5 is not a whole number", set("num_hidden_layers", 1.5)},
		{"heads", "config.json: num_attention_heads: 3 heads, 2 of keys", set("num_key_value_heads", 2)},
		{"rope type", `rope_type: "spiral" cannot be written as GGUF`, set("rope_scaling", map[string]any{"type": "spiral"})},
		{"beta", "beta_fast: 8, but llama.cpp takes it to be 32", set("rope_scaling", map[string]any{"type": "yarn", "factor": 2.0, "beta_fast": 8.0})},
		{"vocab", `tensor "model.embed_tokens.weight": its shape is [6 32], config.json asks for [1000000 32]`, set("vocab_size", 1000000)},
		{"head dim", `tensor "model.layers.0.self_attn.q_proj.weight": its shape is [12 32], config.json asks for [18 32]`, set("head_dim", 6)},
		{"huge head dim", "3 heads, 1 of keys, of 2147483646 elements: impossible", set("head_dim", 2147483646)},
		{"width", `tensor "model.embed_tokens.weight": its shape is [6 32], config.json asks for [6 64]`, set("hidden_size", 64)},
		{"quantized", `quantized weights of "awq" are not read`, set("quantization_config", map[string]any{"quant_method": "awq"})},
		{"architecture", `model_type: "foo" cannot be written as GGUF`, func(c map[string]any, _ map[string]shape) {
			c["architectures"], c["model_type"] = []string{"FooForCausalLM"}, "foo"
		}},
		{"missing tensor", `tensor "model.layers.1.mlp.up_proj.weight" is missing`, func(_ map[string]any, x map[string]shape) { delete(x, "model.layers.1.mlp.up_proj.weight") }},
		{"missing head", `tensor "lm_head.weight" is missing`, func(_ map[string]any, x map[string]shape) { delete(x, "lm_head.weight") }},
		{"unknown tensor", `tensor "model.layers.0.x.weight": config.json announces no such parameter`, func(_ map[string]any, x map[string]shape) { x["model.layers.0.x.weight"] = shape{1} }},
		{"dimensions", `tensor "lm_head.weight": its shape is [2 3 32], config.json asks for [6 32]`, func(_ map[string]any, x map[string]shape) { x["lm_head.weight"] = shape{2, 3, 32} }},
		{"router", "norm_topk_prob: is false, but llama.cpp's qwen3moe always", func(c map[string]any, _ map[string]shape) { c["model_type"], c["num_experts"] = "qwen3_moe", 4 }},
		{"dense layers", "decoder_sparse_step: layers without experts", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["num_experts"], c["norm_topk_prob"], c["mlp_only_layers"] = "qwen3_moe", 4, true, []int{1}
		}},
		{"layer types", "layer_types: layer 2 is full_attention", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["query_pre_attn_scalar"] = "gemma3_text", 4
			c["layer_types"] = []string{"sliding_attention", "full_attention", "full_attention"}
		}},
		{"scale", "query_pre_attn_scalar: 256, but llama.cpp's gemma3 takes 4", set("model_type", "gemma3_text")},
		{"window in four", "layer_types: layer 1 is full_attention: llama.cpp's olmo2 has full attention in each fourth layer", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["layer_types"] = "olmo3", []string{"sliding_attention", "full_attention"}
		}},
		{"two bases", "rope_parameters: rope_theta is 5 in sliding_attention and 10000 in full_attention", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["rope_parameters"] = "olmo3", map[string]any{"full_attention": map[string]any{}, "sliding_attention": map[string]any{"rope_theta": 5.0}}
		}},
		{"no divisors", "rope_type: llama3 cannot be written as GGUF: llama.cpp's granite", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["rope_scaling"] = "granite", map[string]any{"rope_type": "llama3"}
		}},
		{"turning layers", "no_rope_layers: layer 1 has 0: llama.cpp's smollm3", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["no_rope_layers"] = "smollm3", []int{1, 0}
		}},
		{"interval of turning layers", "no_rope_layer_interval: is not 4", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["no_rope_layer_interval"] = "smollm3", 2
		}},
		{"biases", "use_bias: is true, but llama.cpp's ernie4_5 has no biases", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["use_bias"] = "ernie4_5", true
		}},
		{"window in few layers", "sliding_window: 4096, but llama.cpp's exaone4 has one in models of 64 layers alone", set("model_type", "exaone4")},
		{"long factors", "short_factor: ", func(c map[string]any, _ map[string]shape) {
			c["model_type"], c["rope_scaling"] = "phi3", map[string]any{"type": "longrope", "long_factor": []float64{1, 2}, "short_factor": []float64{1}}
		}},
	} {
		config, tensors := llamaConfig(nil), llamaTensors()
		tc.edit(config, tensors)
		dir := makeModel(t, config, tensors, nil)
		out := t.TempDir()
		_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(out, "x.gguf")})
		if err == nil || !strings.HasPrefix(err.Error(), "export: ") || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
		if left := listDir(t, out); len(left) > 0 {
			t.Errorf("%s: %v is left", tc.name, left)
		}
	}
}

// TestOutput: an existing output stays, unless Overwrite is set. Then it stays until the new file
// is complete.
func TestOutput(t *testing.T) {
	dir := makeModel(t, llamaConfig(nil), llamaTensors(), nil)
	out := filepath.Join(t.TempDir(), "x.gguf")
	o := Options{Format: GGUF, Model: dir, Out: out}
	testkit.Must(Run(t.Context(), o))(t)
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrExists) {
		t.Errorf("got %v", err)
	}
	o.Overwrite = true
	broken := errors.New("broken")
	failures := 0
	for at := 0; ; at++ {
		o.fs = &failing{FS: checkpoint.OS(), at: at, err: broken}
		_, err := Run(t.Context(), o)
		if left := listDir(t, filepath.Dir(out)); len(left) != 1 {
			t.Fatalf("operation %d: %v is left", at, left)
		}
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, broken) {
			t.Fatalf("operation %d: %v", at, err)
		}
		openGGUF(t, out)
	}
	if failures < 4 { // free space, create, write, sync, rename
		t.Errorf("only %d operations can fail", failures)
	}
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	o.fs = nil
	if _, err := Run(ctx, o); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	for name, o := range map[string]Options{
		"is a directory":              {Format: GGUF, Model: dir, Out: t.TempDir()},
		"no such directory":           {Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "a", "b")},
		"is a file; give a directory": {Format: Safetensors, Model: dir, Out: out},
		"is the model itself":         {Format: Safetensors, Model: dir, Out: dir, Overwrite: true},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		t.Error(err)
	}
}

// TestTiledHeads: with 2 key heads of 3 value heads each, the value heads are reordered so that the
// first of each key head come first. This holds for rows, after rows that stay, and for columns.
func TestTiledHeads(t *testing.T) {
	got := make([]float32, 8)
	tiledHeads{first: 2, size: 1, heads: 2}.reorder(got, []float32{0, 1, 10, 11, 12, 20, 21, 22}, 8)
	if want := []float32{0, 1, 10, 20, 11, 21, 12, 22}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	got = make([]float32, 16)
	tiledHeads{size: 2, heads: 2, columns: true}.reorder(got, []float32{0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17}, 2)
	if want := []float32{0, 1, 4, 5, 2, 3, 6, 7, 10, 11, 14, 15, 12, 13, 16, 17}; !slices.Equal(got, want) {
		t.Errorf("columns %v, want %v", got, want)
	}
}
