package model

import (
	"math"
	"slices"
	"strconv"
)

func init() {
	text := family{
		arch: "Gemma4ForCausalLM", modelType: "gemma4_text",
		// Published configs rely on these defaults.
		defaults: map[string]any{"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
			"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
			"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "sliding_window": 512, "hidden_act": "gelu_pytorch_tanh",
			"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "hidden_size_per_layer_input": 256},
		names:      map[string]string{"hidden_act": "hidden_activation"},
		localTheta: 10000,
		tensors: tensors{
			RoleRouter:       {"router.proj.weight"},
			RoleExpertGateUp: {"experts." + expertNumber + ".gate_proj.weight", "experts." + expertNumber + ".up_proj.weight"},
			RoleExpertDown:   {"experts." + expertNumber + ".down_proj.weight"},
		},
		places: map[Role]placed{
			RoleExpertGateUp: {tensor: "experts.gate_up_proj", experts: true},
			RoleExpertDown:   {tensor: "experts.down_proj", experts: true},
		},
		keys:    gemma4Keys,
		prepare: prepareGemma4,
		options: (*Config).gemma4,
		write:   (*Config).gemma4JSON,
	}
	register(text)

	// Multimodal directories hold the same language model; the vision and audio towers are not trained.
	text.arch, text.modelType = "Gemma4ForConditionalGeneration", "gemma4"
	text.nested = &nested{key: "text_config", types: []string{"gemma4_text"}, alone: "gemma4_text"}
	text.prefixes = towerPrefixes
	register(text)
}

var gemma4Keys = []string{"attention_bias", "sliding_window", "layer_types", "hidden_activation", "final_logit_softcapping",
	"use_bidirectional_attention", "attention_k_eq_v", "global_head_dim", "num_global_key_value_heads", perLayerKey,
	"hidden_size_per_layer_input", "vocab_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp",
	"enable_moe_block", "num_experts", "top_k_experts", "moe_intermediate_size"}

// perLayerKey is the key of a mapping from a layer's number to the settings in which that layer
// differs from the others.
const perLayerKey = "per_layer_config"

// prepareGemma4 sets what the class in Transformers adds to a config: default rotary embeddings,
// and full attention in the last layer.
func prepareGemma4(f *fields) {
	if !f.has("rope_parameters") {
		f.vals["rope_parameters"] = map[string]any{
			slidingAttention: map[string]any{"rope_type": "default", "rope_theta": 10000.0},
			fullAttention:    map[string]any{"rope_type": proportional, "partial_rotary_factor": 0.25, "rope_theta": 1e6}}
	}
	if types, ok := f.vals["layer_types"].([]any); ok && len(types) > 0 {
		types = slices.Clone(types)
		types[len(types)-1] = fullAttention
		f.vals["layer_types"] = types
	}
}

// gemma4 sets how Gemma 4 differs from Gemma 3: norms without an offset, norms of values, no scale on scores, other
// heads in blocks without a window, and a factor on every block's output. Source: transformers.Gemma4TextConfig.
func (c *Config) gemma4(f *fields) {
	c.SandwichNorms, c.QKNorm, c.NormsValues, c.LayerScalar = true, true, true, true
	c.EmbedScale, c.EmbedRounded = math.Sqrt(float64(c.HiddenSize)), true
	c.AttnScale = 1
	c.LogitSoftcap = f.float("final_logit_softcapping", 0, 1e-3, 1e6)
	c.biases(f)
	// The value "vision" makes attention bidirectional only among tokens of images, which mt never
	// has.
	if is := f.str("use_bidirectional_attention", "vision"); is != "vision" {
		f.fail("use_bidirectional_attention", "%q is not supported: attention is causal", is)
	}
	last := c.NumLayers - 1
	c.windows(f, f.int("sliding_window", 0, 1, maxPositions), func(b int) bool { return (b+1)%6 != 0 && b != last })
	c.KeysAreValues = f.bool("attention_k_eq_v", false)
	c.globalHeads(f)
	c.gemma4Experts(f)
	c.gemma4Small(f)
}

// globalHeads reads the head width and the number of key/value heads of global blocks, which are
// those without a sliding window. If no block has a window, they become the model's heads.
func (c *Config) globalHeads(f *fields) {
	var dim int
	kv := c.NumKVHeads
	if f.has(perLayerKey) {
		dim, kv = c.perLayer(f)
	} else {
		dim = f.int("global_head_dim", 512, 2, maxHeadDim)
		if c.KeysAreValues {
			kv = f.int("num_global_key_value_heads", c.NumKVHeads, 1, maxHeads)
		}
	}
	switch {
	case dim%2 != 0:
		f.fail("global_head_dim", "%d must be even: rotary embeddings turn pairs of elements", dim)
	case kv < 1 || c.NumHeads%kv != 0:
		f.fail("num_global_key_value_heads", "%d heads do not share %d key/value heads evenly", c.NumHeads, kv)
	case c.SlidingWindow == 0:
		c.HeadDim, c.NumKVHeads = dim, kv
		return
	}
	if dim != c.HeadDim {
		c.GlobalHeadDim = dim
	}
	if kv != c.NumKVHeads {
		c.GlobalKVHeads = kv
	}
}

// perLayer reads the head width and the number of key/value heads of blocks without a window from
// the mapping per_layer_config. It is an error if two of these blocks differ, or if a block with a
// window differs from the model's own heads.
func (c *Config) perLayer(f *fields) (dim, kv int) {
	o := f.object(perLayerKey)
	if o == nil {
		return c.HeadDim, c.NumKVHeads
	}
	first := true
	for b := range c.NumLayers {
		d, n := c.HeadDim, c.NumKVHeads
		if in := o.object(strconv.Itoa(b)); in != nil {
			in.known([]string{"head_dim", "num_key_value_heads"})
			d, n = in.int("head_dim", d, 2, maxHeadDim), in.int("num_key_value_heads", n, 1, maxHeads)
			if f.err == nil {
				f.err = in.err
			}
		}
		switch {
		case c.Window(b) > 0 && (d != c.HeadDim || n != c.NumKVHeads):
			f.fail(perLayerKey, "layer %d has a sliding window and heads of its own, which is not supported", b)
		case c.Window(b) > 0:
		case first:
			dim, kv, first = d, n, false
		case d != dim || n != kv:
			f.fail(perLayerKey, "layer %d has other heads than the full_attention layers before it, which is not supported", b)
		}
	}
	return dim, kv
}

// gemma4Small reads the parts of the small models E2B and E4B: per-layer inputs, and last blocks that share keys and
// values.
func (c *Config) gemma4Small(f *fields) {
	c.PerLayerSize = f.int("hidden_size_per_layer_input", 0, 0, maxHidden/max(1, c.NumLayers))
	if c.PerLayerSize > 0 {
		if c.PerLayerVocab = f.int("vocab_size_per_layer_input", 262144, 1, maxVocab); c.PerLayerVocab < c.VocabSize {
			f.fail("vocab_size_per_layer_input", "%d is less than vocab_size %d: tokens would have no row", c.PerLayerVocab, c.VocabSize)
		}
	}
	if c.SharedKV = f.int("num_kv_shared_layers", 0, 0, c.NumLayers); f.err != nil {
		return
	}
	c.DoubleWide = c.SharedKV > 0 && f.bool("use_double_wide_mlp", false)
	for b := c.NumLayers - c.SharedKV; b < c.NumLayers; b++ {
		if c.sourceOfKV(b) < 0 {
			f.fail("num_kv_shared_layers", "%d: layer %d finds no earlier layer of its type with keys and values", c.SharedKV, b)
			return
		}
	}
	if c.DenseBesideExperts && (c.PerLayerSize > 0 || c.SharedKV > 0) {
		f.fail("enable_moe_block", "true is not supported with hidden_size_per_layer_input or num_kv_shared_layers")
	}
}

// gemma4Experts reads the experts that stand beside the dense MLP of every block.
func (c *Config) gemma4Experts(f *fields) {
	if !f.bool("enable_moe_block", false) {
		return
	}
	c.DenseBesideExperts, c.DecoderSparseStep, c.NormTopKProb = true, 1, true
	c.NumExperts = f.need("num_experts", 1, maxExperts)
	c.NumExpertsPerTok = f.need("top_k_experts", 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.need("moe_intermediate_size", 1, maxFFN)
	if c.NumExpertsPerTok > c.NumExperts {
		f.fail("top_k_experts", "%d of %d experts cannot be chosen", c.NumExpertsPerTok, c.NumExperts)
	}
	c.expertBounds(f, "num_experts")
}

func (c *Config) gemma4JSON(m map[string]any) {
	for _, key := range []string{"rope_theta", "rope_scaling", "partial_rotary_factor", "rope_local_base_freq"} {
		delete(m, key)
	}
	m["attention_bias"], m["attention_k_eq_v"] = c.QKVBias, c.KeysAreValues
	m["final_logit_softcapping"] = optionalFloat(c.LogitSoftcap)
	m["sliding_window"], m["layer_types"] = max(c.SlidingWindow, 1), c.layerTypes()
	m["hidden_size_per_layer_input"], m["num_kv_shared_layers"], m["enable_moe_block"] = c.PerLayerSize, c.SharedKV, c.DenseBesideExperts
	m["use_double_wide_mlp"] = c.DoubleWide
	if c.PerLayerSize > 0 {
		m["vocab_size_per_layer_input"] = c.PerLayerVocab
	}
	if c.DenseBesideExperts {
		m["num_experts"], m["top_k_experts"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
	}
	full := c.Heads(c.NumLayers - 1)
	m["global_head_dim"], m["num_global_key_value_heads"] = full.Dim, full.KV
	if c.KeysAreValues || full.KV == c.NumKVHeads {
		return
	}
	layers := map[string]any{} // the class ignores num_global_key_value_heads here
	for b := range c.NumLayers {
		if c.Window(b) == 0 {
			layers[strconv.Itoa(b)] = map[string]any{"head_dim": full.Dim, "num_key_value_heads": full.KV}
		}
	}
	m[perLayerKey] = layers
}
