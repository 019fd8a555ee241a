package model

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// small returns changes that make base, a small Llama's config, one of a model type with experts.
func small(modelType string, changes map[string]any) map[string]any {
	m := map[string]any{"num_key_value_heads": 4, "moe_intermediate_size": 8, "num_experts_per_tok": 2}
	maps.Copy(m, changes)
	return changed(modelType, m)
}

// TestDenseBlocks: each family has its own keys for which blocks have experts. All are read.
func TestDenseBlocks(t *testing.T) {
	types := func(of ...any) []any { return of }
	for _, tc := range []struct {
		name    string
		changes map[string]any
		dense   []int
	}{
		{"glm lite by default", small("glm4_moe_lite", nil), []int{0}},
		{"glm lite", small("glm4_moe_lite", map[string]any{"mlp_layer_types": types("sparse", "dense", "sparse")}), []int{1}},
		{"glm lite, none", small("glm4_moe_lite", map[string]any{"mlp_layer_types": types("sparse", "sparse", "sparse")}), nil},
		{"glm dsa by default", small("glm_moe_dsa", nil), []int{0, 1, 2}},
		{"glm dsa, a number", small("glm_moe_dsa", map[string]any{"first_k_dense_replace": 1}), []int{0}},
		{"glm dsa", small("glm_moe_dsa", map[string]any{"mlp_layer_types": types("sparse", "dense", "sparse")}), []int{1}},
		{"hy 3 by default", small("hy_v3", nil), []int{0}},
		{"hy 3", small("hy_v3", map[string]any{"mlp_layer_types": types("dense", "dense", "sparse")}), []int{0, 1}},
		{"afmoe by default", small("afmoe", nil), []int{0}},
		{"afmoe", small("afmoe", map[string]any{"num_dense_layers": 2}), []int{0, 1}},
		{"kimi linear by default", small("kimi_linear", map[string]any{"kv_lora_rank": 16}), []int{0}},
		{"kimi linear, two", small("kimi_linear", map[string]any{"first_k_dense_replace": 2}), []int{0, 1}},
		{"kimi linear", small("kimi_linear", map[string]any{"mlp_layer_types": types("sparse", "sparse", "dense")}), []int{2}},
		{"ernie by default", small("ernie4_5_moe", nil), []int{0}},
		{"ernie, a range", small("ernie4_5_moe", map[string]any{"moe_layer_start_index": 0, "moe_layer_end_index": 1}), []int{2}},
		{"ernie, every second", small("ernie4_5_moe", map[string]any{"moe_layer_interval": 2, "moe_layer_start_index": 0}), []int{0, 2}},
	} {
		c, err := parse(t, tc.changes)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var dense []int
		for b := range c.NumLayers {
			if !c.HasExperts(b) {
				dense = append(dense, b)
			}
		}
		if !slices.Equal(dense, tc.dense) {
			t.Errorf("%s: blocks %v are dense, want %v", tc.name, dense, tc.dense)
		}
	}
}

// TestRecentRefused: settings with which the class in Transformers would compute something that mt
// lacks are errors.
func TestRecentRefused(t *testing.T) {
	for _, tc := range []struct {
		changes map[string]any
		want    string
	}{
		{small("glm4_moe_lite", map[string]any{"first_k_dense_replace": 2}), "first_k_dense_replace: 2 is not supported: Transformers' class reads mlp_layer_types"},
		{small("glm4_moe_lite", map[string]any{"mlp_layer_types": []any{"dense"}}), "mlp_layer_types: 1 of them for 3 layers"},
		{small("glm_moe_dsa", map[string]any{"indexer_types": []any{"full", "shared", "full"}}), `indexer_types: layer 1 is "shared"; only full is supported`},
		{small("glm_moe_dsa", map[string]any{"index_topk_freq": 4}), "index_topk_freq: 4 is not supported"},
		{small("glm_moe_dsa", map[string]any{"index_topk_pattern": "FSS"}), "index_topk_pattern: is not supported"},
		{small("glm_moe_dsa", map[string]any{"index_head_dim": 32}), "index_head_dim: 32 is less than qk_rope_head_dim, 64"},
		{small("glm_moe_dsa", map[string]any{"layer_types": []any{"indexed_attention", "full_attention"}}), `layer_types: layer 1 is "full_attention"; only indexed_attention`},
		{small("hy_v3", map[string]any{"mlp_layer_types": []any{"dense", "moe", "sparse"}}), `mlp_layer_types: layer 1 is "moe"`},
		{small("hy_v3", map[string]any{"num_shared_experts": 0}), "num_shared_experts: 0 is out of range"},
		{small("hy_v3", map[string]any{"qk_norm": false}), "qk_norm: false is not supported"},
		{small("hy_v3", map[string]any{"output_router_logits": true}), "output_router_logits: true: HYV3ForCausalLM has no loss of its router"},
		{changed("hunyuan_v1_dense", map[string]any{"use_qk_norm": false}), "use_qk_norm: false is not supported"},
		{small("afmoe", map[string]any{"attention_bias": true}), "attention_bias: true is not supported"},
		{small("afmoe", map[string]any{"score_func": "softmax"}), `score_func: "softmax" is not supported in AfmoeForCausalLM, only sigmoid`},
		{small("afmoe", map[string]any{"route_norm": false}), "route_norm: false is not supported in AfmoeForCausalLM, only true"},
		{small("afmoe", map[string]any{"n_group": 2}), "n_group: 2: groups of experts are not supported"},
		{small("afmoe", map[string]any{"num_shared_experts": 0}), "num_shared_experts: 0 is out of range"},
		{small("afmoe", map[string]any{"output_router_logits": true}), "output_router_logits: true: AfmoeForCausalLM has no loss of its router"},
		{small("afmoe", map[string]any{"sliding_window": json.RawMessage("null"), "layer_types": []any{"sliding_attention", "full_attention", "full_attention"}}),
			`layer_types: layer 0 is "sliding_attention", and there is no sliding window`},
		{small("kimi_linear", map[string]any{"hidden_act": "gelu"}), "hidden_act: \"gelu\" is not supported, only silu"},
		{small("kimi_linear", map[string]any{"mla_use_nope": false}), "mla_use_nope: false is not supported"},
		{small("kimi_linear", map[string]any{"moe_router_activation_func": "softmax"}), "moe_router_activation_func: \"softmax\" is not supported"},
		{small("kimi_linear", map[string]any{"num_shared_experts": -1}), "num_shared_experts: -1 is out of range"},
		{small("kimi_linear", map[string]any{"linear_attn_config": map[string]any{"kda_layers": []any{1, 2}, "full_attn_layers": []any{2}}}),
			"full_attn_layers: layer 2: layers count from 1, each in one list"},
		{small("kimi_linear", map[string]any{"linear_attn_config": map[string]any{"kda_layers": []any{1}, "full_attn_layers": []any{3}}}),
			"kda_layers: layer 2 is in no list"},
		{small("ernie4_5_moe", map[string]any{"moe_layer_start_index": 3}), "moe_layer_start_index: no layer has experts"},
		{small("ernie4_5_moe", map[string]any{"moe_norm_min": 0.1}), "moe_norm_min: 0.1 is out of range"},
		{changed("nemotron_h", map[string]any{"hybrid_override_pattern": "M-E", "moe_latent_size": 8}), "moe_latent_size: 8: experts of a latent size are not supported"},
		{changed("nemotron_h", map[string]any{"hybrid_override_pattern": "M?"}), `layers_block_type: layer 1 is "?"; known: linear_attention, full_attention, moe, mlp`},
		{small("ernie4_5_moe", map[string]any{"moe_k": 65}), "moe_k: 65 is out of range"},
	} {
		if _, err := parse(t, tc.changes); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

// TestIndexerNeedsLatentQueries: the indexer's queries are a projection of the latent vector of queries, so a config
// without one is an error.
func TestIndexerNeedsLatentQueries(t *testing.T) {
	_, err := ParseConfig([]byte(`{"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "q_lora_rank": null}`), "config.json")
	if want := "q_lora_rank: null: the indexer projects its queries"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestRecentInline: the config.json written for an inline config of these families reads back as
// the same config.
func TestRecentInline(t *testing.T) {
	without := func(m map[string]any, keys ...string) map[string]any {
		for _, k := range keys {
			m[k] = nil
		}
		return m
	}
	for _, changes := range []map[string]any{
		small("deepseek_v32", map[string]any{"first_k_dense_replace": 1, "index_topk": 7, "index_n_heads": 3}),
		small("glm_moe_dsa", map[string]any{"mlp_layer_types": []any{"dense", "sparse", "dense"}, "index_head_dim": 80, "attention_bias": true}),
		small("glm4_moe_lite", map[string]any{"mlp_layer_types": []any{"dense", "sparse", "dense"}, "n_group": 4, "topk_group": 2, "n_routed_experts": 16,
			"attention_bias": true, "rope_interleave": false, "norm_topk_prob": false}),
		without(small("kimi_linear", map[string]any{"mlp_layer_types": []any{"sparse", "dense", "sparse"}, "num_expert_group": 4, "topk_group": 2,
			"num_experts": 16, "num_experts_per_token": 3, "moe_renormalize": false, "attention_bias": true, "linear_num_heads": 3, "linear_head_dim": 24,
			"model_max_length": 77, "layer_types": []any{"full_attention", "linear_attention", "full_attention"}}), "num_experts_per_tok",
			"max_position_embeddings"),
		changed("hunyuan_v1_dense", map[string]any{"rope_scaling": map[string]any{"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "attention_bias": true}),
		without(changed("nemotron_h", map[string]any{"layers_block_type": []any{"mlp", "linear_attention", "full_attention", "mlp"}, "layer_norm_epsilon": 1e-5, "mamba_num_heads": 8,
			"mamba_head_dim": 8, "n_groups": 2, "mlp_bias": true}), "num_hidden_layers", "rms_norm_eps", "rope_theta"),
		small("hy_v3", map[string]any{"mlp_layer_types": []any{"dense", "dense", "sparse"}, "attention_bias": true, "mlp_bias": true, "router_scaling_factor": 1.5}),
		small("afmoe", map[string]any{"mup_enabled": true, "route_scale": 2.5, "num_dense_layers": 2, "sliding_window": 7,
			"layer_types": []any{"full_attention", "sliding_attention", "sliding_attention"}}),
		small("afmoe", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		without(small("ernie4_5_moe", map[string]any{"moe_num_experts": 8, "moe_k": 2, "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_layer_end_index": 1,
			"use_bias": true, "moe_num_shared_experts": 0, "output_router_logits": true, "router_aux_loss_coef": 0.5}), "num_experts_per_tok"),
	} {
		m := base()
		maps.Copy(m, changes)
		maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
		c, err := FromInline(m, "x")
		if err != nil {
			t.Errorf("%v: %v", changes, err)
			continue
		}
		back, err := ParseConfig(c.JSON("bfloat16"), "config.json")
		if err != nil {
			t.Errorf("%s: %v", c.JSON("bfloat16"), err)
			continue
		}
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("got %+v, want %+v", back, c)
		}
	}
}

// TestAlphaOfRope: in Hunyuan, alpha of rope type dynamic raises the RoPE base for documents of
// every length. Other families refuse or ignore it. Source: transformers,
// HunYuanDenseV1RotaryEmbedding.compute_ntk_alpha_rope_parameters.
func TestAlphaOfRope(t *testing.T) {
	rope := map[string]any{"rope_scaling": map[string]any{"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "head_dim": 16, "max_position_embeddings": 4}
	c, err := parse(t, changed("hunyuan_v1_dense", rope))
	if err != nil {
		t.Fatal(err)
	}
	if c.RopeShift(9) != 0 || c.RopeRows(9) != 9 {
		t.Errorf("a document of 9 tokens has rows from %d to %d", c.RopeShift(9), c.RopeRows(9))
	}
	cos, _ := c.RopeTables(2)
	base := 1e4 * math.Pow(1000, 16.0/14)
	for i := range 8 {
		if want := math.Cos(math.Pow(base, -float64(i)/8)); math.Abs(float64(cos[8+i])-want) > 1e-6 {
			t.Errorf("cosine %d at position 1 is %g, want %g", i, cos[8+i], want)
		}
	}
	if c, err = parse(t, rope); err != nil || c.Rope.Type != "dynamic" {
		t.Errorf("Llama's rotary embedding is %+v, error %v", c.Rope, err)
	}
}

// TestKimiLinearLayers: the lists of linear_attn_config, which count from 1, say which blocks have KDA, unless layer_types
// does. Names that Transformers knows besides are read too.
func TestKimiLinearLayers(t *testing.T) {
	config := map[string]any{"num_heads": 6, "head_dim": 24, "short_conv_kernel_size": 3, "kda_layers": []any{3, 1}, "full_attn_layers": []any{2}}
	for _, tc := range []struct {
		changes map[string]any
		want    []bool
	}{
		{map[string]any{"linear_attn_config": config}, []bool{true, false, true}},
		{map[string]any{"linear_attn_config": config, "layer_types": []any{linearAttention, linearAttention, fullAttention}}, []bool{true, true, false}},
		{map[string]any{"linear_num_heads": 6, "linear_head_dim": 24, "linear_conv_kernel_dim": 3, "num_hidden_layers": 6}, []bool{true, true, true, true, false, true}},
	} {
		tc.changes["num_experts_per_tok"], tc.changes["norm_topk_prob"], tc.changes["num_expert_group"] = 5, false, 1
		c, err := parse(t, small("kimi_linear", tc.changes))
		if err != nil {
			t.Errorf("%v: %v", tc.changes, err)
			continue
		}
		if !slices.Equal(c.Recurrent, tc.want) || *c.KDA != (KDA{Heads: 6, Dim: 24, Taps: 3}) || c.NumExpertsPerTok != 5 || c.NormTopKProb || c.Turns(1) {
			t.Errorf("%v: blocks %v have %+v; %d experts", tc.changes, c.Recurrent, *c.KDA, c.NumExpertsPerTok)
		}
	}
}

// TestOtherNamesOfKeys: classes that know a key by two names read both, as Transformers does, and keys of which a class
// takes no notice are refused.
func TestOtherNamesOfKeys(t *testing.T) {
	types := []any{"linear_attention", "full_attention"}
	nemotron := func(more map[string]any) map[string]any {
		m := map[string]any{"layer_types": types, "mamba_n_groups": 4, "mamba_d_conv": 3, "mamba_conv_bias": false, "mamba_dt_min": 0.01, "hidden_act": "relu2",
			"mamba_num_heads": 8, "mamba_head_dim": 8}
		maps.Copy(m, more)
		return small("nemotron_h", m)
	}
	c, err := parse(t, nemotron(nil))
	if err != nil || c.NumLayers != 2 || !c.IsRecurrent(0) || c.IsRecurrent(1) || c.Mamba2.Groups != 4 || c.Mamba2.Taps != 3 || c.Mamba2.ConvBias || c.Mamba2.DtMin != 0.01 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, key := range []string{"attention_bias", "tie_word_embeddings"} {
		if _, err := parse(t, nemotron(map[string]any{key: true})); err == nil || !strings.Contains(err.Error(), key+": true is not supported") {
			t.Errorf("%s: error %v", key, err)
		}
	}
	c, err = parse(t, small("granitemoehybrid", map[string]any{"num_hidden_layers": 2, "layers_block_type": []any{"mamba", "attention"}, "num_local_experts": 0,
		"shared_intermediate_size": 20, "mamba_n_heads": 8}))
	if err != nil || !c.IsRecurrent(0) || c.IsRecurrent(1) {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = parse(t, small("apertus", map[string]any{"rope_theta": 500000, "rope_scaling": nil, "hidden_act": "xielu"}))
	if err != nil || c.Rope.Theta != 12e6 || c.Rope.Type != "llama3" || c.Rope.Factor != 8 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestExpertsAheadAsStored: the experts of multi-token prediction may be stored one by one where those of the other
// blocks share a tensor.
func TestExpertsAheadAsStored(t *testing.T) {
	c := &Config{family: &family{ahead: aheadModule, joined: map[Role]placed{RoleExpertDown: {tensor: "mlp.experts.down_proj", experts: true}}},
		NumLayers: 1, NumExperts: 2, Ahead: 1, joined: true}
	for _, together := range []bool{false, true} {
		c.aheadJoined = together
		for block := range 2 {
			got := blockNames{c, block}.place(RoleExpertDown, 1, []Stored{{Name: "x", Rows: 3}})[0].Place.Tensor != ""
			if want := block == 0 || together; got != want {
				t.Errorf("together %t, block %d: joined %t", together, block, got)
			}
		}
	}
}
