package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// inlineKeys are the keys an inline config may have: those of config.json that
// count, those that say nothing for a new model, and preset.
var inlineKeys = []string{
	"preset", "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
	"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
	"max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters",
	"tie_word_embeddings", "attention_bias", "mlp_bias", "initializer_range", "bos_token_id",
	"eos_token_id", "pad_token_id", "hidden_act", "attention_dropout", "partial_rotary_factor",
	"sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
	"dtype", "torch_dtype", "use_cache", "pretraining_tp", "transformers_version",
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
	f.known(inlineKeys)
	for _, k := range []string{"rope_scaling", "rope_parameters"} {
		if o := f.object(k); o != nil && f.err == nil {
			o.known(ropeKeys)
			f.err = o.err
		}
	}
	if name := f.str("preset", ""); name != "" && f.err == nil {
		base, ok := presets[name]
		if !ok {
			f.fail("preset", "%s", unknownPreset(name))
		}
		for k, v := range base {
			if _, given := f.vals[k]; !given {
				f.vals[k] = v
			}
		}
	}
	if !f.has("model_type") && !f.has("architectures") {
		f.vals["model_type"] = "llama"
	}
	if f.err != nil {
		return nil, f.err
	}
	return fromFields(f)
}

// Preset is the architecture of the given name, to be trained from scratch.
func Preset(name string) (*Config, error) {
	m, ok := presets[name]
	if !ok {
		return nil, fmt.Errorf("model: %s", unknownPreset(name))
	}
	return FromInline(m, "model: "+name)
}

// PresetNames are the names Preset takes, sorted.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

func unknownPreset(name string) string {
	names := PresetNames()
	return fmt.Sprintf("no preset is called %q%s (presets: %s)", name, didYouMean(name, names), strings.Join(names, ", "))
}

// shape is a preset in the order hidden_size, intermediate_size,
// num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
// vocab_size.
func shape(modelType string, h, ffn, layers, heads, kv, d, vocab int, rest map[string]any) map[string]any {
	m := map[string]any{
		"model_type": modelType, "hidden_size": h, "intermediate_size": ffn, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d, "vocab_size": vocab,
	}
	maps.Copy(m, rest)
	return m
}

// bytesVocab: a byte-level vocabulary, id 0 ends a text.
func bytesVocab(positions int) map[string]any {
	return map[string]any{"max_position_embeddings": positions, "rms_norm_eps": 1e-5, "eos_token_id": 0}
}

func llama2() map[string]any {
	return map[string]any{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
}

// llama3 is what the Llama 3.1 and 3.2 models share.
func llama3(factor float64, tied bool) map[string]any {
	return map[string]any{
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"bos_token_id": 128000, "eos_token_id": 128001, "tie_word_embeddings": tied,
		"rope_scaling": map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
	}
}

// qwen is what the Qwen2.5 and Qwen3 models share.
func qwen(positions int, tied bool) map[string]any {
	return map[string]any{"max_position_embeddings": positions, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
		"bos_token_id": 151643, "eos_token_id": 151643, "tie_word_embeddings": tied}
}

// presets have the shapes of the published models of those names.
var presets = map[string]map[string]any{
	"tiny":       shape("llama", 64, 176, 2, 4, 2, 16, 256, bytesVocab(256)),
	"quickstart": shape("llama", 256, 704, 6, 8, 4, 32, 256, bytesVocab(1024)),

	"llama-1b":  shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, llama3(32, true)),
	"llama-3b":  shape("llama", 3072, 8192, 28, 24, 8, 128, 128256, llama3(32, true)),
	"llama-7b":  shape("llama", 4096, 11008, 32, 32, 32, 128, 32000, llama2()),
	"llama-8b":  shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, llama3(8, false)),
	"llama-13b": shape("llama", 5120, 13824, 40, 40, 40, 128, 32000, llama2()),
	"llama-70b": shape("llama", 8192, 28672, 80, 64, 8, 128, 128256, llama3(8, false)),

	"qwen2.5-0.5b": shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, qwen(32768, true)),
	"qwen2.5-1.5b": shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, qwen(131072, true)),
	"qwen2.5-3b":   shape("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, qwen(32768, true)),
	"qwen2.5-7b":   shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, qwen(131072, false)),
	"qwen2.5-14b":  shape("qwen2", 5120, 13824, 48, 40, 8, 128, 152064, qwen(131072, false)),
	"qwen2.5-32b":  shape("qwen2", 5120, 27648, 64, 40, 8, 128, 152064, qwen(131072, false)),
	"qwen2.5-72b":  shape("qwen2", 8192, 29568, 80, 64, 8, 128, 152064, qwen(131072, false)),

	"qwen3-0.6b": shape("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, qwen(40960, true)),
	"qwen3-4b":   shape("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, qwen(40960, true)),
	"qwen3-8b":   shape("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, qwen(40960, false)),
	"qwen3-14b":  shape("qwen3", 5120, 17408, 40, 40, 8, 128, 151936, qwen(40960, false)),
}
