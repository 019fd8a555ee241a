package export

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
	"mt/internal/testkit"
)

// wantRefused checks that the export of a model with this config.json is an error that contains want.
func wantRefused(t *testing.T, config map[string]any, want string) {
	t.Helper()
	_, err := Run(t.Context(), Options{Format: GGUF, Model: makeModel(t, config, tensorsFor(t, config), nil), Out: filepath.Join(t.TempDir(), "x"), Type: F32})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// falconConfig returns the config.json of a small Falcon-H1 model, all of whose factors differ. changes replace its keys.
func falconConfig(changes map[string]any) map[string]any {
	config := map[string]any{"model_type": "falcon_h1", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2,
		"mamba_d_state": 16, "mamba_rms_norm": true, "mamba_norm_before_gate": false, "attention_in_multiplier": 0.8, "attention_out_multiplier": 0.9,
		"key_multiplier": 0.7, "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "mlp_multipliers": []any{0.9, 0.6},
		"ssm_multipliers": []any{0.9, 1.1, 0.8, 1.2, 0.7}, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.75}
	maps.Copy(config, changes)
	return config
}

// TestFactorsOfRows: llama.cpp has no factors on activations, so rows of weights are multiplied. A head that is tied to an
// embedding with another factor becomes a tensor.
func TestFactorsOfRows(t *testing.T) {
	config := falconConfig(map[string]any{"tie_word_embeddings": true})
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F32)
	wantKeys(t, f, map[string]any{"general.architecture": "falcon-h1", "falcon-h1.ssm.conv_kernel": 4, "falcon-h1.ssm.state_size": 16,
		"falcon-h1.ssm.group_count": 2, "falcon-h1.ssm.inner_size": 64, "falcon-h1.ssm.time_step_rank": 4, "falcon-h1.attention.head_count_kv": 2,
		"falcon-h1.attention.key_length": 8, "falcon-h1.feed_forward_length": 40})
	const block = "model.layers.1."
	for _, c := range []struct {
		to, from string
		row      int
		by       float64
	}{
		{"token_embd.weight", "model.embed_tokens.weight", 47, 2}, {"output.weight", "model.embed_tokens.weight", 47, 0.5},
		{"blk.1.attn_q.weight", block + "self_attn.q_proj.weight", 31, 1}, {"blk.1.attn_k.weight", block + "self_attn.k_proj.weight", 15, 0.8 * 0.8 * 0.7},
		{"blk.1.attn_v.weight", block + "self_attn.v_proj.weight", 15, 0.8 * 0.9}, {"blk.1.attn_output.weight", block + "self_attn.o_proj.weight", 31, 1},
		{"blk.1.ffn_gate.weight", block + "feed_forward.gate_proj.weight", 39, 0.9}, {"blk.1.ffn_up.weight", block + "feed_forward.up_proj.weight", 39, 1},
		{"blk.1.ffn_down.weight", block + "feed_forward.down_proj.weight", 31, 0.6}, {"blk.1.ssm_out.weight", block + "mamba.out_proj.weight", 31, 0.75},
		{"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 63, 1.25 * 0.9}, {"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 64, 1.25 * 1.1},
		{"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 127, 1.25 * 1.1}, {"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 128, 1.25 * 0.8},
		{"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 160, 1.25 * 1.2}, {"blk.1.ssm_in.weight", block + "mamba.in_proj.weight", 195, 1.25 * 0.7},
		{"blk.1.ssm_a", block + "mamba.A_log", -1, 0}, {"blk.1.ffn_norm", block + "pre_ff_layernorm.weight", 31, 1},
	} {
		x, got := tensorOf(t, f, c.to)
		if c.row < 0 {
			if !slices.Equal(x.Shape, []int64{4, 1}) || x.Type != gguf.F32 || got[0] >= 0 {
				t.Errorf("%s: %v %v of %v", c.to, got, x.Type, x.Shape)
			}
			continue
		}
		cols := 1
		if len(x.Shape) == 2 {
			cols = int(x.Shape[1])
		}
		at := c.row*cols + cols - 1
		if want := float64(value(c.from, int64(at))) * c.by; float64(got[at]) < want*(1-1e-6) || float64(got[at]) > want*(1+1e-6) {
			t.Errorf("%s: row %d is %v, want %v", c.to, c.row, got[at], want)
		}
	}
}

// nemotronConfig returns the config.json of a small Nemotron-H model with one block of each kind. changes replace its
// keys.
func nemotronConfig(changes map[string]any) map[string]any {
	config := map[string]any{"model_type": "nemotron_h", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 8, "layers_block_type": []any{"mamba", "attention", "moe"}, "mamba_num_heads": 4, "mamba_head_dim": 16,
		"n_groups": 2, "ssm_state_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
		"moe_shared_expert_intermediate_size": 20, "routed_scaling_factor": 1.5}
	maps.Copy(config, changes)
	return config
}

// TestSinglePart: a block of Nemotron-H has one part. The keys tell by block which blocks have key/value heads and which
// an MLP.
func TestSinglePart(t *testing.T) {
	config := nemotronConfig(map[string]any{"n_group": 2, "topk_group": 1})
	f, s := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "nemotron_h_moe", "nemotron_h_moe.block_count": 3, "nemotron_h_moe.rope.freq_base": nil,
		"nemotron_h_moe.attention.head_count_kv": []int32{0, 2, 0}, "nemotron_h_moe.feed_forward_length": []int32{0, 0, 24},
		"nemotron_h_moe.attention.layer_norm_rms_epsilon": float32(1e-5), "nemotron_h_moe.attention.layer_norm_epsilon": float32(1e-5),
		"nemotron_h_moe.ssm.group_count": 2, "nemotron_h_moe.expert_count": 4, "nemotron_h_moe.expert_used_count": 2,
		"nemotron_h_moe.expert_shared_feed_forward_length": 20, "nemotron_h_moe.expert_weights_scale": 1.5, "nemotron_h_moe.expert_weights_norm": true,
		"nemotron_h_moe.expert_group_count": 2, "nemotron_h_moe.expert_group_used_count": 1})
	for name, want := range map[string][]int64{"blk.0.ssm_in.weight": {196, 32}, "blk.0.ssm_norm.weight": {2, 32}, "blk.0.ssm_d": {4, 1}, "blk.0.ssm_conv1d.weight": {128, 4},
		"blk.1.attn_k.weight": {16, 32}, "blk.2.ffn_up_exps.weight": {4, 24, 32}, "blk.2.ffn_down_exps.weight": {4, 32, 24}, "blk.2.ffn_up_shexp.weight": {20, 32},
		"blk.2.exp_probs_b.bias": {4}, "blk.2.attn_norm.weight": {32}} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, want %v", name, x.Shape, want)
		}
	}
	if !strings.Contains(strings.Join(s.Notes, " "), "no least time step, and this model has 0.001") {
		t.Errorf("notes %q", s.Notes)
	}
	config = nemotronConfig(map[string]any{"layers_block_type": absent{}, "hybrid_override_pattern": "M*M"})
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == absent{} })
	f, _ = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "nemotron_h", "nemotron_h.attention.head_count_kv": []int32{0, 2, 0},
		"nemotron_h.feed_forward_length": []int32{0, 0, 0}, "nemotron_h.expert_count": nil})
}

// gemma4Config returns the config.json of a small Gemma 4 model whose last two blocks share keys and values and have
// inputs of their own. changes replace its keys.
func gemma4Config(changes map[string]any) map[string]any {
	near := map[string]any{"rope_type": "default", "rope_theta": 1e4}
	config := map[string]any{"model_type": "gemma4_text", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16, "sliding_window": 4,
		"layer_types":          []any{"sliding_attention", "full_attention", "sliding_attention", "full_attention"},
		"rope_parameters":      map[string]any{"sliding_attention": near, "full_attention": map[string]any{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}},
		"num_kv_shared_layers": 2, "use_double_wide_mlp": true, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 48, "final_logit_softcapping": 8.0,
		"bos_token_id": 1, "eos_token_id": 2}
	maps.Copy(config, changes)
	return config
}

// gemma4Large are the keys of a model with experts instead of inputs of blocks.
var gemma4Large = map[string]any{"num_kv_shared_layers": 0, "use_double_wide_mlp": false, "hidden_size_per_layer_input": 0, "enable_moe_block": true, "num_experts": 4,
	"top_k_experts": 2, "moe_intermediate_size": 24}

// TestGemma4: keys by block, the divisors of frequencies, and the tensors of experts.
func TestGemma4(t *testing.T) {
	config := gemma4Config(nil)
	f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"general.architecture": "gemma4", "gemma4.attention.key_length": 16, "gemma4.attention.value_length": 16,
		"gemma4.attention.key_length_swa": 8, "gemma4.attention.value_length_swa": 8, "gemma4.attention.sliding_window": 4,
		"gemma4.attention.sliding_window_pattern": []int32{1, 0, 1, 0}, "gemma4.attention.shared_kv_layers": 2, "gemma4.feed_forward_length": []int32{40, 40, 80, 80},
		"gemma4.attention.head_count_kv": []int32{2, 2, 2, 2}, "gemma4.embedding_length_per_layer_input": 4, "gemma4.rope.freq_base": 1e6, "gemma4.rope.freq_base_swa": 1e4,
		"gemma4.rope.dimension_count": 16, "gemma4.rope.dimension_count_swa": 8, "gemma4.final_logit_softcapping": 8, "gemma4.expert_count": nil})
	if _, got := tensorOf(t, f, "rope_freqs.weight"); !slices.Equal(got, []float32{1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30}) {
		t.Errorf("frequencies are divided by %v", got)
	}
	for name, want := range map[string][]int64{"per_layer_token_embd.weight": {48, 16}, "per_layer_model_proj.weight": {16, 32}, "per_layer_proj_norm.weight": {4},
		"blk.3.inp_gate.weight": {4, 32}, "blk.3.proj.weight": {32, 4}, "blk.3.post_norm.weight": {32}, "blk.1.attn_k.weight": {32, 32}, "blk.2.layer_output_scale.weight": {1}} {
		if x, _ := tensorOf(t, f, name); !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, want %v", name, x.Shape, want)
		}
	}
	if _, shared := f.Tensor("blk.3.attn_k.weight"); shared {
		t.Error("block 3 has keys of its own")
	}
	config = gemma4Config(gemma4Large)
	f, _ = exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
	wantKeys(t, f, map[string]any{"gemma4.expert_count": 4, "gemma4.expert_used_count": 2, "gemma4.expert_feed_forward_length": 24, "gemma4.attention.shared_kv_layers": 0})
	x, both := tensorOf(t, f, "blk.1.ffn_gate_up_exps.weight")
	if !slices.Equal(x.Shape, []int64{4, 48, 32}) || both[3*48*32+40*32+5] != value("model.layers.1.experts.gate_up_proj", 3*48*32+40*32+5) {
		t.Errorf("gates and ups are %v", x.Shape)
	}
	for name, from := range map[string]string{"ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale"} {
		if _, got := tensorOf(t, f, "blk.1."+name); got[3] != value("model.layers.1."+from, 3) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRecentRefused: a model that llama.cpp would not load or compute otherwise is an error that names the key.
func TestRecentRefused(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("checks one configuration after another")
	}
	sharing := func(types ...any) map[string]any {
		return gemma4Config(map[string]any{"layer_types": types, "num_hidden_layers": len(types)})
	}
	gemma4Rope := func(near, full map[string]any) map[string]any {
		near["rope_theta"], full["rope_theta"] = 1e4, 1e6
		return gemma4Config(map[string]any{"rope_parameters": map[string]any{"sliding_attention": near, "full_attention": full}})
	}
	window, full := "sliding_attention", "full_attention"
	both := map[string]any{"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
	linear := func() map[string]any { return map[string]any{"rope_type": "linear", "factor": 2.0} }
	hybrid := func(key string, v any) map[string]any {
		return map[string]any{"model_type": "granitemoehybrid", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2,
			"num_attention_heads": 4, "num_key_value_heads": 2, "layer_types": []any{"mamba", "attention"}, "num_local_experts": 0, "shared_intermediate_size": 44,
			"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, key: v}
	}
	small := func(kind string, changes map[string]any) map[string]any {
		config := llamaConfig(map[string]any{"architectures": nil, "model_type": kind, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "num_attention_heads": 4})
		maps.Copy(config, changes)
		return config
	}
	limits := []any{0.01, 0.2}
	for _, c := range []struct {
		config map[string]any
		want   string
	}{
		{falconConfig(map[string]any{"attention_bias": true, "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0}), "attention_bias: is true, but llama.cpp's falcon-h1"},
		{falconConfig(map[string]any{"mamba_conv_bias": false}), "mamba_conv_bias: is false, but llama.cpp's falcon-h1"},
		{falconConfig(map[string]any{"mamba_proj_bias": true, "projectors_bias": true, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0}), "mamba_proj_bias: is true"},
		{falconConfig(map[string]any{"time_step_limit": limits}), "time_step_limit: cannot be written: llama.cpp's falcon-h1"},
		{falconConfig(map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 16}}), "rope_type: llama3 cannot be written as GGUF: llama.cpp's falcon-h1"},
		{nemotronConfig(map[string]any{"use_bias": true}), "use_bias: is true, but llama.cpp's nemotron_h_moe"},
		{nemotronConfig(map[string]any{"mlp_bias": true}), "mlp_bias: is true, but llama.cpp's nemotron_h_moe"},
		{nemotronConfig(map[string]any{"use_conv_bias": false}), "use_conv_bias: is false, but llama.cpp's nemotron_h_moe"},
		{nemotronConfig(map[string]any{"time_step_min": 0.01}), "time_step_min: 0.01, but llama.cpp's nemotron_h_moe"},
		{nemotronConfig(map[string]any{"layers_block_type": []any{"attention", "moe"}}), "layers_block_type: no layer has a Mamba-2 mixer"},
		{nemotronConfig(map[string]any{"layers_block_type": []any{"mamba", "mlp", "attention"}}), "layers_block_type: layer 1 is an MLP alone, which mt export does not write for llama.cpp's nemotron_h"},
		{gemma4Config(map[string]any{"attention_bias": true}), "attention_bias: is true, but llama.cpp's gemma4"},
		{gemma4Config(map[string]any{"hidden_activation": "silu"}), "hidden_activation: silu, but llama.cpp's gemma4"},
		{gemma4Config(map[string]any{"vocab_size_per_layer_input": 50}), "vocab_size_per_layer_input: 50, where vocab_size is 48"},
		{gemma4Rope(linear(), map[string]any{}), "rope_parameters: sliding_attention: rope_type linear"},
		{gemma4Config(map[string]any{"global_head_dim": 8, "rope_parameters": map[string]any{window: both, full: both}}), "rope_parameters: sliding_attention: rope_type proportional"},
		{gemma4Rope(map[string]any{}, linear()), "rope_parameters: full_attention: rope_type linear"},
		{sharing(full, window, window, full), "num_kv_shared_layers: 2: layer 2 shares keys and values of another layer"},
		{sharing(window, full, full, window, full), "num_kv_shared_layers: 2: layer 3 shares"},
		{sharing(full, full, full), "layer_types: no layer has a sliding window, but llama.cpp's gemma4"},
		{indexedConfig(map[string]any{"index_head_dim": 32}), "index_head_dim: 32 is no multiple of 64: llama.cpp's glm-dsa would abort"},
		{hybrid("time_step_limit", limits), "time_step_limit: cannot be written: llama.cpp's granitehybrid"},
		{hybrid("mamba_conv_bias", false), "mamba_conv_bias: is false, but llama.cpp's granitehybrid"},
		{hybrid("mamba_proj_bias", true), "mamba_proj_bias: is true, but llama.cpp's granitehybrid"},
		{hybrid("attention_bias", true), "attention_bias: is true, but llama.cpp's granitehybrid"},
		{small("apertus", map[string]any{"hidden_act": "xielu", "tie_word_embeddings": true}), "tie_word_embeddings: true, but llama.cpp's apertus has a head of its own"},
		{small("apertus", map[string]any{"hidden_act": "xielu", "attention_bias": true}), "attention_bias: is true, but llama.cpp's apertus"},
		{small("ernie4_5", map[string]any{"use_bias": true}), "use_bias: is true, but llama.cpp's ernie4_5"},
		{small("ernie4_5_moe", map[string]any{"use_bias": true}), "use_bias: is true, but llama.cpp's ernie4_5-moe"},
		{small("hy_v3", map[string]any{"attention_bias": true}), "attention_bias: is true, but llama.cpp's hy_v3"},
		{mlaConfig(map[string]any{"model_type": "mistral4", "attention_bias": true, "n_group": 1, "rope_scaling": nil}), "attention_bias: is true, but llama.cpp's mistral4"},
	} {
		wantRefused(t, c.config, c.want)
	}
}

// TestLlamaCppVariants: llama.cpp computes the reference's logits for models that differ from the recorded ones.
func TestLlamaCppVariants(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for name, config := range map[string]map[string]any{
		"a tied head and biases of the MLP": falconConfig(map[string]any{"tie_word_embeddings": true, "mlp_bias": true, "mlp_multipliers": []any{0.9, 1.0}}),
		"scaled positions":                  falconConfig(map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 4.0}}),
		"groups of experts":                 nemotronConfig(map[string]any{"n_group": 2, "topk_group": 1}),
		"no experts":                        nemotronConfig(map[string]any{"layers_block_type": []any{"attention", "mamba", "attention"}}),
	} {
		t.Run(name, func(t *testing.T) { sameLogits(t, run, recurrentModel(t, config), 1e-5) })
	}
	for name, config := range map[string]map[string]any{
		"other windows": gemma4Config(map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "full_attention", "full_attention"}, "num_kv_shared_layers": 1}),
		"scaled frequencies": gemma4Config(map[string]any{"rope_parameters": map[string]any{"sliding_attention": map[string]any{"rope_theta": 1e4},
			"full_attention": map[string]any{"rope_type": "proportional", "rope_theta": 1e3, "factor": 3.0}}}),
		"experts": gemma4Config(gemma4Large),
	} {
		t.Run(name, func(t *testing.T) { sameLogits(t, run, recurrentModel(t, config), 2e-3) })
	}
}

// indexedConfig returns the config.json of a small model with latent attention and an indexer. changes replace its keys.
func indexedConfig(changes map[string]any) map[string]any {
	config := mlaConfig(map[string]any{"model_type": "glm_moe_dsa", "vocab_size": 48, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
		"q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "head_dim": 8, "rms_norm_eps": 1e-6,
		"index_n_heads": 2, "index_head_dim": 64, "index_topk": 64, "n_group": 1, "rope_scaling": nil})
	maps.Copy(config, changes)
	return config
}

// TestLlamaCppIndexer: llama.cpp computes the reference's logits for models with an indexer.
func TestLlamaCppIndexer(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for _, changes := range []map[string]any{
		{},
		{"model_type": "deepseek_v32", "n_group": 2},
		{"model_type": "deepseek_v32", "rope_scaling": mlaYarn(1, 1)},
	} {
		sameLogits(t, run, recurrentModel(t, indexedConfig(changes)), 1e-5)
	}
}
