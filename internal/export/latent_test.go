package export

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
	"mt/internal/reference"
)

// latentConfig is a small DeepSeek-V3.
func latentConfig(changes map[string]any) map[string]any {
	config := map[string]any{"model_type": "deepseek_v3", "vocab_size": 24, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
		"num_key_value_heads": 3, "head_dim": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1,
		"n_group": 2, "topk_group": 1, "q_lora_rank": 10, "kv_lora_rank": 6, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 5, "routed_scaling_factor": 1.5,
		"rope_theta": 10000.0, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 0.5}}
	maps.Copy(config, changes)
	return config
}

// TestLatent: what makes keys is cut from what makes values, head by head, and turned; the file says that there is one
// head of keys, as wide as the narrow vector and what turns.
func TestLatent(t *testing.T) {
	config := latentConfig(nil)
	f, s := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "deepseek2", "deepseek2.attention.head_count": 3, "deepseek2.attention.head_count_kv": 1,
		"deepseek2.attention.key_length": 10, "deepseek2.attention.value_length": 6, "deepseek2.attention.key_length_mla": 12, "deepseek2.attention.value_length_mla": 5,
		"deepseek2.attention.kv_lora_rank": 6, "deepseek2.attention.q_lora_rank": 10, "deepseek2.rope.dimension_count": 4,
		"deepseek2.rope.scaling.yarn_log_multiplier": float32(0.05), "deepseek2.expert_gating_func": 2, "deepseek2.expert_group_count": 2, "deepseek2.expert_group_used_count": 1,
		"deepseek2.expert_weights_scale": 1.5, "deepseek2.expert_weights_norm": true, "deepseek2.expert_shared_count": 2, "deepseek2.leading_dense_block_count": 1})
	if f.Value("deepseek2.rope.scaling.attn_factor") != nil || len(s.Notes) > 0 && strings.Contains(strings.Join(s.Notes, " "), "narrow") {
		t.Errorf("the file has a factor of attention, or a note: %q", s.Notes)
	}
	const name, heads, nope, value5, rank = "model.layers.1.self_attn.kv_b_proj.weight", 3, 8, 5, 6
	k, ks := tensorOf(t, f, "blk.1.attn_k_b.weight")
	v, vs := tensorOf(t, f, "blk.1.attn_v_b.weight")
	if !slices.Equal(k.Shape, []int64{heads, rank, nope}) || !slices.Equal(v.Shape, []int64{heads, value5, rank}) {
		t.Fatalf("k_b is %v, v_b %v", k.Shape, v.Shape)
	}
	for h := range heads {
		for c := range rank {
			for r := range nope + value5 {
				want, got := value(name, int64((h*(nope+value5)+r)*rank+c)), float32(0)
				if r < nope {
					got = ks[(h*rank+c)*nope+r]
				} else {
					got = vs[(h*value5+r-nope)*rank+c]
				}
				if got != want {
					t.Fatalf("head %d, row %d, column %d is %v, want %v", h, r, c, got, want)
				}
			}
		}
	}
	if x, _ := tensorOf(t, f, "blk.0.ffn_up.weight"); x.Type != gguf.F32 {
		t.Errorf("the first block is not dense: %v", x)
	}
	config = latentConfig(map[string]any{"model_type": "deepseek_v2", "q_lora_rank": nil, "n_group": nil, "topk_group": nil, "rope_scaling": nil, "rms_norm_eps": 1e-5})
	f, s = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"deepseek2.expert_gating_func": 1})
	if x, _ := tensorOf(t, f, "blk.1.attn_q.weight"); !slices.Equal(x.Shape, []int64{36, 32}) || f.Value("deepseek2.expert_group_count") != nil {
		t.Errorf("queries are %v", x.Shape)
	}
	if !strings.Contains(strings.Join(s.Notes, " "), "rms_norm_eps 1e-05 too") {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestLatentRefused: what llama.cpp's deepseek2 has no words for.
func TestLatentRefused(t *testing.T) {
	yarn := func(m, all float64) map[string]any {
		return map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": m, "mscale_all_dim": all}
	}
	for want, changes := range map[string]map[string]any{
		"mscale: is 0.7 and mscale_all_dim 0.9":        {"rope_scaling": yarn(0.7, 0.9)},
		"mscale: is 0 and mscale_all_dim 0":            {"rope_scaling": yarn(0, 0)},
		"rope_interleave: is false":                    {"rope_interleave": false},
		"attention_bias: is true, but llama.cpp":       {"attention_bias": true},
		"mlp_bias: is true, but llama.cpp":             {"model_type": "deepseek_v2", "topk_method": "greedy", "n_group": nil, "topk_group": nil, "mlp_bias": true},
		`topk_method: "group_limited_greedy": a group`: {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"},
	} {
		config := latentConfig(changes)
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}

// TestLlamaCppDeepseekV2: llama.cpp itself computes what the reference does, for queries that are made of a narrow vector
// and for such as are not, with and without yarn's temperatures.
func TestLlamaCppDeepseekV2(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for _, name := range []string{"deepseekv2-whole", "deepseekv2-groups"} {
		for _, rope := range []map[string]any{{"rope_type": "default"}, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
			"beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}} {
			rope["rope_theta"] = 10000.0
			sameLogits(t, run, recordedModel(t, name, map[string]any{"rope_parameters": rope, "rms_norm_eps": 1e-6, "topk_method": "greedy"}), 1e-5)
		}
	}
}

// absent in place of a key's value leaves the key out.
type absent struct{}

// recordedModel is a small recorded model with other keys.
func recordedModel(t *testing.T, name string, keys map[string]any) string {
	t.Helper()
	from := filepath.Join("../train/testdata/recordings", name, "model")
	v, err := readJSON(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := v.(map[string]any)
	maps.Copy(config, keys)
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == absent{} })
	weights, err := os.ReadFile(filepath.Join(from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, data := range map[string][]byte{"config.json": mustJSON(t, config), "model.safetensors": weights} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sameLogits writes a model of at least 45 tokens as GGUF, of which llama.cpp must compute the reference's logits: to bound, in units of the
// largest if that is above 1. In fp32 1e-5 suffices for sums of up to 50 products in another order.
func sameLogits(t *testing.T, run func(args ...string) []byte, dir string, bound float64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.gguf")
	if _, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: out, Type: F32}); err != nil {
		t.Fatal(err)
	}
	var got struct{ Logits [][]float64 }
	text := ids{9, 24, 12, 23, 24, 21, 17, 1, 15, 8, 21, 40, 3, 3, 31, 6, 44, 2, 11, 30}
	if err := json.Unmarshal(run("testdata/llamacpp.py", out, "--ids", text.String()), &got); err != nil {
		t.Fatal(err)
	}
	want, worst, largest := logitsOf(t, dir, text), 0.0, 0.0
	for i, v := range slices.Concat(got.Logits...) {
		worst, largest = max(worst, math.Abs(v-want[i])), max(largest, math.Abs(want[i]))
	}
	if !(worst <= bound*max(1, largest)) || len(got.Logits) != len(text) {
		t.Errorf("%s: off by %.2e of %.2g", dir, worst, largest)
	}
}

// logitsOf are the reference's logits of a directory.
func logitsOf(t *testing.T, dir string, text ids) []float64 {
	t.Helper()
	c, _, plain, err := reference.LoadModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int32
	for _, id := range text {
		tokens = append(tokens, int32(id))
	}
	return reference.Logits(c, plain, tokens)
}
