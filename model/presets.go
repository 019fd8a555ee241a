package model

import (
	"cmp"
	"maps"
)

// shape returns the keys of a preset. After the model type, the arguments are hidden_size,
// intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
// vocab_size and further keys.
func shape(modelType string, h, ffn, layers, heads, kv, d, vocab int, rest map[string]any) map[string]any {
	m := map[string]any{
		"model_type": modelType, "hidden_size": h, "intermediate_size": ffn, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d, "vocab_size": vocab,
	}
	maps.Copy(m, rest)
	return m
}

// bytesVocab returns the keys of a preset whose tokens are bytes; token id 0 ends a text. positions is
// max_position_embeddings.
func bytesVocab(positions int) map[string]any {
	return map[string]any{"max_position_embeddings": positions, "rms_norm_eps": 1e-5, "eos_token_id": 0}
}

func llama2() map[string]any {
	return map[string]any{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
}

// llama3 returns the keys that the Llama 3.1 and 3.2 models share. Argument factor is the factor of
// rope_scaling; tied says whether embeddings are tied.
func llama3(factor float64, tied bool) map[string]any {
	return map[string]any{
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"bos_token_id": 128000, "eos_token_id": 128001, "tie_word_embeddings": tied,
		"rope_scaling": map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
	}
}

// qwen25 returns the keys that the Qwen2.5 base models share.
func qwen25(positions int, eps float64, tied bool) map[string]any {
	return map[string]any{"max_position_embeddings": positions, "rms_norm_eps": eps, "rope_theta": 1000000.0,
		"bos_token_id": 151643, "eos_token_id": 151643, "tie_word_embeddings": tied}
}

// qwen3 returns the keys that the Qwen3 chat models share; the base models' names end in "-Base".
func qwen3(tied bool) map[string]any {
	return map[string]any{"max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
		"bos_token_id": 151643, "eos_token_id": 151645, "tie_word_embeddings": tied}
}

// qwen35 has the keys that Qwen3.5's presets share. heads is the number of value heads in a recurrence.
func qwen35(heads int, tied bool) map[string]any {
	return map[string]any{"max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "rope_theta": 1e7, "partial_rotary_factor": 0.25,
		"eos_token_id": 248044, "tie_word_embeddings": tied, "linear_num_value_heads": heads}
}

// gemma4 returns the keys that the text models of Gemma 4 share: windows in five blocks of six, and in the others keys
// that are values too, with globalKV heads of 512 elements. `more` are keys of one model.
func gemma4(globalKV int, more map[string]any) map[string]any {
	m := map[string]any{"max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "sliding_window": 1024, "attention_k_eq_v": true,
		"global_head_dim": 512, "num_global_key_value_heads": globalKV, "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0,
		"tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
	maps.Copy(m, more)
	return m
}

// gemma3 returns the keys that the text models of Gemma 3 share. scalar is query_pre_attn_scalar. stretched says that
// positions are divided by eight for RoPE, as in the models from 4b on.
func gemma3(positions, window int, scalar float64, stretched bool) map[string]any {
	m := map[string]any{"max_position_embeddings": positions, "sliding_window": window, "query_pre_attn_scalar": scalar,
		"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
	if stretched {
		m["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": 8.0}
	}
	return m
}

// moe returns the keys that the Qwen3-MoE models share; expert is the width of an expert.
func moe(expert int) map[string]any {
	m := qwen3(false)
	maps.Copy(m, map[string]any{"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": expert, "norm_topk_prob": true})
	return m
}

// oss returns the keys that the gpt-oss models share; experts is the number of experts in a block.
func oss(experts int) map[string]any {
	return map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "attention_bias": true, "sliding_window": 128,
		"num_local_experts": experts, "num_experts_per_tok": 4, "router_aux_loss_coef": 0.9, "rope_theta": 150000.0, "eos_token_id": 200002,
		"pad_token_id": 199999, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
			"truncate": false, "original_max_position_embeddings": 4096}}
}

// olmo returns the keys that the 7B OLMo models share, together with rest, a model's own keys.
func olmo(positions int, rest map[string]any) map[string]any {
	m := map[string]any{"max_position_embeddings": positions, "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "eos_token_id": 100257, "pad_token_id": 100277}
	maps.Copy(m, rest)
	return m
}

// olmo3Long is the rope scaling of the OLMo 3 models, for blocks without a window.
var olmo3Long = map[string]any{"sliding_window": 4096, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0,
	"beta_slow": 1.0, "attention_factor": 1.2079441541679836, "original_max_position_embeddings": 8192}}

// granite31 returns the keys that the Granite 3.1 models share. attention is attention_multiplier,
// logits is logits_scaling and theta the RoPE base.
func granite31(attention, logits, theta float64) map[string]any {
	return map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": theta, "tie_word_embeddings": true,
		"embedding_multiplier": 12.0,
		"residual_multiplier":  0.22, "attention_multiplier": attention, "logits_scaling": logits, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
}

// gpt2Of returns a GPT-2 preset with the given hidden size, layers and heads. The MLP's width follows from the hidden
// size.
func gpt2Of(h, layers, heads int) map[string]any {
	return map[string]any{"model_type": "gpt2", "n_embd": h, "n_layer": layers, "n_head": heads, "vocab_size": 50257, "n_positions": 1024,
		"layer_norm_epsilon": 1e-5, "bos_token_id": 50256, "eos_token_id": 50256}
}

// pythia returns a Pythia model, whose MLP is four times as wide as the hidden state.
func pythia(h, layers, heads, vocab int) map[string]any {
	return map[string]any{"model_type": "gpt_neox", "hidden_size": h, "intermediate_size": 4 * h, "num_hidden_layers": layers, "num_attention_heads": heads,
		"vocab_size": vocab, "max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "rotary_pct": 0.25, "rotary_emb_base": 10000.0,
		"use_parallel_residual": true, "bos_token_id": 0, "eos_token_id": 0}
}

// phi returns the keys that the Phi models share. window is sliding_window, or nil, and theta the
// RoPE base.
func phi(window any, theta float64, positions, bos, eos, pad int) map[string]any {
	return map[string]any{"max_position_embeddings": positions, "original_max_position_embeddings": positions, "rope_theta": theta,
		"rms_norm_eps": 1e-5, "sliding_window": window, "bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
}

// presets maps names of models to the keys of their config.json.
var presets = map[string]map[string]any{
	"tiny":       shape("llama", 64, 176, 2, 4, 2, 16, 256, bytesVocab(256)),
	"quickstart": shape("llama", 256, 704, 6, 8, 4, 32, 256, bytesVocab(1024)),

	"llama-1b":  shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, llama3(32, true)),
	"llama-3b":  shape("llama", 3072, 8192, 28, 24, 8, 128, 128256, llama3(32, true)),
	"llama-7b":  shape("llama", 4096, 11008, 32, 32, 32, 128, 32000, llama2()),
	"llama-8b":  shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, llama3(8, false)),
	"llama-13b": shape("llama", 5120, 13824, 40, 40, 40, 128, 32000, llama2()),
	"llama-70b": shape("llama", 8192, 28672, 80, 64, 8, 128, 128256, llama3(8, false)),

	"llama-405b": shape("llama", 16384, 53248, 126, 128, 8, 128, 128256, llama3(8, false)),

	"qwen2.5-0.5b": shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, qwen25(32768, 1e-6, true)),
	"qwen2.5-1.5b": shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, qwen25(131072, 1e-6, true)),
	"qwen2.5-3b":   shape("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, qwen25(32768, 1e-6, true)),
	"qwen2.5-7b":   shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, qwen25(131072, 1e-6, false)),
	"qwen2.5-14b":  shape("qwen2", 5120, 13824, 48, 40, 8, 128, 152064, qwen25(131072, 1e-5, false)),
	"qwen2.5-32b":  shape("qwen2", 5120, 27648, 64, 40, 8, 128, 152064, qwen25(131072, 1e-5, false)),
	"qwen2.5-72b":  shape("qwen2", 8192, 29568, 80, 64, 8, 128, 152064, qwen25(131072, 1e-5, false)),

	"qwen3-0.6b": shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, qwen3(true)),
	"qwen3-4b":   shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, qwen3(true)),
	"qwen3-8b":   shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, qwen3(false)),
	"qwen3-14b":  shape("qwen3", 5120, 17408, 40, 40, 8, 128, 151936, qwen3(false)),

	"qwen3-32b": shape("qwen3", 5120, 25600, 64, 64, 8, 128, 151936, qwen3(false)),

	"mistral-7b": shape("mistral", 4096, 14336, 32, 32, 8, 128, 32000, map[string]any{"max_position_embeddings": 32768,
		"rms_norm_eps": 1e-5, "sliding_window": 4096, "bos_token_id": 1, "eos_token_id": 2}),

	"gemma3-1b":  shape("gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, gemma3(32768, 512, 256, false)),
	"gemma3-4b":  shape("gemma3_text", 2560, 10240, 34, 8, 4, 256, 262208, gemma3(131072, 1024, 256, true)),
	"gemma3-12b": shape("gemma3_text", 3840, 15360, 48, 16, 8, 256, 262208, gemma3(131072, 1024, 256, true)),
	"gemma3-27b": shape("gemma3_text", 5376, 21504, 62, 32, 16, 128, 262208, gemma3(131072, 1024, 168, true)),
	"gemma4-12b": shape("gemma4_text", 3840, 15360, 48, 16, 8, 256, 262144, gemma4(1, nil)),
	"gemma4-31b": shape("gemma4_text", 5376, 21504, 60, 32, 16, 256, 262144, gemma4(4, nil)),
	"gemma4-26b-a4b": shape("gemma4_text", 2816, 2112, 30, 16, 8, 256, 262144, gemma4(2, map[string]any{
		"enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704})),

	"phi3-mini": shape("phi3", 3072, 8192, 32, 32, 32, 96, 32064, phi(2047, 10000, 4096, 1, 32000, 32000)),
	"phi4":      shape("phi3", 5120, 17920, 40, 40, 10, 128, 100352, phi(nil, 250000, 16384, 100257, 100257, 100257)),

	"qwen3-30b-a3b":   shape("qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, moe(768)),
	"qwen3-235b-a22b": shape("qwen3_moe", 4096, 12288, 94, 64, 4, 128, 151936, moe(1536)),

	// These presets have the published models' sizes. For 9b, 35b-a3b and MiniMax-M2 they equal Transformers' defaults.
	"qwen3.5-4b":      shape("qwen3_5_text", 2560, 9216, 32, 16, 4, 256, 248320, qwen35(32, true)),
	"qwen3.5-9b":      shape("qwen3_5_text", 4096, 12288, 32, 16, 4, 256, 248320, qwen35(32, false)),
	"qwen3.5-27b":     shape("qwen3_5_text", 5120, 17408, 64, 24, 4, 256, 248320, qwen35(48, false)),
	"qwen3.5-35b-a3b": shape("qwen3_5_moe_text", 2048, 512, 40, 16, 2, 256, 248320, qwen35(32, false)),
	"minimax-m2":      shape("minimax_m2", 3072, 1536, 62, 48, 8, 128, 200064, map[string]any{"rotary_dim": 64}),

	"deepseek-v2-lite": {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
		"num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6,
		"q_lora_rank": nil, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
		"rope_theta": 10000.0, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
			"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}, "bos_token_id": 100000, "eos_token_id": 100001},
	"deepseek-v3": {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
		"num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6,
		"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
		"rope_theta": 10000.0, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
			"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}, "bos_token_id": 0, "eos_token_id": 1},

	"olmo2-7b": shape("olmo2", 4096, 11008, 32, 32, 32, 128, 100352, olmo(4096, nil)),
	"olmo3-7b": shape("olmo3", 4096, 11008, 32, 32, 32, 128, 100278, olmo(65536, olmo3Long)),
	"smollm3-3b": shape("smollm3", 2048, 11008, 36, 16, 4, 128, 128256, map[string]any{"max_position_embeddings": 65536, "rms_norm_eps": 1e-6, "rope_theta": 5e6,
		"tie_word_embeddings": true, "no_rope_layer_interval": 4, "bos_token_id": 128000, "eos_token_id": 128012, "pad_token_id": 128004}),

	"granite3.1-2b": shape("granite", 2048, 8192, 40, 32, 8, 64, 49155, granite31(0.015625, 8, 5e6)),
	"granite3.1-8b": shape("granite", 4096, 12800, 40, 32, 8, 128, 49155, granite31(0.0078125, 16, 1e7)),

	"nemotron-3-nano": shape("nemotron_h", 2688, 1856, 52, 32, 2, 128, 131072, map[string]any{"max_position_embeddings": 262144, "layer_norm_epsilon": 1e-5,
		"hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
		"n_groups": 8, "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
		"routed_scaling_factor": 2.5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),

	"glm4-9b": shape("glm4", 4096, 13696, 40, 32, 2, 128, 151552, map[string]any{"max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"partial_rotary_factor": 0.5, "attention_bias": true, "eos_token_id": []any{151329, 151336, 151338}, "pad_token_id": 151329}),

	"kimi-linear-48b-a3b": {"model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
		"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 163840, "model_max_length": 1048576, "rms_norm_eps": 1e-5,
		"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"linear_attn_config": map[string]any{"full_attn_layers": []any{4, 8, 12, 16, 20, 24, 27}, "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
			"kda_layers": []any{1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26}},
		"num_experts": 256, "num_shared_experts": 1, "num_experts_per_token": 8, "moe_intermediate_size": 1024, "routed_scaling_factor": 2.446,
		"bos_token_id": 163584, "eos_token_id": 163586, "pad_token_id": 163839},

	"glm-4.7-flash": {"model_type": "glm4_moe_lite", "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
		"num_attention_heads": 20, "num_key_value_heads": 20, "vocab_size": 154880, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
		"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
		"n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "routed_scaling_factor": 1.8,
		"rope_theta": 1e6, "eos_token_id": []any{154820, 154827, 154829}, "pad_token_id": 154820},

	"glm-5": {"model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
		"num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 154880, "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
		"q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
		"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
		"routed_scaling_factor": 2.5, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32,
		"rope_theta": 1e6, "eos_token_id": []any{154820, 154827, 154829}, "pad_token_id": 154820},

	"mixtral-8x7b": shape("mixtral", 4096, 14336, 32, 32, 8, 128, 32000, map[string]any{"max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
		"num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02, "bos_token_id": 1, "eos_token_id": 2}),

	"gpt2":        gpt2Of(768, 12, 12),
	"gpt2-medium": gpt2Of(1024, 24, 16),
	"gpt2-large":  gpt2Of(1280, 36, 20),
	"gpt2-xl":     gpt2Of(1600, 48, 25),
	"pythia-160m": pythia(768, 12, 12, 50304),
	"pythia-1b":   pythia(2048, 16, 8, 50304),
	"pythia-6.9b": pythia(4096, 32, 32, 50432),

	"gpt-oss-20b":  shape("gpt_oss", 2880, 2880, 24, 64, 8, 64, 201088, oss(32)),
	"gpt-oss-120b": shape("gpt_oss", 2880, 2880, 36, 64, 8, 64, 201088, oss(128)),
}

// aliases maps further names of published models to presets.
var aliases = map[string]string{
	"llama-2-7b": "llama-7b", "llama-2-13b": "llama-13b", "llama-3.2-1b": "llama-1b", "llama-3.2-3b": "llama-3b",
	"llama-3.1-8b": "llama-8b", "llama-3.1-70b": "llama-70b", "llama-3.1-405b": "llama-405b",
}

// presetOf returns the preset of a name or an alias.
func presetOf(name string) (map[string]any, bool) {
	m, ok := presets[cmp.Or(aliases[name], name)]
	return m, ok
}
