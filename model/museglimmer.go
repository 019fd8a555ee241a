package model

import (
	"math"
	"slices"
)

// Muse-Glimmer's language model stands beside a vision tower. It has four norms in a block, whose weights are 1+w, an
// output gate, and norms of queries and keys without weights. The embedding's output is normed too, without weights.
// Every fourth block, counted from the last, attends to everything and does not rotate; the others have a window.
// Source: transformers.MuseGlimmerTextConfig.
func init() {
	register(family{
		arch: "MuseGlimmerForConditionalGeneration", modelType: "muse_glimmer",
		nested:   &nested{key: "text_config", types: []string{"muse_glimmer_text"}, alone: "muse_glimmer_text", topTies: true},
		prefixes: towerPrefixes,
		defaults: map[string]any{"vocab_size": 202048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52,
			"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
			"hidden_act": "silu", "sliding_window": 2048, "bos_token_id": 200000, "eos_token_id": 200001},
		names: map[string]string{"hidden_act": "hidden_activation"},
		keys: []string{"attention_bias", "hidden_activation", "sliding_window", "layer_types", "final_logit_softcapping", "qk_scale_factor",
			"output_multiplier", "post_norm_eps", "layer_rope_theta"},
		options: (*Config).museGlimmer,
		write:   (*Config).museGlimmerJSON,
	})
}

func (c *Config) museGlimmer(f *fields) {
	c.NormOffset, c.SandwichNorms, c.FinalNormPlain, c.EmbedNorm = 1, true, true, true
	c.QKNorm, c.QKNormPlain, c.OutputGate = true, true, true
	c.OutputNormEps = float32(f.float("post_norm_eps", 1e-8, 0, 1))
	c.AttnScale = f.float("qk_scale_factor", 3.87, 1e-6, 1e6) / math.Sqrt(float64(c.HeadDim))
	c.LogitSoftcap = f.float("final_logit_softcapping", 20, 1e-3, 1e6)
	c.LogitScale = f.float("output_multiplier", 0.19611613513818404, 1e-9, 1e6)
	c.biases(f)
	full := func(b int) bool { return (c.NumLayers-1-b)%4 == 0 }
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return !full(b) })
	c.NoRope = make([]bool, c.NumLayers)
	if !f.has(layerRopeKey) {
		for b := range c.NoRope {
			c.NoRope[b] = full(b)
		}
		return
	}
	thetas := f.floats(layerRopeKey, 0, 1e12)
	if len(thetas) != c.NumLayers {
		f.fail(layerRopeKey, "%d values for %d layers", len(thetas), c.NumLayers)
		return
	}
	for b, theta := range thetas {
		if c.NoRope[b] = theta == 0; !c.NoRope[b] && theta != slices.Max(thetas) {
			f.fail(layerRopeKey, "layer %d has %v, and another layer %v: several bases are not supported, nor in Transformers' class", b, theta, slices.Max(thetas))
		}
	}
}

// layerRopeKey is the key of the blocks' bases of the rotary embedding; 0: the block does not rotate.
const layerRopeKey = "layer_rope_theta"

func (c *Config) museGlimmerJSON(m map[string]any) {
	m["attention_bias"], m["post_norm_eps"] = c.QKVBias, c.OutputNormEps
	m["qk_scale_factor"] = math.Round(1e9*c.AttnScale*math.Sqrt(float64(c.HeadDim))) / 1e9
	m["final_logit_softcapping"], m["output_multiplier"] = c.LogitSoftcap, c.LogitScale
	m["sliding_window"], m["layer_types"] = optional(c.SlidingWindow), c.layerTypes()
	thetas := make([]float64, c.NumLayers)
	for b := range thetas {
		if c.Turns(b) {
			thetas[b] = c.Rope.Theta
		}
	}
	m[layerRopeKey] = thetas
}
