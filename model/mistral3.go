package model

import "slices"

// The keys and defaults of the two language models, Mistral and Ministral, that Mistral 3 combines
// with a vision tower.
var (
	mistralKeys     = []string{"sliding_window", "layer_types"}
	mistralDefaults = map[string]any{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
		"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096,
		"bos_token_id": 1, "eos_token_id": 2}
	ministralDefaults = map[string]any{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
		"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
		"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11}
)

func init() {
	register(family{
		arch: "Ministral3ForCausalLM", modelType: "ministral3",
		defaults: ministralDefaults,
		keys:     slices.Concat(mistralKeys, []string{queryScalingKey}),
		prepare:  ministralRope,
		options:  (*Config).ministral3,
		write:    (*Config).ministral3JSON,
	})
	register(family{
		arch: "Mistral3ForConditionalGeneration", modelType: "mistral3",
		// Published files never have tie_word_embeddings, so headTells lets the weights decide:
		// embeddings are tied if no head is stored.
		nested:   &nested{key: "text_config", types: []string{"mistral", "ministral3"}, alone: "mistral", topTies: true, headTells: true},
		prefixes: towerPrefixes,
		keys:     mistralKeys,
		prepare: func(f *fields) {
			if !isMinistral(f) {
				f.setDefaults(mistralDefaults)
				return
			}
			f.setDefaults(ministralDefaults)
			ministralRope(f)
		},
		options: func(c *Config, f *fields) {
			if isMinistral(f) {
				c.ministral3(f)
			} else {
				c.uniformWindow(f)
			}
		},
	})
}

// towerPrefixes are the prefixes of models with a vision tower: the Hub's files have the first, Transformers 5 the
// second.
var towerPrefixes = []prefix{{"language_model.model.", "language_model.lm_head."}, {"model.language_model.", "lm_head."}}

func isMinistral(f *fields) bool { return f.str("model_type", "mistral") == "ministral3" }

// queryScalingKey is the key in rope_parameters for QueryScaling.Scale.
const queryScalingKey = "llama_4_scaling_beta"

// ministralRope sets the default rotary embedding of the class Ministral3 if the config has none.
func ministralRope(f *fields) {
	if !f.has("rope_scaling") && !f.has("rope_parameters") {
		f.vals["rope_parameters"] = map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
			"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, queryScalingKey: 0.1}
	}
}

// ministral3 sets how Ministral 3 differs from Mistral. Queries are multiplied by a factor that
// grows at every multiple of yarn's original length. Source: transformers.Ministral3Config.
func (c *Config) ministral3(f *fields) {
	c.uniformWindow(f)
	o := f.object("rope_parameters")
	if o == nil {
		o = f.object("rope_scaling")
	}
	if o == nil {
		return
	}
	if scale := o.float(queryScalingKey, 0, 0, 1e3); scale > 0 {
		c.QueryScaling = &QueryScaling{Scale: scale, Every: float64(originalPositions(f, o, 0))}
	}
	if f.err == nil {
		f.err = o.err
	}
}

func (c *Config) ministral3JSON(m map[string]any) {
	m["sliding_window"] = optional(c.SlidingWindow)
	if c.QueryScaling == nil {
		return
	}
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if rope, ok := m[key].(map[string]any); ok {
			rope[queryScalingKey] = float(c.QueryScaling.Scale)
		}
	}
}
