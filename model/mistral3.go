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

// mistralText is a language model that Mistral 3 has beside a vision tower.
type mistralText struct {
	defaults map[string]any
	keys     []string // keys of neutral that the options read
	prepare  func(f *fields)
	options  func(c *Config, f *fields)
}

// mistralTexts are the language models by their model_type.
var mistralTexts = map[string]mistralText{
	"mistral":    {mistralDefaults, mistralKeys, func(*fields) {}, (*Config).uniformWindow},
	"ministral3": {ministralDefaults, mistralKeys, ministralRope, (*Config).ministral3},
	"mistral4":   {mistral4Defaults, mistral4Keys, mistral4Prepare, (*Config).mistral4},
}

func mistralTextOf(f *fields) mistralText { return mistralTexts[f.str("model_type", "mistral")] }

func init() {
	register(family{
		arch: "Ministral3ForCausalLM", modelType: "ministral3",
		defaults: ministralDefaults,
		keys:     slices.Concat(mistralKeys, []string{queryScalingKey}),
		prepare:  ministralRope,
		options:  (*Config).ministral3,
		write: func(c *Config, m map[string]any) {
			m["sliding_window"] = optional(c.SlidingWindow)
			c.queryScalingJSON(m)
		},
	})
	register(family{
		arch: "Mistral3ForConditionalGeneration", modelType: "mistral3",
		// Published files never have tie_word_embeddings, so headTells lets the weights decide:
		// embeddings are tied if no head is stored.
		nested: &nested{key: "text_config", types: []string{"mistral", "ministral3", "mistral4"}, alone: "mistral", topTies: true,
			headTells: true},
		prefixes: towerPrefixes,
		places:   mistral4Places,
		keys:     slices.Concat(mistralKeys, mistral4Keys),
		prepare: func(f *fields) {
			if text := mistralTextOf(f); text.prepare != nil {
				f.setDefaults(text.defaults)
				text.prepare(f)
			}
		},
		options: func(c *Config, f *fields) {
			if text := mistralTextOf(f); text.options != nil { // else f has an error
				(&family{arch: c.Arch, keys: text.keys}).refuseOthers(f)
				text.options(c, f)
			}
		},
	})
}

// towerPrefixes are the prefixes of models with a vision tower: the Hub's files have the first, Transformers 5 the
// second.
var towerPrefixes = []prefix{{"language_model.model.", "language_model.lm_head."}, {"model.language_model.", "lm_head."}}

// queryScalingKey is the key in rope_parameters for QueryScaling.Scale.
const queryScalingKey = "llama_4_scaling_beta"

// ropeMappings are the keys whose mappings may describe the rotary embedding.
var ropeMappings = []string{"rope_scaling", "rope_parameters"}

// defaultRope sets the rotary embedding to rope if the config has none.
func defaultRope(f *fields, rope map[string]any) {
	if !slices.ContainsFunc(ropeMappings, f.has) {
		f.vals["rope_parameters"] = rope
	}
}

// ministralRope sets the default rotary embedding of the class Ministral3 if the config has none.
func ministralRope(f *fields) {
	defaultRope(f, map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
		"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, queryScalingKey: 0.1})
}

// ministral3 sets how Ministral 3 differs from Mistral. Source: transformers.Ministral3Config.
func (c *Config) ministral3(f *fields) {
	c.uniformWindow(f)
	c.queryScaling(f)
}

// queryScaling reads the factor on queries, which grows at every multiple of yarn's original length.
func (c *Config) queryScaling(f *fields) {
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

func (c *Config) queryScalingJSON(m map[string]any) {
	if c.QueryScaling == nil {
		return
	}
	for _, key := range ropeMappings {
		if rope, ok := m[key].(map[string]any); ok {
			rope[queryScalingKey] = float(c.QueryScaling.Scale)
		}
	}
}
