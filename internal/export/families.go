package export

import (
	"slices"
	"strings"

	"mt/model"
)

// family is what llama.cpp calls and expects of a family of models. Sources:
// the families' modules in https://github.com/ggml-org/llama.cpp, conversion/,
// and MODEL_TENSORS of the PyPI package gguf.
type family struct {
	types []string // model_type in config.json
	arch  string   // general.architecture
	block []rule   // tensors of a decoder block
	dense []rule   // those of blocks without experts, where only some have them
	// recurrent are those of blocks with a recurrence in the place of attention, where some have one.
	recurrent []rule
	// width is what config.json calls the width of a dense MLP; "": intermediate_size.
	width string
	// defaults of config.json are those of package model, as far as keys need them.
	defaults map[string]any
	// names are what config.json calls keys that most families share, where it is not that.
	names map[string]string
	// top are the tensors outside the blocks; nil: outer. blocks is how the blocks' names begin; "": "layers.".
	top    []rule
	blocks string
	// latent: attention is latent, and has its own rules in front of these.
	latent bool
	// layerNorm: norms are LayerNorm.
	layerNorm bool
	noRope    bool // positions are learned
	// ropeTypes are other names of rotary embeddings.
	ropeTypes map[string]string
	// halves: rotary pairs are (i, i+D/2) in the directory and (2i, 2i+1) in
	// llama.cpp's code for this architecture, so rows of q and k are reordered.
	halves bool
	// shift is added to norm weights: (1+w) norms are stored as 1+w.
	shift float32
	// rounds: yarn's "truncate: false" is written all the same, with a note.
	rounds bool
	// act is what llama.cpp computes of the gate, or of up where there is none.
	act model.Activation
	// keys are those beside the common ones; modelled what needs package model's reading of them, and comes behind.
	keys     []func(p *plan)
	modelled func(p *plan)
}

// rule names a module of a block on both sides; its weight and, where there is
// one, its bias.
type rule struct {
	from, to string
	how      how
}

// how says what happens to a tensor on its way.
type how uint8

const (
	copied        how = iota
	queries           // heads may be reordered, num_attention_heads of them
	keys              // the same, num_key_value_heads of them
	norm              // the family's shift is added; always fp32
	normIfAny         // the same of a module that some models do not have
	router            // always fp32
	experts           // one tensor per expert becomes one tensor of three dimensions, biases of two
	single            // a matrix of one row becomes a vector
	bare              // the names are whole: it is not the weight or bias of a module
	rates             // the same, and the values are −exp of the directory's
	taps              // a matrix of three dimensions, the second of which is 1, becomes one of two; always fp32
	stacked           // modules whose names stand with spaces between them become one, by rows
	keysOfHeads       // of latent attention's product for keys and values, what is for keys
	valuesOfHeads     // the same for values
	firstHalf         // the first half of the rows
	secondHalf        // the second half of them
)

// outer are the tensors outside the blocks, the same everywhere.
var outer = []rule{
	{"model.embed_tokens", "token_embd", copied},
	{"model.norm", "output_norm", norm},
	{"lm_head", "output", copied},
}

// attention of separate projections.
var attention = []rule{
	{"input_layernorm", "attn_norm", norm},
	{"self_attn.q_proj", "attn_q", queries},
	{"self_attn.k_proj", "attn_k", keys},
	{"self_attn.v_proj", "attn_v", copied},
	{"self_attn.o_proj", "attn_output", copied},
}

// headNorms are the norms of q and k.
var headNorms = []rule{
	{"self_attn.q_norm", "attn_q_norm", norm},
	{"self_attn.k_norm", "attn_k_norm", norm},
}

var headNormsIfAny = []rule{
	{"self_attn.q_norm", "attn_q_norm", normIfAny},
	{"self_attn.k_norm", "attn_k_norm", normIfAny},
}

var feedForward = []rule{
	{"post_attention_layernorm", "ffn_norm", norm},
	{"mlp.gate_proj", "ffn_gate", copied},
	{"mlp.up_proj", "ffn_up", copied},
	{"mlp.down_proj", "ffn_down", copied},
}

// expertMatrices are those of experts with the usual names.
var expertMatrices = []rule{
	{"mlp.experts.gate_proj", "ffn_gate_exps", experts},
	{"mlp.experts.up_proj", "ffn_up_exps", experts},
	{"mlp.experts.down_proj", "ffn_down_exps", experts},
}

// sharedExpert are the matrices of the expert that every token goes through, in a module of that name.
func sharedExpert(module string) []rule {
	return []rule{
		{module + ".gate_proj", "ffn_gate_shexp", copied},
		{module + ".up_proj", "ffn_up_shexp", copied},
		{module + ".down_proj", "ffn_down_shexp", copied},
	}
}

// sharedAndChosen are what Qwen3-Next has in the place of an MLP, with the norm before it.
var sharedAndChosen = slices.Concat([]rule{
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"mlp.gate", "ffn_gate_inp", router},
}, expertMatrices, []rule{{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", single}}, sharedExpert("mlp.shared_expert"))

// ungated is an MLP without a gate, as llama.cpp has it.
func ungated(mlpNorm, up, down string) []rule {
	return []rule{{mlpNorm, "ffn_norm", norm}, {up, "ffn_up", copied}, {down, "ffn_down", copied}}
}

// mrope is a name of rotary embeddings that turn with a token's place in an image; sections has the rest.
var mrope = map[string]string{"mrope": "default"}

// olmo has norms of outputs alone.
var olmo = slices.Concat(attention[1:], headNorms, outputNorms, feedForward[1:])

var outputNorms = []rule{
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"post_feedforward_layernorm", "post_ffw_norm", norm},
}

var glmDefaults = map[string]any{"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
	"partial_rotary_factor": 0.5}

var families = []family{
	{
		types: []string{"llama"}, arch: "llama", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"mistral", "mistral3"}, arch: "llama", halves: true,
		block:    slices.Concat(attention, feedForward),
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 4096},
		keys:     []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"ministral3"}, arch: "mistral3", halves: true,
		block: slices.Concat(attention, feedForward),
		defaults: map[string]any{"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
			"rope_parameters": map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384.0,
				"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
		keys: []func(*plan){(*plan).ropeDims, (*plan).tempers, (*plan).windowIgnored},
	},
	{
		types: []string{"qwen2"}, arch: "qwen2",
		block:    slices.Concat(attention, feedForward),
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     []func(*plan){(*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3"}, arch: "qwen3",
		block:    slices.Concat(attention, headNorms, feedForward),
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128},
		keys:     []func(*plan){(*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_moe"}, arch: "qwen3moe",
		block: slices.Concat(attention, headNorms, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate", "ffn_gate_inp", router},
		}, expertMatrices),
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096},
		keys:     []func(*plan){(*plan).normalisedExperts, (*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}, arch: "qwen2vl", ropeTypes: mrope,
		block:    slices.Concat(attention, feedForward),
		defaults: map[string]any{"num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 1e6},
		keys:     []func(*plan){sections(16, 24, 24), (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_vl", "qwen3_vl_text"}, arch: "qwen3vl", ropeTypes: mrope,
		block:    slices.Concat(attention, headNorms, feedForward),
		defaults: map[string]any{"num_key_value_heads": 32, "max_position_embeddings": 128000, "head_dim": 128, "rope_theta": 5e5},
		keys:     []func(*plan){sections(24, 20, 20), (*plan).deepstack},
	},
	{
		types: []string{"qwen3_vl_moe", "qwen3_vl_moe_text"}, arch: "qwen3vlmoe", ropeTypes: mrope,
		block: slices.Concat(attention, headNorms, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate", "ffn_gate_inp", router},
		}, expertMatrices),
		defaults: map[string]any{"num_key_value_heads": 16, "max_position_embeddings": 128000, "rope_theta": 5e5, "num_experts_per_tok": 4,
			"moe_intermediate_size": 1408, "norm_topk_prob": true},
		keys: []func(*plan){(*plan).normalisedExperts, sections(24, 20, 20), (*plan).deepstack},
	},
	{
		types: []string{"qwen2_moe"}, arch: "qwen2moe",
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate", "ffn_gate_inp", router},
		}, expertMatrices, []rule{{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", single}}, sharedExpert("mlp.shared_expert")),
		defaults: map[string]any{"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 60, "num_experts_per_tok": 4,
			"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
		keys: []func(*plan){(*plan).expertsAndShared, (*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_next"}, arch: "qwen3next", shift: 1,
		block: slices.Concat(attention, headNorms, sharedAndChosen), // attn_q has, head by head, the query and its gate
		recurrent: slices.Concat([]rule{
			{"input_layernorm", "attn_norm", norm},
			{"linear_attn.q linear_attn.k linear_attn.v", "attn_qkv", stacked},
			{"linear_attn.z", "attn_gate", copied},
			{"linear_attn.in_proj_ba", "ssm_ba", copied}, // by key heads, as it is
			{"linear_attn.conv1d", "ssm_conv1d", taps},
			{"linear_attn.dt_bias", "ssm_dt.bias", bare},
			{"linear_attn.A_log", "ssm_a", rates},
			{"linear_attn.norm", "ssm_norm", copied}, // the weight is all of the factor
			{"linear_attn.out_proj", "ssm_out", copied},
		}, sharedAndChosen),
		defaults: map[string]any{"max_position_embeddings": 32768, "num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25, "intermediate_size": 5632,
			"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true},
		keys: []func(*plan){(*plan).normalisedExperts, (*plan).ropeDims, (*plan).noFreqs, (*plan).recurrences},
	},
	{
		types: []string{"mixtral"}, arch: "llama", halves: true,
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"block_sparse_moe.gate", "ffn_gate_inp", router},
			{"block_sparse_moe.experts.w1", "ffn_gate_exps", experts},
			{"block_sparse_moe.experts.w3", "ffn_up_exps", experts},
			{"block_sparse_moe.experts.w2", "ffn_down_exps", experts},
		}),
		defaults: map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2},
		keys:     []func(*plan){(*plan).expertCounts, (*plan).ropeDims, (*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"glm4_moe"}, arch: "glm4moe",
		dense: slices.Concat(attention, headNormsIfAny, []rule{{"post_attention_layernorm", "post_attention_norm", norm}}, feedForward[1:]),
		block: slices.Concat(attention, headNormsIfAny, []rule{
			{"post_attention_layernorm", "post_attention_norm", norm},
			{"mlp.gate", "ffn_gate_inp", router},
			{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare},
		}, expertMatrices, sharedExpert("mlp.shared_experts")),
		defaults: map[string]any{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "n_routed_experts": 128,
			"n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
			"routed_scaling_factor": 1.0, "norm_topk_prob": true},
		keys: []func(*plan){(*plan).sigmoidExperts, (*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"deepseek_v2"}, arch: "deepseek2", latent: true,
		dense: feedForward, block: deepseekExperts(),
		defaults: map[string]any{"max_position_embeddings": 2048, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
			"v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0},
		keys: []func(*plan){(*plan).deepseek2Keys},
	},
	{
		types: []string{"deepseek_v3"}, arch: "deepseek2", latent: true,
		dense: feedForward, block: deepseekExperts(rule{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare}),
		defaults: map[string]any{"max_position_embeddings": 4096, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
			"v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
			"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5},
		keys: []func(*plan){(*plan).deepseek3Keys},
	},
	{
		types: []string{"gpt_oss"}, arch: "gpt-oss", rounds: true,
		block: slices.Concat(attention, []rule{
			{"self_attn.sinks", "attn_sinks.weight", bare},
			{"post_attention_layernorm", "post_attention_norm", norm},
			{"mlp.router", "ffn_gate_inp", router},
		}, expertMatrices),
		defaults: map[string]any{"max_position_embeddings": 131072, "sliding_window": 128, "head_dim": 64, "rope_theta": 150000.0, "rms_norm_eps": 1e-5,
			"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "num_local_experts": 128, "num_experts_per_tok": 4},
		keys: []func(*plan){(*plan).ossKeys},
	},
	{
		types: []string{"llama4_text", "llama4"}, arch: "llama4", width: "intermediate_size_mlp",
		dense: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"feed_forward.gate_proj", "ffn_gate", copied},
			{"feed_forward.up_proj", "ffn_up", copied},
			{"feed_forward.down_proj", "ffn_down", copied},
		}),
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"feed_forward.router", "ffn_gate_inp", router},
			{"feed_forward.experts.gate_proj", "ffn_gate_exps", experts},
			{"feed_forward.experts.up_proj", "ffn_up_exps", experts},
			{"feed_forward.experts.down_proj", "ffn_down_exps", experts},
		}, sharedExpert("feed_forward.shared_expert")),
		defaults: map[string]any{"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
			"num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
			"rms_norm_eps": 1e-5, "rope_theta": 5e5, "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
			"use_qk_norm": true, "attention_chunk_size": 8192, "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1},
		keys: []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).turnsInFour, (*plan).llama4Keys},
	},
	{
		types: []string{"gemma2"}, arch: "gemma2", shift: 1, act: model.GELUTanh,
		names: map[string]string{"hidden_act": "hidden_activation"},
		block: gemmaBlock(),
		defaults: map[string]any{"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
			"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "sliding_window": 4096,
			"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
		keys: []func(*plan){(*plan).noFreqs, (*plan).gemma2Keys}, modelled: (*plan).noHead,
	},
	{
		types: []string{"gemma3_text", "gemma3"}, arch: "gemma3", shift: 1, act: model.GELUTanh,
		names: map[string]string{"hidden_act": "hidden_activation"},
		block: gemmaBlock(headNorms...),
		defaults: map[string]any{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
			"max_position_embeddings": 131072, "sliding_window": 4096, "query_pre_attn_scalar": 256, "vocab_size": 262208,
			"rope_theta": 1e6, "rope_local_base_freq": 1e4},
		keys: []func(*plan){(*plan).gemma3Keys}, modelled: (*plan).cappedLogits,
	},
	{
		types: []string{"starcoder2"}, arch: "starcoder2", layerNorm: true, act: model.GELUTanh,
		names: map[string]string{"rms_norm_eps": "norm_epsilon"},
		block: slices.Concat(attention, ungated("post_attention_layernorm", "mlp.c_fc", "mlp.c_proj")),
		defaults: map[string]any{"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24,
			"num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
		keys: []func(*plan){(*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"cohere2"}, arch: "cohere2", layerNorm: true,
		names: map[string]string{"rms_norm_eps": "layer_norm_eps"},
		block: slices.Concat(attention, feedForward[1:]), // one norm
		defaults: map[string]any{"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64,
			"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "sliding_window": 4096},
		keys: []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).cohereAttention},
	},
	{
		types: []string{"gpt_neox"}, arch: "gptneox", layerNorm: true, act: model.GELUTanh,
		names: map[string]string{"rms_norm_eps": "layer_norm_eps", "rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
		top: []rule{
			{"model.embed_in", "token_embd", copied},
			{"model.final_layer_norm", "output_norm", norm},
			{"lm_head", "output", copied},
		},
		block: slices.Concat([]rule{
			{"input_layernorm", "attn_norm", norm},
			{"self_attn.q_proj self_attn.k_proj self_attn.v_proj", "attn_qkv", stacked},
			{"attention.dense", "attn_output", copied},
		}, ungated("post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")),
		defaults: map[string]any{"vocab_size": 50432, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44, "num_attention_heads": 64,
			"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
		keys: []func(*plan){(*plan).ropeDims, (*plan).parallel},
	},
	{
		types: []string{"gpt2"}, arch: "gpt2", layerNorm: true, act: model.GELUTanh, noRope: true, blocks: "h.",
		names: map[string]string{"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "max_position_embeddings": "n_positions",
			"intermediate_size": "n_inner", "rms_norm_eps": "layer_norm_epsilon", "hidden_act": "activation_function"},
		top: []rule{
			{"model.wte", "token_embd", copied},
			{"model.wpe", "position_embd", copied},
			{"model.ln_f", "output_norm", norm},
			{"lm_head", "output", copied},
		},
		block: slices.Concat([]rule{
			{"ln_1", "attn_norm", norm},
			{"attn.c_attn", "attn_qkv", copied},
			{"attn.c_proj", "attn_output", copied},
		}, ungated("ln_2", "mlp.c_fc", "mlp.c_proj")),
		defaults: map[string]any{"vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
			"max_position_embeddings": 1024, "rms_norm_eps": 1e-5},
	},
	{
		types: []string{"olmo2"}, arch: "olmo2",
		block:    olmo,
		defaults: map[string]any{"rms_norm_eps": 1e-5},
		keys:     []func(*plan){(*plan).noFreqs},
	},
	{
		types: []string{"olmo3"}, arch: "olmo2",
		block:    olmo,
		defaults: map[string]any{"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5},
		keys:     []func(*plan){(*plan).noFreqs, (*plan).windowInFour},
	},
	{
		types: []string{"smollm3"}, arch: "smollm3", halves: true,
		block:    slices.Concat(attention, feedForward),
		defaults: map[string]any{"max_position_embeddings": 32768, "num_key_value_heads": 4, "rope_theta": 2e6},
		keys:     []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).turnsInFour, (*plan).windowUnused},
	},
	{
		types: []string{"granite"}, arch: "granite", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).multipliers},
	},
	{
		types: []string{"granitemoehybrid"}, arch: "granite", halves: true, width: "shared_intermediate_size",
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"shared_mlp.input_linear", "ffn_gate", firstHalf},
			{"shared_mlp.input_linear", "ffn_up", secondHalf},
			{"shared_mlp.output_linear", "ffn_down", copied},
		}),
		defaults: map[string]any{"max_position_embeddings": 2048, "shared_intermediate_size": 1024},
		keys:     []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).multipliers, (*plan).turnsIfAsked},
	},
	{
		types: []string{"seed_oss"}, arch: "seed_oss",
		block:    slices.Concat(attention, []rule{{"post_attention_layernorm", "post_attention_norm", norm}}, feedForward[1:]),
		defaults: map[string]any{"max_position_embeddings": 524288, "num_key_value_heads": 8, "head_dim": 128},
		keys:     []func(*plan){(*plan).noFreqs},
	},
	{
		types: []string{"exaone4"}, arch: "exaone4",
		block:    slices.Concat(attention[1:], headNorms, outputNorms, feedForward[1:]),
		defaults: map[string]any{"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096},
		keys:     []func(*plan){(*plan).ropeFreqs, (*plan).exaoneWindow},
	},
	{
		types: []string{"ernie4_5"}, arch: "ernie4_5",
		block:    slices.Concat(attention, feedForward),
		defaults: map[string]any{"max_position_embeddings": 131072, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
		keys:     []func(*plan){(*plan).noFreqs, (*plan).noBias},
	},
	{
		types: []string{"glm"}, arch: "chatglm",
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate_up_proj", "ffn_up", copied},
			{"mlp.down_proj", "ffn_down", copied},
		}),
		defaults: glmDefaults,
		keys:     []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"glm4"}, arch: "glm4",
		block: slices.Concat(attention, []rule{
			{"post_self_attn_layernorm", "post_attention_norm", norm},
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate_up_proj", "ffn_up", copied},
			{"mlp.down_proj", "ffn_down", copied},
			{"post_mlp_layernorm", "post_ffw_norm", norm},
		}),
		defaults: glmDefaults,
		keys:     []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"phi3"}, arch: "phi3",
		block: []rule{
			{"input_layernorm", "attn_norm", norm},
			{"self_attn.qkv_proj", "attn_qkv", copied},
			{"self_attn.o_proj", "attn_output", copied},
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate_up_proj", "ffn_up", copied},
			{"mlp.down_proj", "ffn_down", copied},
		},
		defaults:  map[string]any{"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
		ropeTypes: map[string]string{"su": "longrope", "yarn": "longrope"},
		keys:      []func(*plan){(*plan).ropeDims, (*plan).longRope, (*plan).windowOrZero},
	},
}

// findFamily is the family of the model type, or an error that lists all.
func findFamily(s *settings) (*family, error) {
	var known []string
	for i, f := range families {
		if slices.Contains(f.types, s.str("model_type")) {
			s.renamed(f.names)
			s.defaults(families[i].defaults)
			return &families[i], nil
		}
		known = append(known, f.types...)
	}
	s.fail("model_type", "%q cannot be written as GGUF; known: %s", s.str("model_type"), strings.Join(known, ", "))
	return nil, s.err
}
