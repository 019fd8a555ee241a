package model

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// qwen35Text has the keys that count in the text_config of the published Qwen3.5-35B-A3B.
var qwen35Text = map[string]any{"model_type": "qwen3_5_moe_text", "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
	"num_key_value_heads": 2, "head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
	"max_position_embeddings": 262144, "full_attention_interval": 4, "mlp_only_layers": []any{}, "mtp_num_hidden_layers": 1, "attn_output_gate": true,
	"rope_parameters": map[string]any{"mrope_interleaved": true, "mrope_section": []any{11, 11, 10}, "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}

func qwen35Of(changes map[string]any) map[string]any {
	return map[string]any{"architectures": []any{"Qwen3_5MoeForConditionalGeneration"}, "model_type": "qwen3_5_moe", "tie_word_embeddings": false,
		"text_config": with(qwen35Text, changes)}
}

// TestQwen35: the published config has the preset's number of parameters and recurrent blocks, and
// its rotary embedding rotates a quarter of a head.
func TestQwen35(t *testing.T) {
	c := testkit.Must(parse(t, qwen35Of(nil)))(t)
	testkit.Check(t, "35B-A3B",
		testkit.Is("parameters", c.Params(), int64(34660610688)),
		testkit.Is("recurrent blocks", c.RecurrentBlocks(), 30),
		testkit.Is("blocks with experts", c.ExpertBlocks(), 40),
		testkit.Is("Rope.Partial", c.Rope.Partial, 0.25),
		testkit.Is("Rope.Theta", c.Rope.Theta, 1e7),
		testkit.Is("NormTopKProb", c.NormTopKProb, true),
		testkit.Is("first tensor", c.Layers()[0].Params[0].Stored[0].Name, "model.language_model.embed_tokens.weight"),
	)
	section := func(n int) map[string]any {
		rope := maps.Clone(qwen35Text["rope_parameters"].(map[string]any))
		rope["mrope_section"] = []any{n, 11, 10}
		return map[string]any{"rope_parameters": rope}
	}
	for want, changes := range map[string]map[string]any{
		"mrope_section: [12 11 10] are not three numbers whose sum is half of a head's 64 elements": section(12),
		"norm_topk_prob: false is not supported":                                                    {"norm_topk_prob": false},
		"num_experts: blocks without experts":                                                       {"mlp_only_layers": []any{3}},
		"hidden_act: \"gelu\" is not supported":                                                     {"hidden_act": "gelu"},
		`text_config: model_type: "qwen3_5_text"`:                                                   {"model_type": "qwen3_5_text"},
	} {
		if _, err := parse(t, qwen35Of(changes)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", changes, err, want)
		}
	}
}

// TestJoinedExperts: tensor names in a directory decide whether one tensor holds all experts of a
// block or each expert has its own. PredictsAhead recognises the tensors of multi-token prediction.
func TestJoinedExperts(t *testing.T) {
	const recordings = "../internal/run/testdata/recordings/"
	c := testkit.Must(LoadDir(recordings + "qwen35vlmoe/model"))(t)
	gateUp, down := c.Layers()[2].Params[2], c.Layers()[2].Params[3]
	testkit.Check(t, "one tensor",
		testkit.Is("tensor of up", gateUp.Stored[1].Tensor(), "model.language_model.layers.0.mlp.experts.gate_up_proj"),
		testkit.Is("row 3 of up", gateUp.ElemAt(1, 3, 5), int64((12+3)*16+5)),
		testkit.Is("experts of down", down.TensorShape(0)[0], int64(4)),
		testkit.Is("mtp", c.PredictsAhead("mtp.layers.0.input_layernorm.weight"), true),
		testkit.Is("a block behind the last", c.PredictsAhead("model.language_model.layers.3.mlp.gate.weight"), true),
		testkit.Is("the last block", c.PredictsAhead("model.language_model.layers.2.mlp.gate.weight"), false),
		testkit.Is("a tower", c.PredictsAhead("model.visual.blocks.7.norm1.weight"), false),
	)
	dir := t.TempDir()
	raw := testkit.Must(os.ReadFile(recordings + "qwen35vlmoe/model/config.json"))(t)
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600))
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"),
		[]byte(`{"weight_map": {"model.language_model.layers.0.mlp.experts.0.gate_proj.weight": "x.safetensors"}}`), 0o600))
	c = testkit.Must(LoadDir(dir))(t)
	if got := c.Layers()[2].Params[2].Stored[1].Tensor(); got != "model.language_model.layers.0.mlp.experts.0.up_proj.weight" {
		t.Errorf("tensors of their own: %s", got)
	}
}

// TestMiniMaxM2: rotary_dim is the number of a head's elements that rotate, and settings that the
// class lacks are refused.
func TestMiniMaxM2(t *testing.T) {
	small := map[string]any{"vocab_size": 200064, "head_dim": 24, "rotary_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2, "scoring_func": "sigmoid",
		"use_routing_bias": true, "qk_norm_type": "per_layer", "use_qk_norm": true, "shared_intermediate_size": 0, "attn_type_list": []any{1, 1, 1}}
	c := testkit.Must(parse(t, changed("minimax_m2", small)))(t)
	testkit.Check(t, "minimax_m2",
		testkit.Is("Rope.Partial", c.Rope.Partial, 0.5), testkit.Is("Rope.Theta", c.Rope.Theta, 5e6),
		testkit.Is("QKNormWhole", c.QKNormWhole, true), testkit.Is("ChoiceBias", c.ChoiceBias, true), testkit.Is("SigmoidScores", c.SigmoidScores, true),
	)
	for key, v := range map[string]any{"scoring_func": "softmax", "use_routing_bias": false, "qk_norm_type": "per_head", "use_qk_norm": false,
		"shared_intermediate_size": 8, "attn_type_list": []any{0, 1, 1}, "output_router_logits": true, "router_jitter_noise": 0.1} {
		if _, err := parse(t, changed("minimax_m2", with(small, map[string]any{key: v}))); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v: error %v", key, v, err)
		}
	}
}
