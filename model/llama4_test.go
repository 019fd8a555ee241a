package model

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestLlama4: the config.json spellings of Llama 4 and its class's defaults give the right blocks,
// and settings that mt lacks are refused.
func TestLlama4(t *testing.T) {
	text := func(changes map[string]any) map[string]any { return changed("llama4_text", changes) }
	plain := func(c *Config) bool {
		return reflect.DeepEqual(c.NoRope, []bool{false, false, false, true, false}) && c.ChunkSize == 8192 && c.AttentionChunk(2) == 8192 && c.AttentionChunk(3) == 0 &&
			c.QKNormPlain && c.NormsQK(2) && !c.NormsQK(3) && *c.QueryScaling == QueryScaling{Scale: 0.1, Every: 8192, Ahead: 1} && c.ScalesQueries(3) && !c.ScalesQueries(2) &&
			c.NumExperts == 16 && c.NumExpertsPerTok == 1 && c.HasExperts(0) && c.WeightedInputs && c.SigmoidScores && c.RopeInterleaved && c.HeadDim == 128 &&
			c.IntermediateSize == 16384 && c.MoEIntermediateSize == 176 && c.SharedSize == 176 && !c.QKVBias && c.Rope.Theta == 5e5
	}
	for name, tc := range map[string]struct {
		changes map[string]any
		check   func(c *Config) bool
	}{
		"defaults":     {text(map[string]any{"num_hidden_layers": 5, "num_key_value_heads": 2}), plain},
		"as published": {text(map[string]any{"num_hidden_layers": 5, "no_rope_layers": []any{}, "attn_temperature_tuning": 4.0, "moe_layers": nil, "output_router_logits": false}), plain},
		"layers listed": {text(map[string]any{"no_rope_layers": []any{0, 1, 1, 1}, "moe_layers": []any{2}, "attention_chunk_size": 64, "use_qk_norm": false, "attn_scale": 0.5}), func(c *Config) bool {
			return !c.Turns(0) && c.AttentionChunk(0) == 0 && c.AttentionChunk(1) == 64 && !c.QKNorm && !c.HasExperts(1) && c.HasExperts(2) && c.QueryScaling.Scale == 0.5
		}},
		"layer types": {text(map[string]any{"layer_types": []any{"chunked_attention", "full_attention", "full_attention"}, "interleave_moe_layer_step": 2}), func(c *Config) bool {
			return c.AttentionChunk(0) > 0 && c.AttentionChunk(1) == 0 && c.Turns(2) && c.NoRope == nil && c.QueryScaling == nil && !c.HasExperts(0) && c.HasExperts(1)
		}},
		"nothing cut":  {text(map[string]any{"layer_types": []any{"full_attention", "full_attention", "full_attention"}}), func(c *Config) bool { return c.ChunkSize == 0 }},
		"no experts":   {text(map[string]any{"moe_layers": []any{}}), func(c *Config) bool { return c.NumExperts == 0 && c.SharedSize == 0 && c.IntermediateSize == 16384 }},
		"not tempered": {text(map[string]any{"attn_temperature_tuning": false, "num_hidden_layers": 4}), func(c *Config) bool { return c.QueryScaling == nil && c.NoRope != nil }},
		"with a vision": {changed("llama4", map[string]any{"text_config": map[string]any{"model_type": "llama4_text", "num_hidden_layers": 2, "hidden_size": 64}}), func(c *Config) bool {
			l := c.Layers()
			return c.NumLayers == 2 && l[1].Params[0].Stored[0].Name == "language_model.model.layers.0.input_layernorm.weight" &&
				l[2].Params[2].Stored[0].Tensor() == "language_model.model.layers.0.feed_forward.experts.gate_up_proj" && l[len(l)-1].Params[1].Stored[0].Name == "language_model.lm_head.weight"
		}},
	} {
		if c, err := parse(t, tc.changes); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !tc.check(c) {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	yarn := map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
	for want, changes := range map[string]map[string]any{
		`layer_types: layer 0 is "sliding_attention"; known: full_attention, chunked_attention`: {"layer_types": []any{"sliding_attention", "full_attention", "full_attention"}},
		`layer_types: layer 0 is "chunked_attention", and there is no attention_chunk_size`:     {"attention_chunk_size": json.RawMessage("null"), "layer_types": []any{"chunked_attention", "full_attention", "full_attention"}},
		"output_router_logits: true: Llama4ForCausalLM has no loss of its router":               {"output_router_logits": true},
		"router_jitter_noise: 0.1: noise in the router's input is not supported":                {"router_jitter_noise": 0.1},
		"no_rope_layers: 2 of them for 3 layers":                                                {"no_rope_layers": []any{1, 1}},
		"use_qk_norm: true, and the rotary embedding multiplies by 1.1386":                      {"rope_scaling": yarn},
		"num_experts_per_tok: 3 of 2 experts cannot be chosen":                                  {"num_local_experts": 2, "num_experts_per_tok": 3},
		"moe_layers: 3 is not a number from 0 to 2":                                             {"moe_layers": []any{3}},
	} {
		if _, err := parse(t, text(changes)); err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: "+want) {
			t.Errorf("%v:\n got %v\nwant dir/config.json: %s", changes, err, want)
		}
	}
}

// TestLlama4Inline: the config.json written for an inline Llama 4 reads back as the same model.
func TestLlama4Inline(t *testing.T) {
	c := testkit.Must(FromInline(map[string]any{"model_type": "llama4_text", "num_hidden_layers": 5, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
		"intermediate_size": 12, "intermediate_size_mlp": 20, "vocab_size": 40, "attention_chunk_size": 7, "floor_scale": 5, "attn_scale": 0.3, "interleave_moe_layer_step": 2}, "test"))(t)
	back := testkit.Must(ParseConfig(c.JSON("float32"), "test"))(t)
	if !reflect.DeepEqual(c.Layers(), back.Layers()) || !reflect.DeepEqual(c.QueryScaling, back.QueryScaling) || !reflect.DeepEqual(c.ChunkedAttention, back.ChunkedAttention) ||
		c.ChunkSize != back.ChunkSize || !reflect.DeepEqual(c.NoRope, back.NoRope) || c.ExpertBlocks() != 2 || back.ExpertBlocks() != 2 {
		t.Errorf("written and read again:\n%+v\n%+v", c, back)
	}
	if _, err := FromInline(map[string]any{"model_type": "llama4"}, "test"); err == nil || !strings.Contains(err.Error(), "take model_type llama4_text") {
		t.Errorf("a model with parts that are not trained: %v", err)
	}
}

// TestQueryScaling: with Every 8 and Ahead 1 the factor rises at the 8th, 16th, … query, which are
// at positions 7, 15, ….
func TestQueryScaling(t *testing.T) {
	for p, steps := range map[int]float64{0: 0, 6: 0, 7: 1, 14: 1, 15: 2} {
		if got, want := (QueryScaling{Scale: 0.5, Every: 8, Ahead: 1}).At(p), 1+0.5*math.Log(1+steps); math.Abs(got-want) > 1e-15 {
			t.Errorf("position %d: %v, want %v", p, got, want)
		}
	}
}
