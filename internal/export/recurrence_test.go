package export

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
)

// recurrentConfig is a small Qwen3-Next of two blocks with a recurrence and one with attention.
func recurrentConfig(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "qwen3_next", "num_hidden_layers": 3, "head_dim": 16, "num_experts": 4, "shared_expert_intermediate_size": 20,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "full_attention_interval": 3})
	maps.Copy(config, changes)
	return config
}

// recurrentModel is one with random weights.
func recurrentModel(t *testing.T, config map[string]any) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 7))
	return makeModelOf(t, config, tensorsFor(t, config), nil, func(string, int64) float32 { return float32(0.3 * rng.NormFloat64()) })
}

// TestRecurrence: blocks with a recurrence have rows of q, k and v together, head by head as the others, and z apart; A_log is the rate
// itself, the taps a matrix; of norms, only that of the recurrence's output is written as it is.
func TestRecurrence(t *testing.T) {
	config := recurrentConfig(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "qwen3next", "qwen3next.ssm.conv_kernel": 4, "qwen3next.ssm.state_size": 16, "qwen3next.ssm.group_count": 2,
		"qwen3next.ssm.time_step_rank": 4, "qwen3next.ssm.inner_size": 64, "qwen3next.full_attention_interval": 3, "qwen3next.rope.dimension_count": 4,
		"qwen3next.expert_count": 4, "qwen3next.expert_shared_feed_forward_length": 20})
	const from = "model.layers.1.linear_attn."
	for name, want := range map[string]struct {
		shape []int64
		kind  gguf.Type
		from  string
		at    func(i int) int // of the directory's tensor
		of    func(v float32) float32
	}{
		"blk.1.attn_qkv.weight": {shape: []int64{128, 32}, kind: gguf.F16, from: "in_proj_qkvz.weight", at: func(i int) int {
			row, head, in := i/32, 0, 0
			switch { // of a key head: 16 rows of q, 16 of k, 32 of v, 32 of z
			case row < 32:
				head, in = row/16, row%16
			case row < 64:
				head, in = (row-32)/16, 16+row%16
			default:
				head, in = (row-64)/32, 32+row%32
			}
			return (head*96+in)*32 + i%32
		}},
		"blk.1.attn_gate.weight":  {shape: []int64{64, 32}, kind: gguf.F16, from: "in_proj_qkvz.weight", at: func(i int) int { return (i/32/32*96+64+i/32%32)*32 + i%32 }},
		"blk.1.ssm_ba.weight":     {shape: []int64{8, 32}, kind: gguf.F16, from: "in_proj_ba.weight"},
		"blk.1.ssm_conv1d.weight": {shape: []int64{128, 4}, kind: gguf.F32, from: "conv1d.weight"},
		"blk.1.ssm_dt.bias":       {shape: []int64{4}, kind: gguf.F32, from: "dt_bias"},
		"blk.1.ssm_a":             {shape: []int64{4}, kind: gguf.F32, from: "A_log", of: func(v float32) float32 { return float32(-math.Exp(float64(v))) }},
		"blk.1.ssm_norm.weight":   {shape: []int64{16}, kind: gguf.F32, from: "norm.weight"},
		"blk.1.ssm_out.weight":    {shape: []int64{32, 64}, kind: gguf.F16, from: "out_proj.weight"},
	} {
		x, got := tensorOf(t, f, name)
		if !slices.Equal(x.Shape, want.shape) || x.Type != want.kind {
			t.Errorf("%s: %v %v, want %v %v", name, x.Shape, x.Type, want.shape, want.kind)
		}
		for i, v := range got {
			at := i
			if want.at != nil {
				at = want.at(i)
			}
			w := value(from+want.from, int64(at))
			if want.of != nil {
				w = want.of(w)
			}
			if v != w {
				t.Fatalf("%s[%d] is %v, want %v", name, i, v, w)
			}
		}
	}
	if _, got := tensorOf(t, f, "blk.1.post_attention_norm.weight"); got[5] != 1+value("model.layers.1.post_attention_layernorm.weight", 5) {
		t.Errorf("a norm's weight is %v", got[5])
	}
	if x, _ := tensorOf(t, f, "blk.2.attn_q.weight"); !slices.Equal(x.Shape, []int64{64, 32}) {
		t.Errorf("queries and gates are %v", x.Shape)
	}
	config = recurrentConfig(map[string]any{"layer_types": []any{"linear_attention", "full_attention", "linear_attention"}})
	f, _ = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"qwen3next.full_attention_interval": 2})
	if x, _ := tensorOf(t, f, "blk.2.ssm_a"); !slices.Equal(x.Shape, []int64{4}) {
		t.Errorf("the last block's rates are %v", x.Shape)
	}
}

// TestRecurrenceRefused: what llama.cpp's qwen3next has no words for.
func TestRecurrenceRefused(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"linear_value_head_dim: 8, where":              {"linear_value_head_dim": 8},
		"attention_bias: is true":                      {"attention_bias": true},
		"norm_topk_prob: is false":                     {"norm_topk_prob": false},
		"decoder_sparse_step: layers without experts":  {"mlp_only_layers": []any{0}},
		"layer_types: layer 2 is linear_attention":     {"layer_types": []any{"full_attention", "full_attention", "linear_attention"}},
		"rope_type: llama3 cannot be written as GGUF:": {"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
	} {
		config := recurrentConfig(changes)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}

// TestLlamaCppRecurrence: the package gguf reads the file in every type, and llama.cpp itself computes what the reference does.
func TestLlamaCppRecurrence(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync", "gguf", "numpy")
	var text ids
	for i := range 60 {
		text = append(text, 1+i*i*7%23)
	}
	for _, changes := range []map[string]any{nil, {"layer_types": []any{"linear_attention", "full_attention", "linear_attention"}, "linear_num_key_heads": 4}} {
		dir := recurrentModel(t, recurrentConfig(changes))
		for _, kind := range GGUF.Types() {
			out := filepath.Join(t.TempDir(), "x.gguf")
			if _, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: kind}); err != nil {
				t.Fatal(err)
			}
			if got := run("testdata/check.py", out, dir); !strings.Contains(string(got), `"ok": true`) {
				t.Errorf("%s: %s", kind, got)
			}
			if kind != F32 {
				continue
			}
			var got struct{ Logits [][]float64 }
			if err := json.Unmarshal(run("testdata/llamacpp.py", out, "--ids", text.String()), &got); err != nil {
				t.Fatal(err)
			}
			want, worst, largest := logitsOf(t, dir, text), 0.0, 0.0
			for i, v := range slices.Concat(got.Logits...) {
				worst, largest = max(worst, math.Abs(v-want[i])), max(largest, math.Abs(want[i]))
			}
			if !(worst <= 1e-5*max(1, largest)) || len(got.Logits) != len(text) {
				t.Errorf("%v: off by %.2e of %.2g", changes, worst, largest)
			}
		}
	}
}
