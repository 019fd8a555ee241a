package model

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func phimoe(changes map[string]any) map[string]any { return changed("phimoe", changes) }

// longScaled returns the rope mapping that Phi-3.5-MoE publishes, with factors for heads of 16
// elements and with changes.
func longScaled(changes map[string]any) map[string]any {
	m := map[string]any{"type": "longrope", "short_factor": eights, "long_factor": eights, "short_mscale": 1.25, "long_mscale": 1.5, "original_max_position_embeddings": 4}
	for k, v := range changes {
		m[k] = v
	}
	return phimoe(map[string]any{"rope_scaling": m})
}

// TestPhimoe: the config.json spellings of Phi-3.5-MoE and its class's defaults are read, and
// settings that mt lacks are refused.
func TestPhimoe(t *testing.T) {
	for name, tc := range map[string]struct {
		changes map[string]any
		check   func(c *Config) bool
	}{
		"defaults": {phimoe(nil), func(c *Config) bool {
			return c.LayerNorm && c.NormBias && !c.QKVBias && !c.HeadBias && c.NumExperts == 16 && c.NumExpertsPerTok == 2 && c.SparseMixer == 0.01 && c.HasExperts(0) &&
				!c.NormTopKProb && c.MoEIntermediateSize == 176 && c.MaxPositions == 131072 && c.SlidingWindow == 0 && c.Rope.Theta == 1e6 && c.RMSNormEps == 1e-5
		}},
		"as published": {phimoe(map[string]any{"attention_bias": true, "lm_head_bias": true, "sliding_window": 131072, "input_jitter_noise": 0, "router_jitter_noise": 0.02}), func(c *Config) bool {
			l := c.Layers()
			head := l[len(l)-1].Params
			return c.QKVBias && c.OBias && c.HeadBias && c.SlidingWindow == 131072 && c.SparseMixer == 0.02 && head[2].Stored[0].Name == "lm_head.bias" && head[2].Rows == 320 && head[2].Dims == 1 &&
				l[2].Params[2].Stored[0].Name == "model.layers.0.block_sparse_moe.gate.weight" && l[2].Params[3].Stored[1].Name == "model.layers.0.block_sparse_moe.experts.0.w3.weight"
		}},
		"rope": {longScaled(nil), func(c *Config) bool {
			cos, _ := c.RopeTables(6) // four rows of short documents, then six of long ones
			return c.Rope.ShortMScale == 1.25 && c.Rope.LongMScale == 1.5 && cos[0] == 1.25 && cos[4*8] == 1.5 && math.Abs(float64(cos[5*8])-1.5*math.Cos(1)) < 1e-6
		}},
	} {
		if c, err := parse(t, tc.changes); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !tc.check(c) {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	for want, changes := range map[string]map[string]any{
		"num_experts_per_tok: 1 is not supported: SparseMixer chooses 2":          phimoe(map[string]any{"num_experts_per_tok": 1}),
		"router_jitter_noise: 0 is not supported: all weights would be 1":         phimoe(map[string]any{"router_jitter_noise": 0}),
		"input_jitter_noise: 0.1: noise in the input of experts is not supported": phimoe(map[string]any{"input_jitter_noise": 0.1}),
		"rope_scaling: short_mscale: missing; rope type longrope needs it":        longScaled(map[string]any{"short_mscale": nil}),
		"rope_scaling: long_mscale: missing; rope type longrope needs it":         longScaled(map[string]any{"long_mscale": nil}),
		"num_local_experts: 1 is out of range":                                    phimoe(map[string]any{"num_local_experts": 1}),
		"lm_head_bias: true is not supported in LlamaForCausalLM":                 {"lm_head_bias": true},
	} {
		if _, err := parse(t, changes); err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: "+want) {
			t.Errorf("%v:\n got %v\nwant dir/config.json: %s", changes, err, want)
		}
	}
}

// TestPhimoeInline: the config.json written for an inline Phi-3.5-MoE reads back as the same model.
func TestPhimoeInline(t *testing.T) {
	c := testkit.Must(FromInline(map[string]any{"model_type": "phimoe", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 40,
		"num_key_value_heads": 1, "lm_head_bias": true, "attention_bias": true, "router_jitter_noise": 0.25, "num_local_experts": 3, "max_position_embeddings": 16,
		"rope_scaling": map[string]any{"rope_type": "longrope", "short_factor": eights, "long_factor": eights, "short_mscale": 1.25, "long_mscale": 1.5, "original_max_position_embeddings": 4}}, "test"))(t)
	back := testkit.Must(ParseConfig(c.JSON("float32"), "test"))(t)
	if !reflect.DeepEqual(c.Layers(), back.Layers()) || !reflect.DeepEqual(c.Rope, back.Rope) || c.SparseMixer != back.SparseMixer {
		t.Errorf("written and read again:\n%+v\n%+v", c, back)
	}
	bias := c.Layers()[5].Params[2]
	row := []float32{1}
	if InitRow(c, bias, 3, 7, row); row[0] != 0 {
		t.Errorf("a bias of logits begins at %v", row[0])
	}
}
