package model

import (
	"encoding/json"
	"strconv"
	"strings"
)

// float is a number that JSON writes as Python prints a float: 8.0, not 8. Transformers 4 refuses a
// whole number where it wants a float.
type float float64

// MarshalJSON writes f with the fewest digits that read back as f.
func (f float) MarshalJSON() ([]byte, error) {
	s := strconv.FormatFloat(float64(f), 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return []byte(s), nil
}

// Resized returns c with a vocabulary of n tokens; the special token ids stay. If c was read from a config.json,
// vocab_size changes in the kept text too: in the mapping with the language model's keys.
func (c *Config) Resized(n int) *Config {
	out := *c
	out.VocabSize = n
	if c.source.raw == nil {
		return &out
	}
	size := strconv.AppendInt(nil, int64(n), 10)
	part := c.familyOf().nested
	if part == nil {
		out.source = c.source.set(vocabKey, size)
		return &out
	}
	inner, _, err := scanObject(c.source.value(part.key)) // missing or null if the keys are at the top
	if err != nil || c.source.value(vocabKey) != nil {
		out.source = c.source.set(vocabKey, size)
	}
	if err == nil {
		out.source = out.source.set(part.key, inner.set(vocabKey, size).raw)
	}
	return &out
}

// vocabKey is the key of config.json for the vocabulary size.
const vocabKey = "vocab_size"

// JSON returns the config.json for weights saved in the given dtype ("bfloat16", "float32"). A text that was read
// comes back byte for byte, except for the dtype, a changed vocabulary size, and the description of quantized weights.
// For an inline config JSON writes a full text that Transformers 4 and 5 load.
func (c *Config) JSON(dtype string) []byte {
	if c.source.raw != nil {
		quoted, _ := json.Marshal(dtype) // a string always marshals
		nested := ""
		if part := c.familyOf().nested; part != nil {
			nested = part.key
		}
		return c.source.withoutQuantized(nested).with(quoted, "torch_dtype", "dtype")
	}
	m := map[string]any{
		"architectures":           []string{c.Arch},
		"model_type":              c.ModelType,
		vocabKey:                  c.VocabSize,
		"hidden_size":             c.HiddenSize,
		"intermediate_size":       c.IntermediateSize,
		"num_hidden_layers":       c.NumLayers,
		"num_attention_heads":     c.NumHeads,
		"num_key_value_heads":     c.NumKVHeads,
		"head_dim":                c.HeadDim,
		"max_position_embeddings": c.MaxPositions,
		"rms_norm_eps":            c.RMSNormEps,
		"tie_word_embeddings":     c.TieEmbeddings,
		"initializer_range":       float(c.InitializerRange),
		"bos_token_id":            tokenIDs(c.BOS),
		"eos_token_id":            tokenIDs(c.EOS),
		"pad_token_id":            tokenIDs(c.PAD),
		"hidden_act":              [...]string{SiLU: "silu", GELUTanh: "gelu_pytorch_tanh", GELU: "gelu", ReLU: "relu", SquaredReLU: "relu2", XIELU: xielu}[c.Activation],
		"attention_dropout":       float(0),
		"torch_dtype":             dtype,
		"use_cache":               true,
	}
	if !c.LearnedPositions {
		c.ropeJSON(m)
	}
	if a := c.familyOf(); a != nil {
		a.write(c, m)
		for common, own := range a.names {
			m[own] = m[common]
			delete(m, common)
		}
	}
	out, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic("model: a parsed config does not marshal: " + err.Error())
	}
	return append(out, '\n')
}

// JSONAsRead returns the config.json for weights that are saved in the same format as they were
// read. The text is as it was read, apart from a vocabulary size that Resized changed. For an
// inline config it is JSON("bfloat16").
func (c *Config) JSONAsRead() []byte {
	if c.source.raw != nil {
		return c.source.raw
	}
	return c.JSON("bfloat16")
}

// tokenIDs returns ids in the form that config.json has: null for none, a number for one id, otherwise a list.
func tokenIDs(ids []int) any {
	switch len(ids) {
	case 0:
		return nil
	case 1:
		return ids[0]
	}
	return ids
}

// optional returns n, or for 0 nil, which JSON writes as null.
func optional(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func optionalFloat(x float64) any {
	if x == 0 {
		return nil
	}
	return float(x)
}
