package model

import (
	"maps"
	"reflect"
	"testing"
)

func TestJSONOfInline(t *testing.T) {
	for _, name := range PresetNames() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		text := c.JSON("bfloat16")
		back, err := ParseConfig(text, name)
		if err != nil {
			t.Fatal(err)
		}
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("%s: got %+v, want %+v", name, back, c)
		}
	}
}

// TestJSONOfOptions: what an inline config says comes back from the config.json
// that is made of it.
func TestJSONOfOptions(t *testing.T) {
	yarn := map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2,
		"mscale": 0.7, "mscale_all_dim": 0.3, "truncate": false, "attention_factor": 1.5}
	for _, changes := range []map[string]any{
		{"attention_bias": true, "mlp_bias": true, "rope_theta": 123.5, "rope_scaling": yarn},
		{"rope_scaling": map[string]any{"type": "linear", "factor": 2.5}},
		{"rope_parameters": map[string]any{"rope_type": "dynamic", "factor": 2.5, "rope_theta": 77}},
		{"hidden_act": "relu"}, {"hidden_act": "gelu"},
		changed("mistral", map[string]any{"sliding_window": 7}),
		changed("mistral", map[string]any{"sliding_window": 7, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}}),
		changed("cohere2", map[string]any{"vocab_size": 256000, "head_dim": 8}),
		changed("qwen2", map[string]any{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1}),
		changed("qwen3", map[string]any{"use_sliding_window": true, "sliding_window": 9, "attention_bias": true,
			"layer_types": []any{"sliding_attention", "full_attention", "sliding_attention"}}),
		phiConfig(map[string]any{"partial_rotary_factor": 0.75, "original_max_position_embeddings": 32, "sliding_window": 99,
			"rope_scaling": map[string]any{"type": "longrope", "short_factor": eights[:6], "long_factor": eights[:6], "factor": 3, "attention_factor": 1.25}}),
		phiConfig(map[string]any{"original_max_position_embeddings": 32, "rope_scaling": map[string]any{"type": "su", "short_factor": eights, "long_factor": eights}}),
		changed("gemma3_text", map[string]any{"num_hidden_layers": 7, "rope_local_base_freq": 5, "query_pre_attn_scalar": 40.5, "attention_bias": true,
			"attn_logit_softcapping": 5, "final_logit_softcapping": 6.5, "hidden_activation": "silu", "rope_scaling": map[string]any{"type": "linear", "factor": 8}}),
		changed("ministral3", map[string]any{"pad_token_id": 0, "sliding_window": 5, "rope_parameters": map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.5}}),
		changed("gemma3_text", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("gemma3_text", map[string]any{"sliding_window": 3, "layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("smollm3", map[string]any{"no_rope_layers": []any{0, 1, 0}, "use_sliding_window": true, "sliding_window": 7, "mlp_bias": true, "attention_bias": true}),
		changed("smollm3", map[string]any{"no_rope_layer_interval": 9, "tie_word_embeddings": false}),
		changed("granite", map[string]any{"embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 49.0123456, "mlp_bias": true}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "shared_intermediate_size": 99, "position_embedding_type": "rope", "layer_types": []any{"attention", "attention", "attention"}}),
		changed("granitemoehybrid", map[string]any{"num_local_experts": 0, "intermediate_size": 99, "shared_intermediate_size": 99, "layer_types": []any{"attention", "attention", "attention"}}),
		changed("glm4", map[string]any{"attention_bias": false, "partial_rotary_factor": 1}),
		changed("glm4", nil),
		changed("glm", map[string]any{"attention_bias": false}),
		changed("ernie4_5", map[string]any{"use_bias": true, "tie_word_embeddings": false}),
		changed("seed_oss", map[string]any{"attention_dropout": 0, "residual_dropout": 0, "attention_out_bias": true, "mlp_bias": true}),
		changed("exaone4", map[string]any{"sliding_window": 8, "sliding_window_pattern": 2}),
		changed("exaone4", map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}),
		changed("exaone4", map[string]any{"layer_types": []any{"sliding_attention", "sliding_attention", "sliding_attention"}}),
		changed("starcoder2", map[string]any{"vocab_size": 60000, "norm_epsilon": 0.25, "use_bias": false, "sliding_window": 5}),
		changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "rotary_pct": 0.5, "rotary_emb_base": 500, "attention_bias": false}),
		changed("gpt_neox", map[string]any{"num_key_value_heads": nil, "use_parallel_residual": false, "rotary_pct": 1.0, "hidden_act": "gelu_fast"}),
		{"architectures": nil, "model_type": "gpt2", "hidden_size": nil, "num_hidden_layers": nil, "num_attention_heads": nil, "num_key_value_heads": nil,
			"intermediate_size": nil, "vocab_size": 50257, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 9, "n_inner": 20, "layer_norm_epsilon": 0.5},
		changed("cohere2", map[string]any{"vocab_size": 256000, "layer_norm_eps": 0.5, "logit_scale": 0.5, "sliding_window": 3, "sliding_window_pattern": 2, "attention_bias": true}),
		changed("olmo2", map[string]any{"attention_bias": true}),
		changed("olmo3", map[string]any{"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_theta": 1e4}, "sliding_attention": map[string]any{"rope_theta": 1e4}}}),
		changed("olmo3", map[string]any{"sliding_window": 3, "layer_types": []any{"full_attention", "sliding_attention", "full_attention"}, "rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "linear", "factor": 8}, "sliding_attention": map[string]any{"rope_theta": 5e3}}}),
		changed("qwen3_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2, 0}, "norm_topk_prob": true,
			"decoder_sparse_step": 2, "moe_intermediate_size": 5, "output_router_logits": true, "router_aux_loss_coef": 0.5, "use_sliding_window": true}),
		changed("gpt_oss", map[string]any{"num_local_experts": 6, "num_experts_per_tok": 3, "swiglu_limit": 3.5, "swiglu_alpha": 1.5, "output_router_logits": true,
			"router_aux_loss_coef": 0.25, "sliding_window": 9}),
		changed("mixtral", map[string]any{"num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 7, "output_router_logits": true, "router_aux_loss_coef": 0.5}),
		changed("qwen2_moe", map[string]any{"num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": []any{2}, "norm_topk_prob": true, "moe_intermediate_size": 5,
			"shared_expert_intermediate_size": 9, "qkv_bias": false, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 2}),
		changed("glm4_moe", map[string]any{"n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "first_k_dense_replace": 2, "moe_intermediate_size": 5,
			"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.25, "norm_topk_prob": false, "use_qk_norm": true, "attention_bias": true, "partial_rotary_factor": 0.75}),
	} {
		m := base()
		maps.Copy(m, changes)
		maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
		c, err := FromInline(m, "x")
		if err != nil {
			t.Errorf("%v: %v", changes, err)
			continue
		}
		text := c.JSON("bfloat16")
		back, err := ParseConfig(text, "config.json")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		back.source = source{}
		if !reflect.DeepEqual(c, back) {
			t.Errorf("got %+v, want %+v", back, c)
		}
	}
}
