package model

import (
	"maps"
	"slices"
)

var (
	mistral4Keys     = slices.Concat(mlaKeys, routedKeys, []string{"rope_interleave", "pretraining_tp", queryScalingKey})
	mistral4Defaults = map[string]any{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
		"num_attention_heads": 32, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-6, "q_lora_rank": 1024, "kv_lora_rank": 256,
		"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4,
		"moe_intermediate_size": 2048, "first_k_dense_replace": 0, "routed_scaling_factor": 1.0, "rope_interleave": true,
		"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11}
	// mistral4Places are the tensors with all experts of a block.
	mistral4Places = map[Role]placed{
		RoleExpertGateUp: {tensor: "mlp.experts.gate_up_proj", experts: true},
		RoleExpertDown:   {tensor: "mlp.experts.down_proj", experts: true},
	}
)

// Mistral 4 has the attention of DeepSeek-V3 (MLA), with Ministral 3's factor on queries, and experts, whose scores are
// a softmax. Source: transformers.Mistral4Config.
func init() {
	register(family{
		arch: "Mistral4ForCausalLM", modelType: "mistral4",
		places:   mistral4Places,
		defaults: mistral4Defaults,
		keys:     mistral4Keys,
		prepare:  mistral4Prepare,
		options:  (*Config).mistral4,
		write: func(c *Config, m map[string]any) {
			m["rope_interleave"] = c.RopeInterleaved
			c.mlaJSON(m)
			c.routedJSON(m)
			c.queryScalingJSON(m)
		},
	})
}

// mistral4Prepare sets the rotary embedding of the class Mistral4 if the config has none. hidden_size need not be a
// multiple of the heads, whose sizes are MLA's.
func mistral4Prepare(f *fields) {
	f.setDefaults(map[string]any{"head_dim": f.vals["qk_rope_head_dim"]})
	defaultRope(f, map[string]any{"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0, "original_max_position_embeddings": 8192,
		"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, queryScalingKey: 0.1})
}

func (c *Config) mistral4(f *fields) {
	c.RopeInterleaved = f.bool("rope_interleave", false)
	c.mlaFields(f)
	c.routedExperts(f, "softmax", "greedy")
	c.NormTopKProb = f.bool("norm_topk_prob", true)
	c.expertGroups(f, 2)
	c.turningShare(f)
	c.queryScaling(f)
	if c.QueryScaling != nil && c.MLA.NopeDim%2 != 0 {
		f.fail("qk_nope_head_dim", "%d must be even: the factor on queries is applied to pairs of elements", c.MLA.NopeDim)
	}
	if f.err != nil {
		return
	}
	for _, key := range ropeMappings {
		o := f.object(key)
		if o == nil {
			continue
		}
		if t := o.str("rope_type", o.str("type", "default")); t != "yarn" {
			o.fail("rope_type", "%q is not supported in %s, only yarn", t, c.Arch)
		}
		o.require("yarn", queryScalingKey)
		if f.err = o.err; f.err != nil {
			return
		}
	}
}

// turningShare accepts a partial_rotary_factor that is the rotated share of a whole head. With MLA these are exactly
// the elements that can be rotated, so the key is then removed from f.
func (c *Config) turningShare(f *fields) {
	const key = "partial_rotary_factor"
	whole := func(o *fields) bool {
		return o.has(key) && int(float64(c.HeadDim)*o.float(key, 1, 0, 1)) == c.MLA.RopeDim
	}
	if whole(f) {
		f.vals = maps.Clone(f.vals)
		delete(f.vals, key)
	}
	for _, mapping := range ropeMappings {
		if o := f.object(mapping); o != nil && whole(o) {
			f.vals, o.vals = maps.Clone(f.vals), maps.Clone(o.vals)
			delete(o.vals, key)
			f.vals[mapping] = o.vals
		}
	}
}
