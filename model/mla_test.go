package model

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// deepSeekV3 returns the preset deepseek-v3 with some of its keys replaced.
func deepSeekV3(t *testing.T, keys map[string]any) *Config {
	t.Helper()
	m := maps.Clone(presets["deepseek-v3"])
	maps.Copy(m, keys)
	c := testkit.Must(FromInline(m, "x"))(t)
	return c
}

// TestWholeQueries: without q_lora_rank there is no latent vector for queries, so one projection
// makes them from the hidden state.
func TestWholeQueries(t *testing.T) {
	c := deepSeekV3(t, map[string]any{"q_lora_rank": nil})
	var roles []string
	for _, p := range (blockNames{c, 0}).attention() {
		roles = append(roles, string(p.Role)+" "+p.Stored[0].Name)
	}
	in := "model.layers.0.self_attn."
	want := []string{"attn_norm model.layers.0.input_layernorm.weight", "q_b " + in + "q_proj.weight", "kv_a " + in + "kv_a_proj_with_mqa.weight",
		"kv_a_norm " + in + "kv_a_layernorm.weight", "kv_b " + in + "kv_b_proj.weight", "o " + in + "o_proj.weight"}
	if !slices.Equal(roles, want) {
		t.Errorf("got %q, want %q", roles, want)
	}
	if got, want := c.QKVProducts(0), int64(7168*128*192+7168*(512+64)+512*128*256); got != want {
		t.Errorf("q, k and v take %d multiply-adds, want %d", got, want)
	}
}

// TestHeadsOfLatentAttention: MLA rotates only the last RopeDim elements of a head. yarn's
// temperature squared multiplies the scores, as in transformers' modeling_deepseek_v3 with factor
// 40 and mscale_all_dim 1.
func TestHeadsOfLatentAttention(t *testing.T) {
	c := deepSeekV3(t, nil)
	m := 1 + 0.1*math.Log(40)
	if got, want := c.ScoreScale(), m*m/math.Sqrt(192); math.Abs(got-want) > 1e-12 {
		t.Errorf("scores are multiplied by %g, want %g", got, want)
	}
	if c.HeadDim != 192 || c.ValueDim() != 128 || c.RopeAt() != 128 || c.Rotary(0) != 64 || c.OutputCols(0) != 128*128 {
		t.Errorf("heads of %d elements and %d of a value; %d turn, from %d on; %d columns of output", c.HeadDim, c.ValueDim(), c.Rotary(0), c.RopeAt(), c.OutputCols(0))
	}
	plain := deepSeekV3(t, map[string]any{"rope_scaling": nil})
	if got, want := plain.ScoreScale(), 1/math.Sqrt(192); math.Abs(got-want) > 1e-12 {
		t.Errorf("scores are multiplied by %g, want %g", got, want)
	}
}

// TestValuesWiderThanKeys: packed heads are as wide as the wider of keys and values. The scale of
// scores stays 1/√(width of keys).
func TestValuesWiderThanKeys(t *testing.T) {
	for _, tc := range []struct{ nope, rope, value, packed int }{{128, 64, 193, 193}, {128, 64, 256, 256}, {6, 2, 7, 8}} {
		c := deepSeekV3(t, map[string]any{"qk_nope_head_dim": tc.nope, "qk_rope_head_dim": tc.rope, "v_head_dim": tc.value, "rope_scaling": nil})
		if got := c.PackedHeadDim(); got != tc.packed || c.HeadDim != tc.nope+tc.rope || c.RopeAt() != tc.nope || c.OutputCols(0) != 128*tc.value {
			t.Errorf("%+v: packed heads of %d, keys of %d that turn from %d on, %d columns of output", tc, got, c.HeadDim, c.RopeAt(), c.OutputCols(0))
		}
		if got, want := c.ScoreScale(), 1/math.Sqrt(float64(tc.nope+tc.rope)); got != want {
			t.Errorf("%+v: scores are multiplied by %g, want %g", tc, got, want)
		}
		again, err := ParseConfig(c.JSON("float32"), "config.json")
		if err != nil || *again.MLA != *c.MLA || again.Params() != c.Params() {
			t.Errorf("%+v: written and read it is %+v, %v", tc, again, err)
		}
	}
}

// TestBiasesOfDeepSeek: the same products have biases as in the classes of transformers.
// attention_bias is for the projections to latent vectors and the output projection. mlp_bias,
// which only V2 reads, is for dense MLPs and the shared expert.
func TestBiasesOfDeepSeek(t *testing.T) {
	attention, dense := []string{"self_attn.kv_a_proj_with_mqa 576", "self_attn.o_proj 2048"}, []string{"mlp.gate_proj 10944", "mlp.up_proj 10944", "mlp.down_proj 2048"}
	shared := []string{"mlp.shared_experts.gate_proj 2816", "mlp.shared_experts.up_proj 2816", "mlp.shared_experts.down_proj 2048"}
	for name, tc := range map[string]struct {
		keys       map[string]any
		block, moe []string // of the first block, and of the second, which has experts
	}{
		"none":         {nil, nil, nil},
		"of attention": {map[string]any{"attention_bias": true}, attention, attention},
		"of attention, narrow queries": {map[string]any{"attention_bias": true, "q_lora_rank": 24},
			slices.Concat([]string{"self_attn.q_a_proj 24"}, attention), slices.Concat([]string{"self_attn.q_a_proj 24"}, attention)},
		"of MLPs":           {map[string]any{"mlp_bias": true}, dense, shared},
		"of all":            {map[string]any{"mlp_bias": true, "attention_bias": true}, slices.Concat(attention, dense), slices.Concat(attention, shared)},
		"of all, but dense": {map[string]any{"mlp_bias": true, "attention_bias": true, "first_k_dense_replace": 27}, slices.Concat(attention, dense), slices.Concat(attention, dense)},
	} {
		c, err := FromInline(maps.Clone(addTo(map[string]any{"preset": "deepseek-v2-lite"}, tc.keys)), "x")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := ParseConfig(c.JSON("float32"), "config.json")
		if err != nil {
			t.Fatalf("%s: written: %v", name, err)
		}
		for _, c := range []*Config{c, again} {
			for block, want := range [][]string{tc.block, tc.moe} {
				if got := biases(c, block); !slices.Equal(got, want) {
					t.Errorf("%s, block %d: biases %q, want %q", name, block, got, want)
				}
			}
		}
	}
	for where, keys := range map[string]map[string]any{"mlp_bias: true is not supported with n_shared_experts 0": {"preset": "deepseek-v2-lite", "mlp_bias": true, "n_shared_experts": 0}} {
		if _, err := FromInline(keys, "x"); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("got %v, want %s", err, where)
		}
	}
	_, err := parse(t, addTo(map[string]any{"architectures": []any{"DeepseekV3ForCausalLM"}, "model_type": "deepseek_v3"}, map[string]any{"mlp_bias": true}))
	if err == nil || !strings.Contains(err.Error(), "mlp_bias: true is not supported in DeepseekV3ForCausalLM") {
		t.Errorf("mlp_bias of V3: %v", err)
	}
}

func addTo(m, keys map[string]any) map[string]any {
	maps.Copy(m, keys)
	return m
}

// biases lists the modules of a block that have a bias, each with the bias's number of elements.
func biases(c *Config, block int) (out []string) {
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				module, bias := strings.CutSuffix(s.Name, ".bias")
				if module, ok := strings.CutPrefix(module, fmt.Sprintf("model.layers.%d.", block)); ok && bias {
					out = append(out, fmt.Sprint(module, " ", s.Rows))
				}
			}
		}
	}
	return out
}

// TestLatentNormsStartAtOne: in MLA, norms start at 1, biases at 0 and matrices at neither.
func TestLatentNormsStartAtOne(t *testing.T) {
	c := deepSeekV3(t, map[string]any{"attention_bias": true})
	for _, p := range (blockNames{c, 0}).mla() {
		row := make([]float32, p.Cols)
		InitRow(c, p, 0, 42, row)
		if zero := row[0] == 0; zero != (p.Role == RoleQABias || p.Role == RoleKVABias) {
			t.Errorf("%s starts with %g", p.Role, row[0])
		}
		if one := row[0] == 1; one != (p.Role == RoleQANorm || p.Role == RoleKVANorm) {
			t.Errorf("%s starts with %g", p.Role, row[0])
		}
	}
}

// TestPublishedDeepSeekV2Lite: the keys of the published config.json that matter give the sizes of
// DeepSeek-V2-Lite.
func TestPublishedDeepSeekV2Lite(t *testing.T) {
	c := testkit.Must(ParseConfig([]byte(`{"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "attention_bias": false,
		"attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
		"hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
		"max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
		"n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
		"num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
		"rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
		"original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 1.0,
		"scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
		"torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400}`), "config.json"))(t)
	want := preset(t, "deepseek-v2-lite")
	if c.Params() != want.Params() || c.ScoreScale() != want.ScoreScale() || c.MLA.QRank != 0 || !c.RopeInterleaved || c.SigmoidScores ||
		c.ChoiceBias || c.NormTopKProb || c.SharedSize != 2816 || c.ExpertGroups != 0 || c.HasExperts(0) || !c.HasExperts(1) {
		t.Errorf("got %+v", c)
	}
}

// TestDeepSeekV2Groups: with topk_method group_limited_greedy a group's score is that of its best
// expert, and topk_group groups stay open to the choice.
func TestDeepSeekV2Groups(t *testing.T) {
	keys := map[string]any{"preset": "deepseek-v2-lite", "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0}
	c, err := FromInline(keys, "x")
	if err != nil || c.ExpertGroups != 8 || c.OpenGroups != 3 || c.GroupBest != 1 || c.RoutedScale != 16 {
		t.Fatalf("got %+v, %v", c, err)
	}
	again, err := ParseConfig(c.JSON("bfloat16"), "config.json")
	if err != nil || again.ExpertGroups != 8 || again.OpenGroups != 3 || again.ScoreScale() != c.ScoreScale() || again.Params() != c.Params() {
		t.Errorf("what is written reads as %+v, %v", again, err)
	}
	keys["topk_method"] = "greedy"
	if c, err = FromInline(keys, "x"); err != nil || c.ExpertGroups != 0 {
		t.Errorf("greedy: %d groups, %v", c.ExpertGroups, err)
	}
	for key, tc := range map[string]struct {
		value any
		want  string
	}{
		"norm_topk_prob":       {true, "norm_topk_prob: true is not supported in DeepseekV2ForCausalLM"},
		"topk_method":          {"noaux_tc", `topk_method: "noaux_tc" is not supported; known: greedy, group_limited_greedy`},
		"scoring_func":         {"sigmoid", `scoring_func: "sigmoid" is not supported; known: softmax`},
		"output_router_logits": {true, "output_router_logits: true: DeepseekV2ForCausalLM has no loss of its router"},
		"moe_layer_freq":       {2, "moe_layer_freq: 2 is not supported"},
	} {
		m := maps.Clone(keys)
		m[key] = tc.value
		if _, err := FromInline(m, "x"); err == nil || !strings.HasPrefix(err.Error(), "x: "+tc.want) {
			t.Errorf("%s: got %v, want %s", key, err, tc.want)
		}
	}
}
