package export

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
)

// sharedConfig is a small model that shares an expert.
func sharedConfig(changes map[string]any) map[string]any {
	config := map[string]any{"vocab_size": 24, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
	maps.Copy(config, changes)
	return config
}

func glmConfig(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "glm4_moe", "n_routed_experts": 4, "n_shared_experts": 3, "head_dim": 8, "routed_scaling_factor": 1.5})
	maps.Copy(config, changes)
	return config
}

// TestDenseAndShared: the first block has a dense MLP, the other experts, a bias that chooses them, and three shared
// ones that are one as wide as three.
func TestDenseAndShared(t *testing.T) {
	config := glmConfig(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "glm4moe", "glm4moe.expert_count": 4, "glm4moe.expert_used_count": 2, "glm4moe.expert_shared_count": 3,
		"glm4moe.expert_feed_forward_length": 8, "glm4moe.leading_dense_block_count": 1, "glm4moe.expert_gating_func": 2, "glm4moe.rope.dimension_count": 4,
		"glm4moe.expert_weights_scale": 1.5, "glm4moe.expert_weights_norm": true})
	for name, want := range map[string]gguf.Tensor{
		"blk.0.ffn_up.weight":              {Shape: []int64{12, 32}, Type: gguf.F16},
		"blk.1.ffn_up_shexp.weight":        {Shape: []int64{24, 32}, Type: gguf.F16},
		"blk.1.ffn_down_exps.weight":       {Shape: []int64{4, 32, 8}, Type: gguf.F16},
		"blk.1.exp_probs_b.bias":           {Shape: []int64{4}, Type: gguf.F32},
		"blk.1.ffn_gate_inp.weight":        {Shape: []int64{4, 32}, Type: gguf.F32},
		"blk.1.attn_k.weight":              {Shape: []int64{8, 32}, Type: gguf.F16},
		"blk.1.post_attention_norm.weight": {Shape: []int64{32}, Type: gguf.F32},
	} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want.Shape) || x.Type != want.Type {
			t.Errorf("%s: %v %v, want %v %v", name, x.Shape, x.Type, want.Shape, want.Type)
		}
	}
	if _, bias := tensorOf(t, f, "blk.1.exp_probs_b.bias"); bias[3] != value("model.layers.1.mlp.gate.e_score_correction_bias", 3) {
		t.Errorf("the bias is %v", bias)
	}
}

// TestSharedGate: the gate of a shared expert is a vector.
func TestSharedGate(t *testing.T) {
	config := sharedConfig(map[string]any{"model_type": "qwen2_moe", "num_experts": 3, "shared_expert_intermediate_size": 20})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "qwen2moe", "qwen2moe.expert_count": 3, "qwen2moe.expert_shared_feed_forward_length": 20})
	x, gate := tensorOf(t, f, "blk.1.ffn_gate_inp_shexp.weight")
	if !slices.Equal(x.Shape, []int64{32}) || x.Type != gguf.F32 || gate[31] != value("model.layers.1.mlp.shared_expert_gate.weight", 31) {
		t.Errorf("the gate is %v %v", x.Shape, x.Type)
	}
}

func llama4Config(changes map[string]any) map[string]any {
	config := sharedConfig(map[string]any{"model_type": "llama4_text", "num_local_experts": 3, "num_experts_per_tok": 1, "intermediate_size": 10,
		"intermediate_size_mlp": 20, "head_dim": 8, "interleave_moe_layer_step": 2, "bos_token_id": 1, "eos_token_id": 2})
	delete(config, "moe_intermediate_size")
	maps.Copy(config, changes)
	return config
}

// TestExpertsInterleaved: every second block has experts, whose matrices lie in one tensor, and a shared one; the others are dense.
func TestExpertsInterleaved(t *testing.T) {
	config := llama4Config(map[string]any{"no_rope_layers": []any{}, "attn_temperature_tuning": 4, "num_hidden_layers": 4})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "llama4", "llama4.expert_count": 3, "llama4.expert_used_count": 1, "llama4.feed_forward_length": 20,
		"llama4.expert_feed_forward_length": 10, "llama4.interleave_moe_layer_step": 2, "llama4.rope.dimension_count": 8})
	for name, want := range map[string][]int64{"blk.0.ffn_up.weight": {20, 32}, "blk.3.ffn_gate_exps.weight": {3, 10, 32}, "blk.1.ffn_down_exps.weight": {3, 32, 10},
		"blk.1.ffn_up_shexp.weight": {10, 32}, "blk.1.ffn_gate_inp.weight": {3, 32}, "blk.2.attn_q.weight": {16, 32}} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, want %v", name, x.Shape, want)
		}
	}
	// Row 4 of expert 2's up, column 5: element (2, 5, 10 + 4) of (3, 32, 20).
	if _, up := tensorOf(t, f, "blk.1.ffn_up_exps.weight"); up[(2*10+4)*32+5] != value("model.layers.1.feed_forward.experts.gate_up_proj", (2*32+5)*20+14) {
		t.Error("up is not where it is to be")
	}
}

// TestExpertsCut: a model file that is cut while experts are read from it is said to be truncated.
func TestExpertsCut(t *testing.T) {
	config := llama4Config(map[string]any{"no_rope_layers": []any{}, "attn_temperature_tuning": 4})
	dir := makeModel(t, config, tensorsFor(t, config), nil)
	f, _ := exportGGUF(t, dir, F16)
	experts, ok := f.Tensor("blk.1.ffn_gate_exps.weight")
	_, err := Run(t.Context(), Options{Format: GGUF, Model: dir, Out: filepath.Join(t.TempDir(), "x.gguf"), Type: F16, Progress: func(done, _ int64) {
		if done >= f.Data+experts.Off {
			if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 1); err != nil {
				t.Error(err)
			}
		}
	}})
	if !ok || err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("cut before the experts: error %v", err)
	}
}

// TestExpertsRefused: what llama.cpp computes otherwise is not written.
func TestExpertsRefused(t *testing.T) {
	for _, tc := range []struct {
		config map[string]any
		want   string
	}{
		{glmConfig(map[string]any{"n_group": 2, "topk_group": 1}), "topk_group: 1 of 2 groups of experts are open: llama.cpp's glm4moe has no groups"},
		{sharedConfig(map[string]any{"model_type": "qwen2_moe", "num_experts": 3, "norm_topk_prob": true}), "norm_topk_prob: is true, but llama.cpp's qwen2moe never"},
		{llama4Config(map[string]any{"attention_chunk_size": 4096}), "attention_chunk_size: is 4096, but llama.cpp's llama4 takes it to be 8192"},
		{llama4Config(map[string]any{"attn_temperature_tuning": false}), "attn_temperature_tuning: is false, but"},
		{llama4Config(map[string]any{"floor_scale": 100}), "floor_scale: is 100, but"},
		{llama4Config(map[string]any{"attn_scale": 0.2}), "attn_scale: is 0.2, but"},
		{llama4Config(map[string]any{"use_qk_norm": false}), "use_qk_norm: is false, but"},
		{llama4Config(map[string]any{"num_local_experts": 128}), "use_qk_norm: is true, but"},
		{llama4Config(map[string]any{"no_rope_layers": []any{1, 0}}), "no_rope_layers: layer 1 has 0"},
		{llama4Config(map[string]any{"layer_types": []any{"chunked_attention", "full_attention"}}), "layer_types: layer 1 is full_attention"},
		{llama4Config(map[string]any{"moe_layers": []any{0}}), "moe_layers: layer 1: llama.cpp's llama4 has experts in every n-th layer"},
		{llama4Config(map[string]any{"moe_layers": []any{}}), "moe_layers: has no layer"},
	} {
		_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, tc.config, tensorsFor(t, tc.config), nil), Out: filepath.Join(t.TempDir(), "x.gguf")})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}
