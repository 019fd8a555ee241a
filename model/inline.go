package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// inlineKeys are the keys an inline config of any family may have: those of
// config.json that count, those that say nothing for a new model, and preset.
// The families have more.
var inlineKeys = []string{
	"preset", "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
	"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
	"max_position_embeddings", "original_max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
	"tie_word_embeddings", "initializer_range", "bos_token_id",
	"eos_token_id", "pad_token_id", "hidden_act", "attention_dropout",
	"dtype", "torch_dtype", "use_cache", "transformers_version",
}

// FromInline makes a config of a mapping with the keys of config.json, as a
// training config's `model:` has it. model_type is llama unless it or
// architectures is given; `preset: NAME` gives values for keys left out. where
// is for messages, such as "train.yaml:3: model".
func FromInline(m map[string]any, where string) (*Config, error) {
	f := &fields{where: where, vals: maps.Clone(m)}
	if f.vals == nil {
		f.vals = map[string]any{}
	}
	f.known(allInlineKeys())
	checkRopeKeys(f)
	if name := f.str("preset", ""); name != "" && f.err == nil {
		base, ok := presetOf(name)
		if !ok {
			f.fail("preset", "%s", unknownPreset(name))
		}
		f.setDefaults(base)
	}
	if !f.has("model_type") && !f.has("architectures") {
		f.vals["model_type"] = "llama"
	}
	a := findFamily(f)
	if f.err == nil && a.nested != nil {
		f.fail("model_type", "%s has parts that are not trained and cannot be made anew; take model_type %s", a.modelType, a.nested.alone)
	}
	if f.err == nil {
		f.known(a.inlineKeys())
	}
	if f.err != nil {
		return nil, f.err
	}
	return fromFields(f)
}

// inlineKeys are the keys that an inline config of the family may have: those of all, by the
// family's own names, and its own.
func (a *family) inlineKeys() []string {
	keys := slices.Clone(a.keys)
	for _, k := range inlineKeys {
		keys = append(keys, cmp.Or(a.names[k], k))
	}
	return keys
}

// allInlineKeys are the keys of all families, so that a mistake is found before
// the family is.
func allInlineKeys() []string {
	keys := slices.Clone(inlineKeys)
	for _, a := range families {
		keys = append(keys, a.inlineKeys()...)
	}
	return keys
}

// checkRopeKeys refuses unknown keys of the rotary embeddings' mappings.
func checkRopeKeys(f *fields) {
	for _, k := range []string{"rope_scaling", "rope_parameters"} {
		o := f.object(k)
		if o == nil || f.err != nil {
			continue
		}
		for _, in := range []*fields{o.object(fullAttention), o.object(slidingAttention)} {
			if in != nil {
				in.known(ropeKeys)
				o.err = cmp.Or(o.err, in.err)
			}
		}
		o.known(append([]string{fullAttention, slidingAttention}, ropeKeys...))
		f.err = o.err
	}
}

// Preset is the architecture of the given name, to be trained from scratch.
func Preset(name string) (*Config, error) {
	m, ok := presetOf(name)
	if !ok {
		return nil, fmt.Errorf("model: %s", unknownPreset(name))
	}
	return FromInline(m, "model: "+name)
}

// PresetNames are the names Preset takes, sorted, without aliases.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

func unknownPreset(name string) string {
	names := PresetNames()
	return fmt.Sprintf("no preset is called %q%s (presets: %s)", name, didYouMean(name, names), strings.Join(names, ", "))
}
