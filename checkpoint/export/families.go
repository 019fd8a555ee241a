package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"mt/checkpoint/gguf"
	"mt/model"
)

// family describes how llama.cpp represents the models of a family, as an architecture in a GGUF
// file. Sources: conversion/ in https://github.com/ggml-org/llama.cpp, and MODEL_TENSORS of the
// PyPI package gguf.
type family struct {
	types []string // model_type in config.json
	// when says which models of these types the family is for; nil: all.
	when  func(s *settings) bool
	arch  string // general.architecture
	block []rule // tensors of a decoder block
	dense []rule // tensors of blocks without experts, if only some blocks have experts
	// recurrent are the tensors of blocks with a recurrence (Gated DeltaNet) instead of attention, if some blocks
	// have one. recurrentDense are those of such blocks without experts, if only some have experts.
	recurrent, recurrentDense []rule
	// width is the key of config.json with the dense MLP's width; "": intermediate_size.
	width string
	// defaults are values of keys that a config.json lacks, beside those that package model has (model.Defaults).
	defaults map[string]any
	// names maps the usual keys of config.json to this family's own keys, if these differ.
	names map[string]string
	// top are the tensors outside the blocks; nil: outer. blocks is the prefix of the blocks' names; "": "layers.".
	top    []rule
	blocks string
	// mla reports that attention is multi-head latent attention (MLA). Its rules then come before block and dense.
	mla bool
	// layerNorm reports that norms are LayerNorm, not RMSNorm.
	layerNorm bool
	noRope    bool // positions are learned
	// ropeTypes maps this family's own names of rotary scalings to the usual names.
	ropeTypes map[string]string
	// prepare changes the keys of config.json before they are read; nil: it leaves them.
	prepare func(s *settings)
	// halves reports that the model directory pairs the rotary elements i and i+D/2 of a head of
	// size D. llama.cpp's code for the architecture pairs 2i and 2i+1, so the rows of q and k are
	// reordered.
	halves bool
	// tiled reports that llama.cpp expects the value heads of Gated DeltaNet in another order than the directory
	// has; see tiledHeads.
	tiled bool
	// shift is added to norm weights. A norm that scales by 1+w is stored as w in the directory and as 1+w in GGUF.
	shift float32
	// rounds reports that "truncate: false" of YaRN scaling is accepted for this family, though
	// llama.cpp always rounds; a note says so. For other families "truncate: false" is an error.
	rounds bool
	// ropeAlpha reports that the rope type dynamic has the parameter alpha in this family. alpha
	// only raises the rotary base, so the GGUF file gets the raised base.
	ropeAlpha bool
	// act is the activation that llama.cpp's code for the architecture computes in the MLP. It is
	// applied to the gate's output, or to up's output if there is no gate.
	act model.Activation
	// keys add the family's GGUF keys to the common ones. The function modelled does so too, after
	// package model has read config.json, for keys that follow from plan.model.
	keys     []func(p *plan)
	modelled func(p *plan)
}

// rule maps a module of a block (from) to its name in GGUF (to). It covers the module's weight, and the bias if
// there is one. how is the conversion.
type rule struct {
	from, to string
	how      how
}

// how selects the conversion of a tensor.
type how uint8

const (
	copied        how = iota
	queries           // num_attention_heads heads, reordered if halves is set
	keys              // num_key_value_heads heads, reordered if halves is set
	norm              // the family's shift is added; always fp32
	normIfAny         // norm, but the module may be missing
	copiedIfAny       // the module may be missing
	router            // always fp32
	experts           // one tensor per expert becomes one tensor with another dimension; rows of several modules, separated by spaces, are concatenated
	single            // a matrix of one row becomes a vector
	bare              // from and to are whole tensor names, not modules
	rates             // like bare, and each value v becomes −exp(v); a vector in Gated DeltaNet, else a matrix of one column; always fp32
	taps              // a shape (a, 1, b) becomes (a, b); always fp32
	tapsOfFour        // a shape (a, 1, b) becomes (1, a, 1, b); always fp32
	column            // like bare, and a vector becomes a matrix of one column; always fp32
	byGroup           // a vector becomes a matrix of one row per group of Mamba-2; always fp32; the module may be missing
	perBlock          // a single value becomes an element of a GGUF key with one value per block
	stacked           // several modules, separated by spaces, are concatenated by rows
	keysOfHeads       // the rows for keys in latent attention's kv_b_proj
	valuesOfHeads     // the rows for values in latent attention's kv_b_proj
	firstHalf         // first half of the rows
	secondHalf        // second half of the rows
	expertsFirst      // experts, but only the first half of each expert's rows
	expertsSecond     // experts, but only the second half of each expert's rows
)

// outer are the tensors outside the blocks that most families have.
var outer = []rule{
	{"model.embed_tokens", "token_embd", copied},
	{"model.norm", "output_norm", norm},
	{"lm_head", "output", copied},
}

// attention has the tensors of attention with separate projections of queries, keys and values.
var attention = []rule{
	{"input_layernorm", "attn_norm", norm},
	{"self_attn.q_proj", "attn_q", queries},
	{"self_attn.k_proj", "attn_k", keys},
	{"self_attn.v_proj", "attn_v", copied},
	{"self_attn.o_proj", "attn_output", copied},
}

// headNorms are the rules for norms of each head's queries and keys.
var headNorms = []rule{
	{"self_attn.q_norm", "attn_q_norm", norm},
	{"self_attn.k_norm", "attn_k_norm", norm},
}

var headNormsIfAny = []rule{
	{"self_attn.q_norm", "attn_q_norm", normIfAny},
	{"self_attn.k_norm", "attn_k_norm", normIfAny},
}

var feedForward = slices.Concat([]rule{{"post_attention_layernorm", "ffn_norm", norm}}, gated("mlp", "", copied))

// gated returns the rules of an MLP with a gate, or of experts. module is its name in the directory, and suffix ends the
// names in GGUF.
func gated(module, suffix string, h how) []rule {
	return []rule{{module + ".gate_proj", "ffn_gate" + suffix, h}, {module + ".up_proj", "ffn_up" + suffix, h}, {module + ".down_proj", "ffn_down" + suffix, h}}
}

// expertMatrices has the rules of the experts' three matrices, for models with the usual names.
var expertMatrices = gated("mlp.experts", "_exps", experts)

// sharedExpert returns the rules of the shared expert, which every token uses; module is its name in the directory.
func sharedExpert(module string) []rule { return gated(module, "_shexp", copied) }

// routed returns the rules of a mixture of experts with the usual names, and of the norm before it. gate is the name of
// the router, and more are rules of its own.
func routed(gate string, more ...rule) []rule {
	return slices.Concat([]rule{{"post_attention_layernorm", "ffn_norm", norm}, {gate, "ffn_gate_inp", router}}, more, expertMatrices)
}

// sharedAndChosen has the tensors of Qwen3-Next's mixture of experts and of the norm before it: router, chosen
// experts and a gated shared expert.
var sharedAndChosen = slices.Concat([]rule{
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"mlp.gate", "ffn_gate_inp", router},
}, expertMatrices, []rule{{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", single}}, sharedExpert("mlp.shared_expert"))

// qwen35Dense has the tensors of the MLP of Qwen3.5 without experts, and of the norm before it.
var qwen35Dense = slices.Concat([]rule{{"post_attention_layernorm", "post_attention_norm", norm}}, feedForward[1:])

// splitRecurrence has the tensors of a Gated DeltaNet block whose inputs qkv, z, b and a have separate projections.
var splitRecurrence = []rule{
	{"input_layernorm", "attn_norm", norm},
	{"linear_attn.in_proj_qkv", "attn_qkv", copied},
	{"linear_attn.in_proj_z", "attn_gate", copied},
	{"linear_attn.in_proj_b", "ssm_beta", copied},
	{"linear_attn.in_proj_a", "ssm_alpha", copied},
	{"linear_attn.conv1d", "ssm_conv1d", taps},
	{"linear_attn.dt_bias", "ssm_dt.bias", bare},
	{"linear_attn.A_log", "ssm_a", rates},
	{"linear_attn.norm", "ssm_norm", copied}, // the norm scales by the weight, not by 1+w
	{"linear_attn.out_proj", "ssm_out", copied},
}

// mixtralExperts has the tensors of Mixtral's mixture of experts, and of the norm before it.
var mixtralExperts = []rule{
	{"post_attention_layernorm", "ffn_norm", norm},
	{"block_sparse_moe.gate", "ffn_gate_inp", router},
	{"block_sparse_moe.experts.w1", "ffn_gate_exps", experts},
	{"block_sparse_moe.experts.w3", "ffn_up_exps", experts},
	{"block_sparse_moe.experts.w2", "ffn_down_exps", experts},
}

// ungated returns the rules of an MLP without a gate. mlpNorm, up and down are the names of its norm and its two
// projections in the directory.
func ungated(mlpNorm, up, down string) []rule {
	return []rule{{mlpNorm, "ffn_norm", norm}, {up, "ffn_up", copied}, {down, "ffn_down", copied}}
}

// mrope maps the name of the multimodal rotary embedding to the usual name, since both embeddings
// are the same for text. The function sections writes the other keys of the multimodal one.
var mrope = map[string]string{"mrope": "default"}

// olmo has the tensors of OLMo's blocks. Their norms are on the outputs of attention and MLP and on queries and
// keys, not on inputs.
var olmo = slices.Concat(attention[1:], headNorms, outputNorms, feedForward[1:])

var outputNorms = []rule{
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"post_feedforward_layernorm", "post_ffw_norm", norm},
}

// afmoeAttention has the tensors of AFMoE's attention, with an output gate, and all norms of a block.
var afmoeAttention = slices.Concat(attention, headNorms, []rule{
	{"self_attn.gate_proj", "attn_gate", copied},
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"pre_mlp_layernorm", "ffn_norm", norm},
	{"post_mlp_layernorm", "post_ffw_norm", norm},
})

// mamba2 has the tensors of a Mamba-2 mixer and of the norm before it.
var mamba2 = []rule{
	{"input_layernorm", "attn_norm", norm},
	{"mamba.in_proj", "ssm_in", copied},
	{"mamba.conv1d", "ssm_conv1d", taps},
	{"mamba.dt_bias", "ssm_dt.bias", bare},
	{"mamba.A_log", "ssm_a", rates},
	{"mamba.D", "ssm_d", column},
	{"mamba.norm", "ssm_norm", byGroup},
	{"mamba.out_proj", "ssm_out", copied},
}

// graniteDense has the tensors of Granite 4's MLP without experts, and of the norm before it.
var graniteDense = []rule{
	{"post_attention_layernorm", "ffn_norm", norm},
	{"shared_mlp.input_linear", "ffn_gate", firstHalf},
	{"shared_mlp.input_linear", "ffn_up", secondHalf},
	{"shared_mlp.output_linear", "ffn_down", copied},
}

// graniteExperts has the tensors of Granite 4's mixture of experts, and of the norm before it.
var graniteExperts = []rule{
	{"post_attention_layernorm", "ffn_norm", norm},
	{"block_sparse_moe.router.layer", "ffn_gate_inp", router},
	{"block_sparse_moe.experts.input_linear", "ffn_gate_exps", expertsFirst},
	{"block_sparse_moe.experts.input_linear", "ffn_up_exps", expertsSecond},
	{"block_sparse_moe.experts.output_linear", "ffn_down_exps", experts},
	{"shared_mlp.input_linear", "ffn_gate_shexp", firstHalf},
	{"shared_mlp.input_linear", "ffn_up_shexp", secondHalf},
	{"shared_mlp.output_linear", "ffn_down_shexp", copied},
}

// falconH1 has the tensors of Falcon-H1's blocks, with attention and a Mamba-2 mixer side by side.
var falconH1 = slices.Concat(attention, mamba2[1:], []rule{
	{"pre_ff_layernorm.weight", "ffn_norm", bare}, // without .weight in llama.cpp too
}, gated("feed_forward", "", copied))

// nemotron returns the rules of a block of Nemotron-H, which has a norm and a mixer.
func nemotron(mixer ...rule) []rule {
	return slices.Concat([]rule{{"norm", "attn_norm", norm}}, mixer)
}

// mixed returns rules with module mixer in place of the modules' first part.
func mixed(rules []rule) []rule {
	out := slices.Clone(rules)
	for i, r := range out {
		_, module, _ := strings.Cut(r.from, ".")
		out[i].from = "mixer." + module
	}
	return out
}

// gemma4Block has the tensors of Gemma 4's blocks without experts. Blocks that share keys and values lack some, and
// only small models have inputs per layer.
var gemma4Block = []rule{
	{"input_layernorm", "attn_norm", norm},
	{"self_attn.q_proj", "attn_q", copied},
	{"self_attn.k_proj", "attn_k", copiedIfAny},
	{"self_attn.v_proj", "attn_v", copiedIfAny},
	{"self_attn.o_proj", "attn_output", copied},
	{"self_attn.q_norm", "attn_q_norm", norm},
	{"self_attn.k_norm", "attn_k_norm", normIfAny},
	{"post_attention_layernorm", "post_attention_norm", norm},
	{"pre_feedforward_layernorm", "ffn_norm", norm},
	{"mlp.gate_proj", "ffn_gate", copied},
	{"mlp.up_proj", "ffn_up", copied},
	{"mlp.down_proj", "ffn_down", copied},
	{"post_feedforward_layernorm", "post_ffw_norm", norm},
	{"per_layer_input_gate", "inp_gate", copiedIfAny},
	{"per_layer_projection", "proj", copiedIfAny},
	{"post_per_layer_input_norm", "post_norm", normIfAny},
	{"layer_scalar", "layer_output_scale.weight", bare},
}

// gemma4Experts has the tensors that experts add beside the dense MLP.
var gemma4Experts = []rule{
	{"router.proj", "ffn_gate_inp", router},
	{"router.scale", "ffn_gate_inp.scale", bare},
	{"pre_feedforward_layernorm_2", "pre_ffw_norm_2", norm},
	{"post_feedforward_layernorm_1", "post_ffw_norm_1", norm},
	{"post_feedforward_layernorm_2", "post_ffw_norm_2", norm},
	{"experts.gate_proj experts.up_proj", "ffn_gate_up_exps", experts},
	{"experts.down_proj", "ffn_down_exps", experts},
	{"router.per_expert_scale", "ffn_down_exps.scale", bare},
}

var (
	nemotronAttention = nemotron(mixed(attention[1:])...)
	nemotronMamba     = nemotron(mixed(mamba2[1:])...)
	nemotronExperts   = nemotron(
		rule{"mixer.gate", "ffn_gate_inp", router},
		rule{"mixer.gate.e_score_correction_bias", "exp_probs_b.bias", bare},
		rule{"mixer.experts.up_proj", "ffn_up_exps", experts},
		rule{"mixer.experts.down_proj", "ffn_down_exps", experts},
		rule{"mixer.shared_experts.up_proj", "ffn_up_shexp", copied},
		rule{"mixer.shared_experts.down_proj", "ffn_down_shexp", copied},
	)
)

var lfm2FeedForward = []rule{
	{"ffn_norm", "ffn_norm", norm},
	{"feed_forward.w1", "ffn_gate", copied},
	{"feed_forward.w3", "ffn_up", copied},
	{"feed_forward.w2", "ffn_down", copied},
}

// nemotronNames and nemotronTop are common to both architectures for Nemotron-H.
var (
	nemotronNames = map[string]string{"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "mlp_hidden_act", "mamba_conv_bias": "use_conv_bias"}
	nemotronTop   = []rule{{"model.embeddings", "token_embd", copied}, {"model.norm_f", "output_norm", norm}, {"lm_head", "output", copied}}
)

var families = []family{
	{
		types: []string{"llama"}, arch: "llama", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"mistral", "mistral3"}, arch: "llama", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"ministral3"}, arch: "mistral3", halves: true,
		block: slices.Concat(attention, feedForward),
		defaults: map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384.0,
			"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
		keys: []func(*plan){(*plan).ropeDims, (*plan).queryScaling, (*plan).windowIgnored},
	},
	{
		types: []string{"qwen2", "mimo"}, arch: "qwen2",
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3"}, arch: "qwen3",
		block: slices.Concat(attention, headNorms, feedForward),
		keys:  []func(*plan){(*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_moe"}, arch: "qwen3moe",
		block: slices.Concat(attention, headNorms, routed("mlp.gate")),
		keys:  []func(*plan){(*plan).normalisedExperts, (*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}, arch: "qwen2vl", ropeTypes: mrope,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){sections(16, 24, 24), (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_vl", "qwen3_vl_text"}, arch: "qwen3vl", ropeTypes: mrope,
		block: slices.Concat(attention, headNorms, feedForward),
		keys:  []func(*plan){sections(24, 20, 20), (*plan).deepstack},
	},
	{
		types: []string{"qwen3_vl_moe", "qwen3_vl_moe_text"}, arch: "qwen3vlmoe", ropeTypes: mrope,
		block: slices.Concat(attention, headNorms, routed("mlp.gate")),
		keys:  []func(*plan){(*plan).normalisedExperts, sections(24, 20, 20), (*plan).deepstack},
	},
	{
		types: []string{"qwen2_moe"}, arch: "qwen2moe",
		block: slices.Concat(attention, routed("mlp.gate"), []rule{{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", single}}, sharedExpert("mlp.shared_expert")),
		keys:  []func(*plan){(*plan).expertsAndShared, (*plan).ropeFreqs, (*plan).windowUnused},
	},
	{
		types: []string{"qwen3_next"}, arch: "qwen3next", shift: 1,
		block: slices.Concat(attention, headNorms, sharedAndChosen), // attn_q holds, head by head, the query and its gate
		recurrent: slices.Concat([]rule{
			{"input_layernorm", "attn_norm", norm},
			{"linear_attn.q linear_attn.k linear_attn.v", "attn_qkv", stacked},
			{"linear_attn.z", "attn_gate", copied},
			{"linear_attn.in_proj_ba", "ssm_ba", copied}, // already ordered by key heads
			{"linear_attn.conv1d", "ssm_conv1d", taps},
			{"linear_attn.dt_bias", "ssm_dt.bias", bare},
			{"linear_attn.A_log", "ssm_a", rates},
			{"linear_attn.norm", "ssm_norm", copied}, // the norm scales by the weight, not by 1+w
			{"linear_attn.out_proj", "ssm_out", copied},
		}, sharedAndChosen),
		keys: []func(*plan){(*plan).normalisedExperts, (*plan).ropeDims, (*plan).noFreqs, (*plan).gatedDeltaKeys, (*plan).sharedWidth},
	},
	{
		types: []string{"qwen3_5", "qwen3_5_text"}, arch: "qwen35", shift: 1, tiled: true, ropeTypes: mrope,
		block:     slices.Concat(attention, headNorms, qwen35Dense),
		recurrent: slices.Concat(splitRecurrence, qwen35Dense),
		keys:      []func(*plan){(*plan).ropeDims, sections(11, 11, 10), (*plan).noFreqs, (*plan).gatedDeltaKeys},
	},
	{
		types: []string{"qwen3_5_moe", "qwen3_5_moe_text"}, arch: "qwen35moe", shift: 1, tiled: true, ropeTypes: mrope, width: "moe_intermediate_size",
		block:     slices.Concat(attention, headNorms, sharedAndChosen),
		recurrent: slices.Concat(splitRecurrence, sharedAndChosen),
		keys:      []func(*plan){(*plan).normalisedExperts, (*plan).ropeDims, sections(11, 11, 10), (*plan).noFreqs, (*plan).gatedDeltaKeys, (*plan).sharedWidth},
	},
	{
		types: []string{"minimax_m2"}, arch: "minimax-m2",
		block: slices.Concat(attention, headNorms, mixtralExperts, []rule{{"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", bare}}),
		keys:  []func(*plan){(*plan).miniMaxKeys, (*plan).noFreqs},
	},
	{
		types: []string{"lfm2"}, arch: "lfm2", names: map[string]string{"rms_norm_eps": "norm_eps"},
		top: []rule{{"model.embed_tokens", "token_embd", copied}, {"model.embedding_norm", "token_embd_norm", norm}, {"lm_head", "output", copied}},
		block: slices.Concat([]rule{
			{"operator_norm", "attn_norm", norm},
			{"self_attn.q_proj", "attn_q", queries},
			{"self_attn.k_proj", "attn_k", keys},
			{"self_attn.v_proj", "attn_v", copied},
			{"self_attn.out_proj", "attn_output", copied},
			{"self_attn.q_layernorm", "attn_q_norm", norm},
			{"self_attn.k_layernorm", "attn_k_norm", norm},
		}, lfm2FeedForward),
		recurrent: slices.Concat([]rule{
			{"operator_norm", "attn_norm", norm},
			{"conv.in_proj", "shortconv.in_proj", copied},
			{"conv.conv", "shortconv.conv", taps},
			{"conv.out_proj", "shortconv.out_proj", copied},
		}, lfm2FeedForward),
		keys: []func(*plan){(*plan).noFreqs}, modelled: (*plan).shortConvKeys,
	},
	{
		types: []string{"mixtral"}, arch: "llama", halves: true,
		block: slices.Concat(attention, mixtralExperts),
		keys:  []func(*plan){(*plan).expertCounts, (*plan).ropeDims, (*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"glm4_moe"}, arch: "glm4moe",
		dense: slices.Concat(attention, headNormsIfAny, []rule{{"post_attention_layernorm", "post_attention_norm", norm}}, feedForward[1:]),
		block: slices.Concat(attention, headNormsIfAny, []rule{
			{"post_attention_layernorm", "post_attention_norm", norm},
			{"mlp.gate", "ffn_gate_inp", router},
			{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare},
		}, expertMatrices, sharedExpert("mlp.shared_experts")),
		defaults: map[string]any{"norm_topk_prob": true},
		keys:     []func(*plan){(*plan).sigmoidExperts, (*plan).ropeDims, (*plan).ropeFreqs},
	},
	{
		types: []string{"deepseek_v2"}, arch: "deepseek2", mla: true,
		dense: feedForward, block: deepseekExperts(),
		defaults: map[string]any{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
		keys:     []func(*plan){(*plan).deepseek2Keys},
	},
	{
		types: []string{"deepseek_v3", "kimi_k2"}, arch: "deepseek2", mla: true,
		dense: feedForward, block: deepseekExperts(rule{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare}),
		defaults: map[string]any{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
		keys:     []func(*plan){(*plan).deepseek3Keys},
	},
	{
		types: []string{"glm4_moe_lite"}, arch: "deepseek2", mla: true,
		dense: feedForward, block: deepseekExperts(rule{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare}),
		keys: []func(*plan){(*plan).denseFirst, (*plan).deepseek3Keys},
	},
	{
		types: []string{"glm_moe_dsa"}, arch: "glm-dsa", mla: true, prepare: turnsNeighbours,
		dense: feedForward, block: deepseekExperts(rule{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare}),
		keys: []func(*plan){(*plan).denseFirst, (*plan).deepseek3Keys, noRopes("yarn")}, modelled: (*plan).indexerKeys,
	},
	{
		types: []string{"deepseek_v32"}, arch: "deepseek32", mla: true, prepare: turnsNeighbours,
		dense: feedForward, block: deepseekExperts(rule{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", bare}),
		keys: []func(*plan){(*plan).denseFirst, (*plan).deepseek3Keys, (*plan).plainYarn}, modelled: (*plan).indexerKeys,
	},
	{
		types: []string{"kimi_linear"}, arch: "kimi-linear", mla: true, names: map[string]string{"max_position_embeddings": "model_max_length"},
		dense: kimiDense, block: kimiExperts, recurrent: slices.Concat(kda, kimiExperts), recurrentDense: slices.Concat(kda, kimiDense),
		keys: []func(*plan){(*plan).noBias, (*plan).noFreqs}, modelled: (*plan).kdaKeys,
	},
	{
		types: []string{"mistral4"}, arch: "mistral4", mla: true,
		dense: feedForward, block: deepseekExperts(),
		defaults: map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0, "original_max_position_embeddings": 8192.0,
			"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
		keys: []func(*plan){(*plan).mistral4Keys},
	},
	{
		types: []string{"hy_v3"}, arch: "hy_v3",
		dense: slices.Concat(attention, headNorms, feedForward),
		block: slices.Concat(attention, headNorms, routed("mlp.router.gate", rule{"mlp.expert_bias", "exp_probs_b", bare}), sharedExpert("mlp.shared_mlp")),
		keys:  []func(*plan){(*plan).ropeFreqs, (*plan).noBias, (*plan).hyExperts},
	},
	{
		types: []string{"apertus"}, arch: "apertus", act: model.XIELU,
		block: slices.Concat([]rule{{"attention_layernorm", "attn_norm", norm}}, attention[1:], headNorms,
			ungated("feedforward_layernorm", "mlp.up_proj", "mlp.down_proj"), []rule{
				{"mlp.act_fn.alpha_p", "xielu.alpha_p", perBlock},
				{"mlp.act_fn.alpha_n", "xielu.alpha_n", perBlock},
				{"mlp.act_fn.beta", "xielu.beta", perBlock},
				{"mlp.act_fn.eps", "xielu.eps", perBlock},
			}),
		defaults: map[string]any{"rope_parameters": map[string]any{"rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 8192.0}},
		keys: []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).noBias}, modelled: (*plan).ownHead,
	},
	{
		types: []string{"gpt_oss"}, arch: "gpt-oss", rounds: true,
		block: slices.Concat(attention, []rule{
			{"self_attn.sinks", "attn_sinks.weight", bare},
			{"post_attention_layernorm", "post_attention_norm", norm},
			{"mlp.router", "ffn_gate_inp", router},
		}, expertMatrices),
		defaults: map[string]any{"swiglu_alpha": 1.702, "swiglu_limit": 7.0},
		keys:     []func(*plan){(*plan).ossKeys},
	},
	{
		types: []string{"llama4_text", "llama4"}, arch: "llama4", width: "intermediate_size_mlp",
		dense: slices.Concat(attention, feedForward[:1], gated("feed_forward", "", copied)),
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"feed_forward.router", "ffn_gate_inp", router},
		}, gated("feed_forward.experts", "_exps", experts), sharedExpert("feed_forward.shared_expert")),
		keys: []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).turnsInFour, (*plan).llama4Keys},
	},
	{
		types: []string{"gemma2"}, arch: "gemma2", shift: 1, act: model.GELUTanh,
		names: map[string]string{"hidden_act": "hidden_activation"},
		block: gemmaBlock(),
		keys:  []func(*plan){(*plan).noFreqs, (*plan).gemma2Keys}, modelled: (*plan).noHead,
	},
	{
		types: []string{"gemma3_text", "gemma3"}, arch: "gemma3", shift: 1, act: model.GELUTanh,
		names:    map[string]string{"hidden_act": "hidden_activation"},
		block:    gemmaBlock(headNorms...),
		defaults: map[string]any{"rope_local_base_freq": 1e4},
		keys:     []func(*plan){(*plan).gemma3Keys}, modelled: (*plan).cappedLogits,
	},
	{
		types: []string{"gemma4_text", "gemma4"}, arch: "gemma4", act: model.GELUTanh, ropeTypes: map[string]string{"proportional": "default"},
		names: map[string]string{"hidden_act": "hidden_activation"},
		top: []rule{
			{"model.embed_tokens", "token_embd", copied},
			{"model.embed_tokens_per_layer", "per_layer_token_embd", copiedIfAny},
			{"model.per_layer_model_projection", "per_layer_model_proj", copiedIfAny},
			{"model.per_layer_projection_norm", "per_layer_proj_norm", normIfAny},
			{"model.norm", "output_norm", norm},
			{"lm_head", "output", copied},
		},
		dense: gemma4Block, block: slices.Concat(gemma4Block, gemma4Experts),
		defaults: map[string]any{"rope_local_base_freq": 1e4,
			"rope_parameters": map[string]any{"sliding_attention": map[string]any{"rope_theta": 1e4}, "full_attention": map[string]any{"rope_theta": 1e6}}},
		keys: []func(*plan){(*plan).noBias}, modelled: (*plan).gemma4Keys,
	},
	{
		types: []string{"starcoder2"}, arch: "starcoder2", layerNorm: true, act: model.GELUTanh,
		names: map[string]string{"rms_norm_eps": "norm_epsilon"},
		block: slices.Concat(attention, ungated("post_attention_layernorm", "mlp.c_fc", "mlp.c_proj")),
		keys:  []func(*plan){(*plan).ropeFreqs, (*plan).windowIgnored},
	},
	{
		types: []string{"cohere2"}, arch: "cohere2", layerNorm: true,
		names: map[string]string{"rms_norm_eps": "layer_norm_eps"},
		block: slices.Concat(attention, feedForward[1:]), // one norm per block
		keys:  []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).cohereAttention},
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
		defaults: map[string]any{"max_position_embeddings": 2048, "partial_rotary_factor": 0.25},
		keys:     []func(*plan){(*plan).ropeDims, (*plan).parallel},
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
	},
	{
		types: []string{"olmo2"}, arch: "olmo2",
		block: olmo,
		keys:  []func(*plan){(*plan).noFreqs},
	},
	{
		types: []string{"olmo3"}, arch: "olmo2",
		block: olmo,
		keys:  []func(*plan){(*plan).noFreqs, (*plan).windowInFour},
	},
	{
		types: []string{"smollm3"}, arch: "smollm3", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs, (*plan).turnsInFour, (*plan).windowUnused},
	},
	{
		types: []string{"granite"}, arch: "granite", halves: true,
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).multipliers},
	},
	{
		types: []string{"granitemoehybrid"}, when: hasMamba, arch: "granitehybrid", halves: true,
		block:          slices.Concat(attention, graniteExperts),
		dense:          slices.Concat(attention, graniteDense),
		recurrent:      slices.Concat(mamba2, graniteExperts),
		recurrentDense: slices.Concat(mamba2, graniteDense),
		keys:           []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).multipliers, (*plan).turnsIfAsked, (*plan).noBias},
		modelled:       (*plan).graniteHybrid,
	},
	{
		types: []string{"granitemoehybrid"}, arch: "granite", halves: true, width: "shared_intermediate_size",
		block: slices.Concat(attention, graniteDense),
		keys:  []func(*plan){(*plan).ropeDims, (*plan).noFreqs, (*plan).multipliers, (*plan).turnsIfAsked, (*plan).attentionAndMLP},
	},
	{
		types: []string{"falcon_h1"}, arch: "falcon-h1",
		top:   []rule{{"model.embed_tokens", "token_embd", copied}, {"model.final_layernorm", "output_norm", norm}, {"lm_head", "output", copied}},
		block: falconH1,
		keys:  []func(*plan){(*plan).ropeDims, (*plan).noFreqs, noBiasIn("attention_bias")}, modelled: (*plan).falconH1Keys,
	},
	{
		types: []string{"nemotron_h"}, when: hasRoutedExperts, arch: "nemotron_h_moe", act: model.SquaredReLU,
		names: nemotronNames, prepare: nemotronBlocks, noRope: true, top: nemotronTop,
		block: nemotronExperts, dense: nemotronAttention, recurrent: nemotronMamba, recurrentDense: nemotronMamba,
		keys: []func(*plan){noBiasIn("use_bias", "mlp_bias")}, modelled: (*plan).nemotronKeys,
	},
	{
		types: []string{"nemotron_h"}, arch: "nemotron_h", act: model.SquaredReLU,
		names: nemotronNames, prepare: nemotronBlocks, noRope: true, top: nemotronTop,
		block: nemotronAttention, recurrent: nemotronMamba,
		keys: []func(*plan){noBiasIn("use_bias", "mlp_bias")}, modelled: (*plan).nemotronKeys,
	},
	{
		types: []string{"seed_oss"}, arch: "seed_oss",
		block: slices.Concat(attention, []rule{{"post_attention_layernorm", "post_attention_norm", norm}}, feedForward[1:]),
		keys:  []func(*plan){(*plan).noFreqs},
	},
	{
		types: []string{"exaone4"}, arch: "exaone4",
		block: slices.Concat(attention[1:], headNorms, outputNorms, feedForward[1:]),
		keys:  []func(*plan){(*plan).ropeFreqs, (*plan).exaoneWindow},
	},
	{
		types: []string{"ernie4_5"}, arch: "ernie4_5",
		block: slices.Concat(attention, feedForward),
		keys:  []func(*plan){(*plan).noFreqs, (*plan).noBias},
	},
	{
		types: []string{"hunyuan_v1_dense"}, arch: "hunyuan-dense", ropeAlpha: true,
		block: slices.Concat(attention, []rule{
			{"self_attn.query_layernorm", "attn_q_norm", norm},
			{"self_attn.key_layernorm", "attn_k_norm", norm},
		}, feedForward),
		keys: []func(*plan){(*plan).noFreqs, (*plan).noBias},
	},
	{
		types: []string{"ernie4_5_moe"}, arch: "ernie4_5-moe",
		names: map[string]string{"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
		dense: slices.Concat(attention, feedForward),
		block: slices.Concat(attention, routed("mlp.gate", rule{"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", bare}), sharedExpert("mlp.shared_experts")),
		keys:  []func(*plan){(*plan).noFreqs, (*plan).noBias, (*plan).ernieExperts}, modelled: (*plan).expertsLast,
	},
	{
		types: []string{"afmoe"}, arch: "afmoe",
		names: map[string]string{"n_shared_experts": "num_shared_experts", "routed_scaling_factor": "route_scale", "first_k_dense_replace": "num_dense_layers"},
		dense: slices.Concat(afmoeAttention, feedForward[1:]),
		block: slices.Concat(afmoeAttention, []rule{
			{"mlp.router.gate", "ffn_gate_inp", router},
			{"mlp.expert_bias", "exp_probs_b.bias", bare},
		}, expertMatrices, sharedExpert("mlp.shared_experts")),
		defaults: map[string]any{"n_shared_experts": 2, "first_k_dense_replace": 1},
		keys:     []func(*plan){(*plan).noFreqs, (*plan).afmoeKeys},
	},
	{
		types: []string{"glm"}, arch: "chatglm",
		block: slices.Concat(attention, []rule{
			{"post_attention_layernorm", "ffn_norm", norm},
			{"mlp.gate_up_proj", "ffn_up", copied},
			{"mlp.down_proj", "ffn_down", copied},
		}),
		keys: []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
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
		keys: []func(*plan){(*plan).ropeDims, (*plan).ropeFreqs},
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
		ropeTypes: map[string]string{"su": "longrope", "yarn": "longrope"},
		keys:      []func(*plan){(*plan).ropeDims, (*plan).longRope, (*plan).windowOrZero},
	},
}

// findFamily returns the family of the model type, or an error that lists all types.
func findFamily(s *settings) (*family, error) {
	var known []string
	for i, f := range families {
		if slices.Contains(f.types, s.str("model_type")) && (f.when == nil || f.when(s)) {
			s.renamed(f.names)
			s.defaults(model.Defaults(f.types[0]))
			s.defaults(f.defaults)
			if f.prepare != nil {
				f.prepare(s)
			}
			return &families[i], nil
		}
		known = append(known, f.types...)
	}
	s.fail("model_type", "%q cannot be written as GGUF; known: %s", s.str("model_type"), strings.Join(known, ", "))
	return nil, s.err
}

// gemmaBlock returns the rules of a block with norms before and after each sublayer. `within` are the norms inside
// attention.
func gemmaBlock(within ...rule) []rule {
	return slices.Concat(attention, within, []rule{
		{"post_attention_layernorm", "post_attention_norm", norm},
		{"pre_feedforward_layernorm", "ffn_norm", norm},
		{"mlp.gate_proj", "ffn_gate", copied},
		{"mlp.up_proj", "ffn_up", copied},
		{"mlp.down_proj", "ffn_down", copied},
		{"post_feedforward_layernorm", "post_ffw_norm", norm},
	})
}

// gemma2Keys sets the keys of Gemma 2. llama.cpp always caps the scores and logits of this architecture, so a model
// without a cap is refused.
func (p *plan) gemma2Keys() {
	s := p.s
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		c := s.num(key, 0)
		if c == 0 {
			s.fail(key, "null or 0, but llama.cpp's %s has no models without this cap", p.family.arch)
		}
		p.add(key, float32(c))
	}
	period := p.fullEach(2)
	p.someWindow(period > 1)
	if period > 2 { // published models have 2
		p.note("older releases of llama.cpp have a sliding window in every other layer of this architecture, whatever the file says")
	}
	p.gemmaAttention(period, 46)
}

// someWindow returns an error, through p.s, if has is false: no layer has a sliding window.
func (p *plan) someWindow(has bool) {
	if !has {
		p.s.fail("layer_types", "no layer has a sliding window, but llama.cpp's %s has no models without: it would abort", p.family.arch)
	}
}

// noHead returns an error for a model whose head is not tied to the embedding, since llama.cpp's
// architecture has no such head.
func (p *plan) noHead() {
	if !p.model.TieEmbeddings {
		p.s.fail("tie_word_embeddings", "%v, but llama.cpp's %s takes the embedding for the head", p.s.vals["tie_word_embeddings"], p.family.arch)
	}
}

// ownHead returns an error for a model whose head is tied to the embedding, since llama.cpp's architecture needs a
// head of its own.
func (p *plan) ownHead() {
	if p.model.TieEmbeddings {
		p.s.fail("tie_word_embeddings", "true, but llama.cpp's %s has a head of its own: it would not load the file", p.family.arch)
	}
}

// gemma4Keys sets the keys of Gemma 4. Blocks with a sliding window and blocks without have heads and rotary embeddings
// of their own.
func (p *plan) gemma4Keys() {
	c := p.model
	windows, widths, kv := make([]int32, p.layers), make([]int32, p.layers), make([]int32, p.layers)
	for b := range p.layers {
		windows[b], widths[b], kv[b] = int32(min(c.Window(b), 1)), int32(c.IntermediateSize), int32(c.Heads(b).KV)
		if c.DoubleWide && c.SharesKV(b) {
			widths[b] *= 2
		}
	}
	p.someWindow(c.SlidingWindow > 0)
	full, near := c.Heads(p.layers-1).Dim, c.HeadDim
	p.set("attention.head_count_kv", kv)
	p.set("feed_forward_length", widths)
	p.set("attention.key_length", uint32(full))
	p.set("attention.value_length", uint32(full))
	p.add("attention.key_length_swa", uint32(near))
	p.add("attention.value_length_swa", uint32(near))
	p.add("attention.sliding_window", uint32(c.SlidingWindow))
	p.add("attention.sliding_window_pattern", windows)
	p.add("attention.shared_kv_layers", uint32(c.SharedKV))
	p.add("embedding_length_per_layer_input", uint32(c.PerLayerSize))
	p.cappedLogits()
	if c.NumExperts > 0 {
		p.add("expert_count", uint32(c.NumExperts))
		p.add("expert_used_count", uint32(c.NumExpertsPerTok))
		p.add("expert_feed_forward_length", uint32(c.MoEIntermediateSize))
	}
	p.gemma4Rope(full, near)
	p.lastTwo()
	if c.PerLayerSize > 0 && c.PerLayerVocab != c.VocabSize {
		p.s.fail("vocab_size_per_layer_input", "%d, where vocab_size is %d: llama.cpp's %s has one vocabulary for both", c.PerLayerVocab, c.VocabSize, p.family.arch)
	}
}

// gemma4Rope sets the rotary embeddings. A head has full elements in a block without a sliding window, and near in the
// others. llama.cpp divides the frequencies of blocks without a window by rope_freqs. A pair that does not turn has a
// huge divisor.
func (p *plan) gemma4Rope(full, near int) {
	const still = 1e30
	c := p.model
	if t := c.Rope.Type; t != "proportional" && t != "default" {
		p.s.fail("rope_parameters", "full_attention: rope_type %s: llama.cpp's %s knows proportional and default", t, p.family.arch)
	}
	if t := cmp.Or(c.LocalRope, &c.Rope).Type; t != "default" {
		p.s.fail("rope_parameters", "sliding_attention: rope_type %s: llama.cpp's %s knows default", t, p.family.arch)
	}
	p.add("rope.dimension_count", uint32(full))
	p.add("rope.dimension_count_swa", uint32(near))
	pairs := int(cmp.Or(c.Rope.Partial, 1)*float64(full)) / 2
	freqs := slices.Repeat([]float32{still}, full/2)
	for i := range pairs {
		freqs[i] = float32(cmp.Or(c.Rope.Factor, 1))
	}
	p.vector("rope_freqs.weight", freqs)
}

// lastTwo refuses a model whose sharing layers read other keys and values than in llama.cpp. There a layer without a
// window reads the keys and values of the last layer that has some, and a layer with a window the last but one's.
func (p *plan) lastTwo() {
	c := p.model
	first := p.layers - c.SharedKV
	near := func(b int) bool { return b >= 0 && c.Window(b) > 0 }
	for b := first; b < p.layers; b++ {
		if near(first-1) || near(b) && !near(first-2) {
			p.s.fail("num_kv_shared_layers", "%d: layer %d shares keys and values of another layer than in llama.cpp's %s: the model would be another", c.SharedKV, b, p.family.arch)
			return
		}
	}
}

// cappedLogits writes the cap of the logits that package model found. Config.json alone would not do: Gemma 3's
// class with a vision tower ignores its key (model/gemma3.go).
func (p *plan) cappedLogits() {
	if c := p.model.LogitSoftcap; c > 0 {
		p.add("final_logit_softcapping", float32(c))
	}
}

// gemma3Keys sets the keys of Gemma 3.
func (p *plan) gemma3Keys() {
	s := p.s
	p.gemmaAttention(p.fullEach(s.int("sliding_window_pattern", s.int("_sliding_window_pattern", 6))), 62)
}

// fullEach returns n if layers n−1, 2n−1, … and no others have full attention. n comes from
// layer_types if the config has this key, otherwise it is usual. Any other arrangement of layers is
// an error of p.s.
func (p *plan) fullEach(usual int) int {
	if types := p.s.layerTypes(); len(types) > 0 {
		return p.period(types)
	}
	return usual
}

// gemmaAttention writes the sliding window of Gemma; every period-th layer has full attention. llama.cpp derives
// the scale of attention scores from other keys, and a model with another scale is refused. llama.cpp recognises
// the 27B model, which has a scale of its own, by its number of layers, layersOf27B.
func (p *plan) gemmaAttention(period, layersOf27B int) {
	s := p.s
	if period > 1 {
		p.add("attention.sliding_window", uint32(s.need("sliding_window")))
		p.add("attention.sliding_window_pattern", uint32(period))
	}
	want := p.headDim
	if p.layers == layersOf27B {
		want = s.need("hidden_size") / p.heads
	}
	if got := s.num("query_pre_attn_scalar", float64(want)); got != float64(want) {
		s.fail("query_pre_attn_scalar", "%g, but llama.cpp's %s takes %d from the other keys", got, p.family.arch, want)
	}
	if s.bool("use_bidirectional_attention", false) {
		s.fail("use_bidirectional_attention", "cannot be written as GGUF")
	}
	p.noBias()
}

// The functions below write multi-head latent attention (MLA) for llama.cpp's architecture deepseek2. In MLA, keys
// and values of all heads are computed from one narrow latent vector. The GGUF file describes them as one key/value
// head, as wide as the latent vector plus the rotary part.

// narrow holds the sizes of latent attention. rank is the latent vector's size. Per head, nope and rope are the
// sizes of a key's parts without and with rotary embedding, and value is a value's size.
type narrow struct{ rank, nope, rope, value int64 }

// mlaSizes reads the sizes of latent attention. It sets p.headDim to the rotary part of a key, and
// p.kvHeads to 1, since all heads share the latent vector.
func (p *plan) mlaSizes() {
	s := p.s
	p.narrowed = narrow{rank: int64(s.need("kv_lora_rank")), nope: int64(s.need("qk_nope_head_dim")), rope: int64(s.need("qk_rope_head_dim")), value: int64(s.need("v_head_dim"))}
	p.headDim, p.kvHeads = int(p.narrowed.rope), 1
}

// headLengths sets the keys for the sizes of a head's keys and values.
func (p *plan) headLengths() {
	key, value := p.headDim, p.headDim
	if n := p.narrowed; p.family.mla {
		key, value = int(n.rank+n.rope), int(n.rank)
		p.add("attention.key_length_mla", uint32(n.nope+n.rope))
		p.add("attention.value_length_mla", uint32(n.value))
		p.add("attention.kv_lora_rank", uint32(n.rank))
		p.add("attention.q_lora_rank", uint32(p.s.int("q_lora_rank", 0))) // 0: queries come from the hidden state; must be written unless there are 27 layers
	}
	p.add("attention.key_length", uint32(key))
	p.add("attention.value_length", uint32(value))
}

// mlaRules returns the rules of latent attention. Queries have a low-rank projection (q_a, q_b) if the model's
// QRank is above 0, otherwise a single one.
func (p *plan) mlaRules() []rule {
	queries := []rule{{"self_attn.q_proj", "attn_q", copied}}
	if p.model.MLA.QRank > 0 {
		queries = []rule{
			{"self_attn.q_a_proj", "attn_q_a", copied},
			{"self_attn.q_a_layernorm", "attn_q_a_norm", norm},
			{"self_attn.q_b_proj", "attn_q_b", copied},
		}
	}
	rules := slices.Concat([]rule{{"input_layernorm", "attn_norm", norm}}, queries, []rule{
		{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", copied},
		{"self_attn.kv_a_layernorm", "attn_kv_a_norm", norm},
		{"self_attn.kv_b_proj", "attn_k_b", keysOfHeads},
		{"self_attn.kv_b_proj", "attn_v_b", valuesOfHeads},
		{"self_attn.o_proj", "attn_output", copied},
	})
	if p.model.MLA.Indexer == nil {
		return rules
	}
	return append(rules, []rule{
		{"self_attn.indexer.k_norm", "indexer.k_norm", norm},
		{"self_attn.indexer.weights_proj", "indexer.proj", copied},
		{"self_attn.indexer.wk", "indexer.attn_k", copied},
		{"self_attn.indexer.wq_b", "indexer.attn_q_b", copied},
	}...)
}

// turnsNeighbours drops a key that classes with an indexer do not read: they always rotate neighbours.
func turnsNeighbours(s *settings) { delete(s.vals, "rope_interleave") }

// indexerKeys sets the keys of the indexer, which chooses the keys that attention reads. llama.cpp rotates the indexer's
// vectors in pieces of 64 elements (llama-kv-cache.cpp), which changes no score.
func (p *plan) indexerKeys() {
	const piece = 64
	x := p.model.MLA.Indexer
	if x.HeadDim%piece != 0 {
		p.s.fail("index_head_dim", "%d is no multiple of %d: llama.cpp's %s would abort", x.HeadDim, piece, p.family.arch)
	}
	p.add("attention.indexer.head_count", uint32(x.Heads))
	p.add("attention.indexer.key_length", uint32(x.HeadDim))
	p.add("attention.indexer.top_k", uint32(x.TopK))
}

// deepseekExperts returns the rules of a block with experts, and the rules more in their middle.
// The first blocks of such a model have a dense MLP and other rules.
func deepseekExperts(more ...rule) []rule {
	return slices.Concat(routed("mlp.gate", more...), sharedExpert("mlp.shared_experts"))
}

// deepseekKeys sets the keys of attention and experts that DeepSeek V2 and V3 share. gating is llama.cpp's number
// for the function that scores experts.
func (p *plan) deepseekKeys(gating uint32) {
	s := p.s
	p.noBias()
	noRopes("llama3", "linear")(p)                       // llama.cpp would scale attention scores
	if eps := s.num("rms_norm_eps", 1e-6); eps != 1e-6 { // transformers.DeepseekV3RMSNorm, the norm of the narrow vectors
		p.note(fmt.Sprintf("llama.cpp norms the narrow vectors of attention with rms_norm_eps %g too, this model with 1e-06: results differ a little", eps))
	}
	p.add("rope.dimension_count", uint32(p.narrowed.rope))
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(s.need("moe_intermediate_size")))
	p.add("expert_shared_count", uint32(s.int("n_shared_experts", 0)))
	p.add("expert_gating_func", gating)
	p.add("expert_weights_scale", float32(s.num("routed_scaling_factor", 1)))
	p.add("leading_dense_block_count", uint32(s.int("first_k_dense_replace", 0)))
}

// deepseek2Keys sets the keys of DeepSeek V2, whose expert scores are a softmax. llama.cpp chooses experts by
// groups only as V3 does, so a V2 model that uses groups is refused.
func (p *plan) deepseek2Keys() {
	const softmax = 1 // gguf.ExpertGatingFuncType
	p.deepseekKeys(softmax)
	if m := p.s.str("topk_method"); m != "" && m != "greedy" {
		p.s.fail("topk_method", "%q: a group of experts is worth its best one, and in llama.cpp's %s its best two: the model would be another", m, p.family.arch)
	}
}

// deepseek3Keys sets the keys of DeepSeek V3, whose expert scores are sigmoids.
func (p *plan) deepseek3Keys() {
	const sigmoid = 2
	p.groupedExperts(sigmoid)
}

// groupedExperts sets the keys of models whose experts are divided into groups. A token chooses experts only from its
// best groups. The score of a group is the sum of its two best expert scores. gating is as in deepseekKeys.
func (p *plan) groupedExperts(gating uint32) {
	s := p.s
	p.deepseekKeys(gating)
	p.add("expert_weights_norm", s.bool("norm_topk_prob", true))
	p.expertGroups()
	if !s.bool("rope_interleave", true) {
		s.fail("rope_interleave", "is false, but llama.cpp's %s turns neighbours: the model would be another", p.family.arch)
	}
}

// expertGroups sets the keys of groups of experts, unless every group is open.
func (p *plan) expertGroups() {
	if open, all := p.s.int("topk_group", 1), p.s.int("n_group", 1); open < all {
		p.add("expert_group_count", uint32(all))
		p.add("expert_group_used_count", uint32(open))
	}
}

// mistral4Keys sets the keys of Mistral 4. The scores of its experts are a softmax; all else is as in DeepSeek V3, and
// queries are scaled as in Ministral 3.
func (p *plan) mistral4Keys() {
	const softmax = 1
	p.groupedExperts(softmax)
	p.queryScaling()
	p.add("attention.temperature_length", uint32(p.original()))
}

// mlaYarn sets the factor by which yarn scaling multiplies attention scores. The model has two factors, m (mscale)
// and all (mscale_all_dim); llama.cpp's deepseek2 has one number for both. So mlaYarn refuses factors that differ
// or are 0.
func (p *plan) mlaYarn(m, all float64) {
	if m != all || m == 0 {
		p.s.fail("mscale", "is %g and mscale_all_dim %g, but llama.cpp's %s has one number for both: the model would be another", m, all, p.family.arch)
	}
	p.add("rope.scaling.yarn_log_multiplier", float32(0.1*all))
}

// plainYarn refuses a factor other than 1 (mscale) of yarn scaling, which llama.cpp's deepseek32 computes otherwise.
func (p *plan) plainYarn() {
	if m := p.rope.params.num("mscale", 1); p.rope.kind == "yarn" && m != 1 {
		p.s.fail("mscale", "is %g, but llama.cpp's %s computes 1 only: the model would be another", m, p.family.arch)
	}
}

// headRows selects rows of a matrix whose rows are grouped by head. Each head has each rows; n of them are
// selected, from the head's row from on. If turned is set, each head's selection is written transposed, as
// (columns, rows).
type headRows struct {
	each, from, n int64
	turned        bool
}

// ofHeads plans one of the two tensors that kv_b_proj is cut into. One has each head's rows for keys, as (heads,
// columns, rows); the other has the rows for values, as (heads, rows, columns).
func (p *plan) ofHeads(f *finder, r rule) error {
	t, ok := f.find(r.from + ".weight")
	if !ok {
		return f.missing(r.from + ".weight")
	}
	n, heads := p.narrowed, int64(p.heads)
	it := item{Tensor: gguf.Tensor{Name: r.to + ".weight"}, parts: []part{t}}
	if it.rows = (headRows{each: n.nope + n.value, n: n.nope, turned: true}); r.how == valuesOfHeads {
		it.rows = headRows{each: n.nope + n.value, from: n.nope, n: n.value}
	}
	if it.Shape = []int64{heads, it.rows.n, n.rank}; it.rows.turned {
		it.Shape = []int64{heads, n.rank, it.rows.n}
	}
	p.take(it, r.how)
	return nil
}

// headRows writes the data of a GGUF tensor, item it: the rows selected by it.rows, head by head.
func (j *writing) headRows(w io.Writer, it item) error {
	rows, t := it.rows, it.parts[0]
	cols := t.shape[1]
	for h := range t.shape[0] / rows.each {
		j.values = sized(j.values, rows.n*cols)
		if err := j.weights.Read(t.name, (h*rows.each+rows.from)*cols, j.values); err != nil {
			return err
		}
		values := j.values
		if rows.turned {
			j.turned = sized(j.turned, rows.n*cols)
			for i, v := range values {
				j.turned[int64(i)%cols*rows.n+int64(i)/cols] = v
			}
			values = j.turned
		}
		if err := j.chunk(w, it, values); err != nil {
			return err
		}
	}
	return nil
}

// llama4Keys sets the keys of Llama 4. Models that differ from llama.cpp's assumptions are errors
// of p.s. llama.cpp assumes the chunk size of attention, the scaling of queries and the layers with
// full attention. It also assumes norms of queries and keys, except with 128 experts.
func (p *plan) llama4Keys() {
	s, must := p.s, func(key string, is, want any) {
		if is != want {
			p.s.fail(key, "is %v, but llama.cpp's %s takes it to be %v: the model would be another", is, p.family.arch, want)
		}
	}
	must("attention_chunk_size", s.int("attention_chunk_size", 0), 8192)
	tempers := s.vals["attn_temperature_tuning"]
	if x, ok := number(tempers); ok { // published files have a number here
		tempers = x != 0
	}
	must("attn_temperature_tuning", tempers, true)
	must("floor_scale", s.num("floor_scale", 0), 8192.0)
	must("attn_scale", s.num("attn_scale", 0), 0.1)
	must("use_qk_norm", s.bool("use_qk_norm", true), p.expertCount() != 128)
	for i, kind := range s.layerTypes() {
		if (kind == "full_attention") != ((i+1)%4 == 0) {
			s.fail("layer_types", "layer %d is %s: llama.cpp's %s has full attention in each fourth layer and no other", i, kind, p.family.arch)
		}
	}
	if step := p.expertsEach(); step > 0 {
		p.expertCounts()
		p.add("interleave_moe_layer_step", uint32(step))
	} else {
		s.fail("moe_layers", "has no layer: llama.cpp's %s is not written without experts", p.family.arch)
	}
	p.add("expert_feed_forward_length", uint32(s.need("intermediate_size")))
}

// expertsEach returns n if blocks n−1, 2n−1, … and no others have experts. 0: no block has experts.
// Any other arrangement of blocks is an error of p.s.
func (p *plan) expertsEach() int {
	listed, ok := p.s.vals["moe_layers"].([]any)
	if !ok {
		return p.s.need("interleave_moe_layer_step")
	}
	var blocks []int
	for _, v := range listed {
		x, _ := number(v)
		blocks = append(blocks, int(x))
	}
	if len(blocks) == 0 {
		return 0
	}
	step := slices.Min(blocks) + 1
	for b := range p.layers {
		if slices.Contains(blocks, b) != ((b+1)%step == 0) {
			p.s.fail("moe_layers", "layer %d: llama.cpp's %s has experts in every n-th layer and no other", b, p.family.arch)
			break
		}
	}
	return step
}

// gatedDeltaKeys sets the keys of Gated DeltaNet, the recurrence that replaces attention in most blocks. It refuses
// models that differ from what llama.cpp assumes: values as long as keys, attention in exactly every n-th block,
// and no biases.
func (p *plan) gatedDeltaKeys() {
	s := p.s
	keys, heads, key := s.int("linear_num_key_heads", 16), s.int("linear_num_value_heads", 32), s.int("linear_key_head_dim", 128)
	value := s.int("linear_value_head_dim", 128)
	if value != key {
		s.fail("linear_value_head_dim", "%d, where linear_key_head_dim is %d: llama.cpp's %s has one for both", value, key, p.family.arch)
	}
	p.noBias()
	attends := s.int("full_attention_interval", 4) // the last block of each group of this size has attention
	if types := s.layerTypes(); len(types) > 0 {
		attends = p.period(types)
	}
	if eps := s.num("rms_norm_eps", 1e-6); eps != 1e-6 { // transformers.models.qwen3_next, l2norm
		p.note(fmt.Sprintf("llama.cpp makes queries and keys of the recurrence of length 1 with rms_norm_eps %g, this model with 1e-06: results differ a little", eps))
	}
	p.add("ssm.conv_kernel", uint32(s.int("linear_conv_kernel_dim", 4)))
	p.add("ssm.state_size", uint32(key))
	p.add("ssm.group_count", uint32(keys))
	p.add("ssm.time_step_rank", uint32(heads))
	p.add("ssm.inner_size", uint32(heads*value))
	p.add("full_attention_interval", uint32(attends))
}

// kda has the tensors of KDA and the norm before it. kimiDense and kimiExperts have those of the second half of a
// block, whose dense MLP has one of two names.
var (
	kda = []rule{
		{"input_layernorm", "attn_norm", norm},
		{"self_attn.q_proj", "attn_q", copied},
		{"self_attn.k_proj", "attn_k", copied},
		{"self_attn.v_proj", "attn_v", copied},
		{"self_attn.q_conv1d", "ssm_conv1d_q", tapsOfFour},
		{"self_attn.k_conv1d", "ssm_conv1d_k", tapsOfFour},
		{"self_attn.v_conv1d", "ssm_conv1d_v", tapsOfFour},
		{"self_attn.f_a_proj", "ssm_f_a", copied},
		{"self_attn.f_b_proj", "ssm_f_b", copied},
		{"self_attn.b_proj", "ssm_beta", copied},
		{"self_attn.A_log", "ssm_a", rates},
		{"self_attn.g_a_proj", "ssm_g_a", copied},
		{"self_attn.g_b_proj", "ssm_g_b", copied},
		{"self_attn.dt_bias", "ssm_dt.bias", bare},
		{"self_attn.o_norm", "ssm_norm", norm},
		{"self_attn.o_proj", "attn_output", copied},
	}
	kimiDense = []rule{
		{"post_attention_layernorm", "ffn_norm", norm},
		{"mlp.gate_proj", "ffn_gate", copiedIfAny}, {"block_sparse_moe.gate_proj", "ffn_gate", copiedIfAny},
		{"mlp.up_proj", "ffn_up", copiedIfAny}, {"block_sparse_moe.up_proj", "ffn_up", copiedIfAny},
		{"mlp.down_proj", "ffn_down", copiedIfAny}, {"block_sparse_moe.down_proj", "ffn_down", copiedIfAny},
	}
	kimiExperts = slices.Concat(mixtralExperts, []rule{{"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", bare}},
		sharedExpert("block_sparse_moe.shared_experts"))
)

// kdaKeys sets the keys of models with KDA in some blocks and latent attention in the others. The number of key/value
// heads becomes a list by block, 0 for KDA. It refuses models that differ from what llama.cpp assumes: KDA has as many
// heads as attention, queries come from the hidden state, dense blocks precede all others, a shared expert, and weights
// of chosen experts that sum to 1.
func (p *plan) kdaKeys() {
	const sigmoid = 2 // gguf.ExpertGatingFuncType
	c, s, heads, lead := p.model, p.s, make([]int32, p.layers), 0
	for b := range heads {
		if !c.IsRecurrent(b) {
			heads[b] = int32(p.kvHeads)
		}
		if c.HasExperts(b) {
			continue
		}
		if lead++; lead != b+1 {
			s.fail("mlp_layer_types", "layer %d is dense behind one with experts: llama.cpp's %s has dense layers before all others", b, p.family.arch)
		}
	}
	for i, kv := range p.kvs {
		if kv.Key == p.family.arch+".attention.head_count_kv" {
			p.kvs[i].Value = heads
		}
	}
	switch {
	case c.KDA == nil || c.KDA.Heads != c.NumHeads:
		s.fail("linear_num_heads", "llama.cpp's %s has layers with KDA, with num_attention_heads heads", p.family.arch)
		return
	case c.MLA.QRank > 0:
		s.fail("q_lora_rank", "%d: llama.cpp's %s projects queries from the hidden state", c.MLA.QRank, p.family.arch)
	case !c.NormTopKProb || c.ExpertGroups > 0 || c.SharedSize == 0:
		s.fail("moe_renormalize", "llama.cpp's %s has a shared expert, no groups of experts, and weights of chosen experts that sum to 1", p.family.arch)
	}
	if c.RMSNormEps != c.MLA.NormEps {
		p.note(fmt.Sprintf("llama.cpp norms queries and keys of KDA and the narrow vectors of attention with rms_norm_eps %g too, this model with 1e-06: results differ a little", c.RMSNormEps))
	}
	p.add("ssm.conv_kernel", uint32(c.KDA.Taps))
	p.add("kda.head_dim", uint32(c.KDA.Dim))
	p.add("rope.dimension_count", uint32(p.narrowed.rope))
	p.add("expert_count", uint32(c.NumExperts))
	p.add("expert_used_count", uint32(c.NumExpertsPerTok))
	p.add("expert_feed_forward_length", uint32(c.MoEIntermediateSize))
	p.add("expert_shared_count", uint32(c.SharedSize/c.MoEIntermediateSize))
	p.add("expert_gating_func", uint32(sigmoid))
	p.add("expert_weights_norm", true)
	p.add("expert_weights_scale", float32(c.RoutedScale))
	p.add("leading_dense_block_count", uint32(lead))
}

// sharedWidth sets the width of the shared expert.
func (p *plan) sharedWidth() {
	p.add("expert_shared_feed_forward_length", uint32(p.s.need("shared_expert_intermediate_size")))
}

// miniMaxKeys sets the keys of MiniMax-M2: experts, whose scores are sigmoids, and the number of rotary elements.
func (p *plan) miniMaxKeys() {
	const sigmoid = 2 // gguf.ExpertGatingFuncType
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(p.s.need("intermediate_size")))
	p.add("expert_gating_func", uint32(sigmoid))
	if n := p.s.int("rotary_dim", 0); n > 0 && p.s.vals["partial_rotary_factor"] == nil {
		p.s.vals["partial_rotary_factor"] = float64(n) / float64(p.headDim)
	}
	p.ropeDims()
}

// denseFirst translates mlp_layer_types, the kind of each layer's MLP, into first_k_dense_replace, the number of
// dense layers. Dense layers behind one with experts are an error, since llama.cpp has no key for them.
func (p *plan) denseFirst() {
	types, ok := p.s.vals["mlp_layer_types"].([]any)
	if !ok {
		return
	}
	n := 0
	for i, t := range types {
		if t != "dense" {
			continue
		}
		if n++; n != i+1 {
			p.s.fail("mlp_layer_types", "layer %d is dense behind one with experts: llama.cpp's %s has dense layers before all others", i, p.family.arch)
		}
	}
	p.s.vals["first_k_dense_replace"] = json.Number(itoa(n))
}

// expertsLast returns an error, through p.s, for models whose last layer has no experts.
// llama.cpp's architecture has no key for dense layers after those with experts.
func (p *plan) expertsLast() {
	if c := p.model; slices.Contains(c.MLPOnlyLayers, c.NumLayers-1) {
		p.s.fail("moe_layer_end_index", "is below the last layer: llama.cpp's %s has no dense layers behind those with experts", p.family.arch)
	}
}

// ernieExperts sets the keys of Ernie 4.5's mixture of experts. It refuses a model without a shared expert, which
// llama.cpp needs.
func (p *plan) ernieExperts() {
	s := p.s
	p.expertCounts()
	width, shared := s.need("moe_intermediate_size"), s.int("moe_num_shared_experts", 2)
	if shared == 0 {
		s.fail("moe_num_shared_experts", "0: llama.cpp's %s needs a shared expert", p.family.arch)
	}
	p.add("expert_feed_forward_length", uint32(width))
	p.add("expert_shared_count", uint32(shared))
	p.add("expert_shared_feed_forward_length", uint32(shared*width))
	p.add("interleave_moe_layer_step", uint32(s.int("moe_layer_interval", 1)))
	p.add("leading_dense_block_count", uint32(s.int("moe_layer_start_index", 1)))
}

// shortConvKeys sets the keys of models in which some blocks have a gated short convolution instead of attention. The
// width of the MLP is package model's, since it may follow from other keys.
func (p *plan) shortConvKeys() {
	r := p.model.ShortConv
	p.headsByBlock()
	p.set("feed_forward_length", uint32(p.model.IntermediateSize))
	if r == nil || r.Bias {
		p.s.fail("conv_bias", "llama.cpp's %s has convolutions without a bias in some layers", p.family.arch)
		return
	}
	p.add("shortconv.l_cache", uint32(r.Taps))
}

// headsByBlock makes the number of key/value heads a list by block, 0 for blocks without attention.
func (p *plan) headsByBlock() {
	heads := make([]int32, p.layers)
	for b := range heads {
		if p.model.Mixes(b) && !p.model.IsRecurrent(b) {
			heads[b] = int32(p.kvHeads)
		}
	}
	p.set("attention.head_count_kv", heads)
}

// hasMamba says whether a Granite 4 model has layers of Mamba-2, as it has by default.
func hasMamba(s *settings) bool {
	types := s.layerTypes()
	return len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return t != "attention" && t != "full_attention" })
}

// graniteHybrid sets the keys of Granite 4 with Mamba-2. Every token uses the shared expert, which is the only MLP of a
// model without experts.
func (p *plan) graniteHybrid() {
	c := p.model
	p.headsByBlock()
	p.mamba2Keys(c.Mamba2)
	if c.NumExperts == 0 {
		p.set("feed_forward_length", uint32(c.IntermediateSize))
		return
	}
	p.expertCounts()
	p.add("expert_shared_feed_forward_length", uint32(c.SharedSize))
}

// falconH1Keys sets the keys of Falcon-H1. llama.cpp has no factors on activations, so weights are multiplied in their
// place.
func (p *plan) falconH1Keys() {
	c := p.model
	by, r := c.Multipliers, c.Mamba2
	p.mamba2Keys(r)
	all := func(by float64) []scaled { return []scaled{{math.MaxInt32, by}} }
	groups := r.Groups * r.StateDim
	p.scales = map[string][]scaled{
		"token_embd": all(c.EmbedScale),
		"output":     all(c.LogitScale),
		"attn_k":     all(c.AttnScale * math.Sqrt(float64(c.HeadDim))),
		"attn_v":     all(by.Value),
		"ffn_gate":   all(by.Gate),
		"ffn_down":   all(by.Down),
		"ssm_in":     {{r.Inner(), by.ScanIn[0]}, {r.Inner(), by.ScanIn[1]}, {groups, by.ScanIn[2]}, {groups, by.ScanIn[3]}, {r.Heads, by.ScanIn[4]}},
		"ssm_out":    all(by.ScanOut),
	}
}

// nemotronBlocks sets the number of layers of Nemotron-H, whose config.json lists the layers instead.
func nemotronBlocks(s *settings) {
	n := len(s.str("hybrid_override_pattern"))
	if types, ok := s.vals["layers_block_type"].([]any); ok {
		n = len(types)
	}
	if n > 0 {
		s.vals["num_hidden_layers"] = json.Number(itoa(n))
	}
}

// hasRoutedExperts says whether a layer of Nemotron-H has experts.
func hasRoutedExperts(s *settings) bool {
	types, listed := s.vals["layers_block_type"].([]any)
	return listed && slices.Contains(types, any("moe")) || !listed && strings.Contains(s.str("hybrid_override_pattern"), "E")
}

// nemotronKeys sets the keys of Nemotron-H, in which a block has a Mamba-2 mixer, attention or experts. The numbers of
// key/value heads and the MLP's width are lists by block, 0 for blocks without. llama.cpp has no least time step: the
// step of published models becomes a note, and a longer one is refused.
func (p *plan) nemotronKeys() {
	const usual = 0.001
	c, s := p.model, p.s
	widths := make([]int32, p.layers)
	for b := range widths {
		switch {
		case c.HasExperts(b):
			widths[b] = int32(c.MoEIntermediateSize)
		case !c.Mixes(b):
			s.fail("layers_block_type", "layer %d is an MLP alone, which mt export does not write for llama.cpp's %s", b, p.family.arch)
			return
		}
	}
	p.headsByBlock()
	p.set("feed_forward_length", widths)
	p.add("attention.layer_norm_epsilon", float32(c.RMSNormEps)) // llama.cpp requires the key and does not use it
	if c.Mamba2 == nil {
		s.fail("layers_block_type", "no layer has a Mamba-2 mixer: llama.cpp's %s needs its sizes", p.family.arch)
		return
	}
	r := *c.Mamba2
	switch {
	case r.DtMin > usual:
		s.fail("time_step_min", "%g, but llama.cpp's %s has no least time step: the model would be another", r.DtMin, p.family.arch)
	case r.DtMin > 0:
		p.note(fmt.Sprintf("llama.cpp has no least time step, and this model has %g (time_step_min): results differ a little where a step is shorter", r.DtMin))
	}
	r.DtMin = 0
	p.mamba2Keys(&r)
	if c.NumExperts == 0 {
		return
	}
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(c.MoEIntermediateSize))
	p.add("expert_shared_feed_forward_length", uint32(c.SharedSize))
	p.add("expert_shared_count", uint32(1))
	p.add("expert_weights_norm", c.NormTopKProb)
	p.add("expert_weights_scale", float32(c.RoutedScale))
	p.expertGroups()
}

// mamba2Keys sets the keys of Mamba-2 mixers. It refuses limits of time steps and biases of projections, which llama.cpp
// lacks, and mixers without a bias of the convolution, which it needs.
func (p *plan) mamba2Keys(r *model.Mamba2) {
	if !r.ConvBias {
		p.s.fail(cmp.Or(p.family.names["mamba_conv_bias"], "mamba_conv_bias"), "is false, but llama.cpp's %s needs this bias: it would not load the file", p.family.arch)
	}
	if r.Bias {
		p.s.fail("mamba_proj_bias", "is true, but llama.cpp's %s has no such biases: it would not load the file", p.family.arch)
	}
	if r.Limited() {
		p.s.fail("time_step_limit", "cannot be written: llama.cpp's %s has no limits: the model would be another", p.family.arch)
	}
	p.add("ssm.conv_kernel", uint32(r.Taps))
	p.add("ssm.state_size", uint32(r.StateDim))
	p.add("ssm.group_count", uint32(r.Groups))
	p.add("ssm.inner_size", uint32(r.Inner()))
	p.add("ssm.time_step_rank", uint32(r.Heads))
}

// hyExperts sets the keys of HY 3's mixture of experts, whose scores are sigmoids.
func (p *plan) hyExperts() {
	const sigmoid = 2 // gguf.ExpertGatingFuncType
	s := p.s
	width, shared := s.need("moe_intermediate_size"), s.int("num_shared_experts", 1)
	p.expertCounts()
	p.add("expert_feed_forward_length", uint32(width))
	p.add("expert_shared_feed_forward_length", uint32(shared*width))
	p.add("expert_gating_func", uint32(sigmoid))
	p.add("expert_weights_scale", float32(s.num("router_scaling_factor", 1)))
	p.add("expert_weights_norm", true)
}
