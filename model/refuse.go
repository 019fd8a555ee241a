package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The functions of this file report features that mt lacks as errors. Otherwise a model would silently be trained as a
// different one.

// dropouts are the keys with which some architecture asks for dropout.
var dropouts = []string{"attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "residual_dropout", "embedding_dropout"}

// dropout sets an error if the config asks for dropout, which mt lacks. In a family whose published files ask for
// dropout, it only records the request in c.Dropout.
func (c *Config) dropout(f *fields) {
	var asked []string
	for _, key := range dropouts {
		switch p := f.float(key, 0, 0, 1); {
		case p > 0 && c.family.dropout:
			asked = append(asked, fmt.Sprintf("%s %g", key, p))
		case p > 0:
			f.fail(key, "%g: dropout is not supported; set it to 0 to train without", p)
		}
	}
	c.Dropout = strings.Join(asked, ", ")
}

// noises maps keys that ask for noise in training to the tensor that gets the noise.
var noises = map[string]string{"router_jitter_noise": "the router's input", "input_jitter_noise": "the input of experts"}

// noNoise sets an error if key, one of noises, asks for noise.
func (f *fields) noNoise(key string) {
	if x := f.float(key, 0, 0, 1); x > 0 {
		f.fail(key, "%g: noise in %s is not supported; set it to 0 to train without", x, noises[key])
	}
}

// noBalance refuses output_router_logits, which asks for a load-balancing loss, in an architecture that has no such
// loss.
func (c *Config) noBalance(f *fields) {
	if f.bool("output_router_logits", false) {
		f.fail("output_router_logits", "true: %s has no loss of its router", c.Arch)
	}
}

// hiddenByHeads refuses a head_dim other than hidden_size / num_attention_heads.
func (c *Config) hiddenByHeads(f *fields) {
	if c.HeadDim != c.HiddenSize/c.NumHeads {
		f.fail("head_dim", "%d: this architecture has hidden_size / num_attention_heads, %d", c.HeadDim, c.HiddenSize/c.NumHeads)
	}
}

// neutral maps keys that change the mathematics of some architecture to their neutral value, which
// changes nothing. nil: only null is neutral. A family that supports such a key lists it in
// family.keys. In all other families refuseOthers refuses any other value.
var neutral = map[string]any{
	"attention_bias": false, "mlp_bias": false, "lm_head_bias": false, "use_bias": false,
	"qk_norm": false, "use_qk_norm": false, "qk_layernorm": false,
	"is_causal": true, "use_bidirectional_attention": false,
	"use_mrope": false, "rope_interleave": false, "rope_interleaved": false, "no_rope_layers": nil, "rope_local_base_freq": nil,
	"clip_qkv": nil, "attention_chunk_size": nil, "full_attn_mod": 1.0, "interpolate_factor": 1.0,
	"attn_logit_softcapping": nil, "final_logit_softcapping": nil, "query_pre_attn_scalar": nil,
	"embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": nil,
	"logits_scaling": 1.0, "logit_scale": 1.0, "lm_head_multiplier": 1.0,
	"num_experts": 0.0, "num_local_experts": 0.0, "n_routed_experts": 0.0, "n_shared_experts": 0.0,
	"shared_expert_intermediate_size": 0.0,
}

// refuseOthers refuses keys of neutral that the family does not read, unless they have their neutral value.
func (a *family) refuseOthers(f *fields) {
	for _, key := range slices.Sorted(maps.Keys(neutral)) {
		if !slices.Contains(a.keys, key) && !isNeutral(f.vals[key], neutral[key]) {
			f.fail(key, "%s is not supported in %s", show(f.vals[key]), a.arch)
		}
	}
}

func isNeutral(v, want any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		b, _ := want.(bool)
		return v == b
	case []any:
		return len(v) == 0
	}
	x, ok := number(v)
	return ok && x == want
}
